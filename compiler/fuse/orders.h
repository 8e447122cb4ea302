// The orders in which a tensor's elements may lie in memory, and which of them a kernel walks through.
#pragma once

#include <optional>

#include "lowering/dialect/Zefuse.h"
#include "mlir/IR/AffineMap.h"
#include "mlir/IR/BuiltinTypes.h"

namespace zefuse {

// Whether distinct indices have distinct elements and no element is unused: some order of the dimensions is row-major.
bool isDense(llvm::ArrayRef<mlir::AffineExpr> strides, llvm::ArrayRef<mlir::AffineExpr> sizes);

// Row-major over the dimensions in this order, the outermost first.
mlir::AffineMap permutedLayout(mlir::RankedTensorType type, llvm::ArrayRef<unsigned> order, unsigned num_symbols);

// The order of a value's dimensions in which its elements lie as a reader of `sizes` counts them, who sees them through
// `view`, row after row; empty where there is none, or sizes are no numbers. For values of many dimensions, whose
// orders are too many to be tried: of a weight's codes that become numbers (blocks of rows, groups, words, bytes) a
// product reads a matrix.
llvm::SmallVector<unsigned> orderReadBy(mlir::AffineMap view, llvm::ArrayRef<mlir::AffineExpr> sizes,
                                        mlir::RankedTensorType type);

// The inputs and results that a kernel walks through side by side: large ones of as many dimensions as the largest, of
// which operations see the same dimensions in the same order.
llvm::SmallVector<mlir::Value> walkedTogether(KernelOp kernel);

// The order of dimensions, the outermost first, that most elements of such values have, as far as what is innermost; of
// as many one that a result has. Empty where all agree, or none of the most is dense.
llvm::SmallVector<unsigned> commonOrder(KernelOp kernel, llvm::ArrayRef<mlir::Value> values,
                                        llvm::ArrayRef<mlir::AffineMap> layouts);

// The dimension whose neighbours lie side by side.
std::optional<unsigned> innermost(mlir::RankedTensorType type, mlir::AffineMap layout);

}  // namespace zefuse
