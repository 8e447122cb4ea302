// Floats as integers, where C leaves open what they become.
#pragma once

#include "mlir/IR/BuiltinOps.h"

namespace zefuse {

// In place, before the LLVM dialect. LLVM makes poison of a constant that no integer holds: `where(m, x, inf)` as an
// integer would be x's everywhere.

// On the CPU: NaN, infinities and what is beyond the integer's range become the least integer,
// as by x86's instructions and so in eager.
void defineIntegersOfFloats(mlir::ModuleOp module);

// On a GPU: the nearest integer, and 0 for NaN, as GPUs' instructions have it (SPIR-V's SaturatedConversion).
void saturateIntegersOfFloats(mlir::ModuleOp module);

}  // namespace zefuse
