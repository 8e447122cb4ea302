// Building blocks of reductions that normalization.cpp and attention.cpp share. `dims`: ascending, of the unreduced
// tensor.
#pragma once

#include "compiler/import/op.h"

namespace zefuse {

mlir::Value keepDims(TensorBuilder& build, mlir::Value reduced, llvm::ArrayRef<int64_t> dims);  // sizes 1 put back
mlir::AffineExpr countOf(TensorBuilder& build, mlir::Value tensor, llvm::ArrayRef<int64_t> dims);
// A loop whose body needs only its inputs.
mlir::Value mapSame(TensorBuilder& build, llvm::ArrayRef<Operand> inputs, mlir::RankedTensorType type,
                    llvm::function_ref<Scalar(llvm::ArrayRef<Scalar>)> body);
mlir::Value meanOver(TensorBuilder& build, mlir::Value tensor, llvm::ArrayRef<int64_t> dims);
// sum((tensor - mean)^2); `mean` is reduced.
mlir::Value squaredDeviations(TensorBuilder& build, mlir::Value tensor, mlir::Value mean, llvm::ArrayRef<int64_t> dims);

}  // namespace zefuse
