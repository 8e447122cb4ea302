// What follows a product before its result is stored: the post-ops of zefuse.matmul and its like.
#pragma once

#include "mlir/IR/Builders.h"
#include "llvm/ADT/STLFunctionalExtras.h"

namespace zefuse {

// Applies the post-ops in order to `value` (f32 or f64, scalar or vector). operand(n) gives the n-th add or mul's
// operand in the same type. NaN stays NaN.
mlir::Value emitPostOps(mlir::OpBuilder& builder, mlir::Location loc, llvm::ArrayRef<llvm::StringRef> post_ops,
                        mlir::Value value, llvm::function_ref<mlir::Value(unsigned)> operand);

}  // namespace zefuse
