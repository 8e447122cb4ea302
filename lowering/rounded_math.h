// Within stage 3, on GPUs: functions of f32 whose results are rounded to bf16 or f16 at once are computed by the
// device's own instructions, to what that rounding leaves.
//
// Eager's operators of bf16 and f16 compute in f32 and round their result, so that a sigmoid is
// truncf(1 / (1 + exp(-x))). Where nothing but such roundings uses a value, and no subtraction in between could enlarge
// its relative error:
// - a quotient by 1 + exp(x) is a product with `native_recip`, its exponential `native_exp2`: within 2^-17 of the value
//   (f16 keeps 2^-11, bf16 2^-8); values below 2^-120 may become 0;
// - another quotient is a product with `native_recip` of a scaled divisor: within 2^-20 (native_recip as exact as f32)
//   or 2^-17; values below 2^-120 may become 0;
// - tanh for bf16 is the device's instruction where there is one (2^-10.9); else, and for f16, it comes of
//   `native_exp2` and `native_recip` (2^-19), as it does where 1 is added to it (gelu's, error 2^-21 of 1);
// - erf to which 1 is added (gelu) is a polynomial of `native_recip` times `native_exp2`: error 2^-21 of 1 (Abramowitz
//   and Stegun, 7.1.26).
//
// A quotient by 1 + exp(x) whose result stays f32 is a product with `native_recip` where that is as exact as f32 is
// (NativeOperations::reciprocal): an exact division has a branch for what its steps do not cover.
#pragma once

#include "common/toolchain/targets.h"
#include "mlir/IR/BuiltinOps.h"

namespace zefuse {

// In place.
void approximateRoundedMath(mlir::ModuleOp module, const NativeOperations& native);

}  // namespace zefuse
