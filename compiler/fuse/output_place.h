// Where eager has the outputs of a graph that share memory there, and whether ours, views of one value, would lie so
// too.
#pragma once

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace zefuse {

// One output: eager's place in the storage that it shares, in elements.
struct OutputPlace {
  mlir::OpOperand* use;     // of the function's return
  mlir::AffineMap strides;  // results without dimensions
  mlir::AffineExpr offset;  // null: not known
};

// `value`, what it is a view of, and so on.
llvm::SmallVector<mlir::Value> viewsBehind(mlir::Value value);

// The nearest value of which both are views; null: none.
mlir::Value commonBase(mlir::Value a, mlir::Value b);

// The place of an output in memory, where max(1, n) is n if that is among the sizes of what it is a view of: torch's
// strides have it so, and where n is 0 there is no element whose place it could be. `sources`: of the graph's symbols
// (docs/ir.md).
mlir::AffineExpr placeOfElements(mlir::AffineExpr place, llvm::ArrayRef<mlir::AffineExpr> sizes,
                                 mlir::ArrayAttr sources);

// Whether elements of the two, views of `base`, are the same in its memory exactly where they are in eager's: then both
// may be views of it, or of one copy of it. x.repeat(2)[:n] and [n:] are the same elements of x, and others of
// x.repeat(2). False also where nobody here can tell.
bool overlapAsInEager(const OutputPlace& a, const OutputPlace& b, mlir::Value base);

// Strides with which `base` may lie so that its elements lie apart and the outputs, views of it, lie as eager's do:
// with the same strides and as far from each other. x[:, 1:3].clone() is dense in eager, and no x has strides for it.
// Null where nobody here can tell, too.
std::optional<llvm::SmallVector<mlir::AffineExpr>> stridesFor(mlir::Value base, llvm::ArrayRef<OutputPlace> outputs);

}  // namespace zefuse
