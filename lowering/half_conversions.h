// Within stage 3: conversions between f32 and bf16 or f16 become what the target has: an instruction (f16), a call of
// a function that our compiler knows (bf16), or integer arithmetic with the same results. All round to nearest even; a
// NaN stays one.
#pragma once

#include "common/toolchain/targets.h"
#include "mlir/IR/BuiltinOps.h"

namespace zefuse {

// In place. Fails where another operation on a half-sized type is left that the target does not have.
mlir::LogicalResult expandHalfConversions(mlir::ModuleOp module, const NativeOperations& native);

}  // namespace zefuse
