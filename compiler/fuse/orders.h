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

// What of a kernel lies otherwise than most of what it walks through side by side, and the layout that it has in their
// order. `of`: how the kernel's inputs and results lie.
//
// Large inputs and results count that have as many dimensions as the largest, of which operations see the same
// dimensions in the same order; and inputs that they see through a view of that shape. The order is the one that most
// elements have, as far as what is innermost; of as many one that a result has. None is told where all agree, or none
// of the most is dense.
struct OtherOrder {
  mlir::Value value;
  mlir::AffineMap layout;
};
llvm::SmallVector<OtherOrder> inOtherOrders(KernelOp kernel, llvm::function_ref<mlir::AffineMap(mlir::Value)> of,
                                            unsigned num_symbols);

// Whether each reduction of large tensors in the kernel has its last dimension among those that it reduces.
bool reducesInnermost(KernelOp kernel);

// Whether a kernel that reduces and walks through the value in another order than the rest gains by a copy.
bool isLargeInOrder(mlir::Value value);

}  // namespace zefuse
