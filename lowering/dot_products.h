// Within stage 3: zefuse.dot4 becomes what the target has: a call of a function that our compiler knows (VNNI, dp4a),
// or integer arithmetic with the same results.
#pragma once

#include "common/toolchain/targets.h"
#include "mlir/IR/BuiltinOps.h"

namespace zefuse {

// In place.
void expandDotProducts(mlir::ModuleOp module, const NativeOperations& native);

}  // namespace zefuse
