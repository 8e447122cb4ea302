// The stage-1 contract (docs/ir.md, "Stage 1") as a check.
#pragma once

#include "mlir/IR/BuiltinOps.h"

namespace zefuse {

// Emits an error on the first operation that breaks the contract, naming it and what is wrong.
llvm::LogicalResult verifyImported(mlir::ModuleOp module);

}  // namespace zefuse
