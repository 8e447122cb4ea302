// The orders in which a tensor's elements may lie in memory, and which of them a kernel walks through.
#pragma once

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

// The inputs and results that a kernel walks through side by side: large ones of one shape, which elementwise
// operations read or make.
llvm::SmallVector<mlir::Value> walkedTogether(KernelOp kernel);

// Of the layouts of such values one that most of them agree with in what is innermost, of as many one that a result
// has; null where all agree, or none of the most is dense.
mlir::AffineMap commonOrder(KernelOp kernel, llvm::ArrayRef<mlir::Value> values,
                            llvm::ArrayRef<mlir::AffineMap> layouts);

// Whether both have an innermost dimension, and not the same.
bool differInOrder(mlir::RankedTensorType type, mlir::AffineMap a, mlir::AffineMap b);

}  // namespace zefuse
