// How tensors lie in memory at the end of stage 2.
#pragma once

#include "lowering/dialect/Zefuse.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/AffineMap.h"
#include "llvm/ADT/DenseMap.h"

namespace zefuse {

// Of the view's elements in the buffer in which its source lies so.
mlir::AffineMap layoutThrough(ViewOp view, mlir::AffineMap source);

// The strides of an argument, as a layout.
mlir::AffineMap layoutOfArgument(mlir::func::FuncOp graph, unsigned number);

// From a value's indices (and the graph's symbols) to the element in its buffer. Keeps what it was asked. The graph
// must not change meanwhile.
class ValueLayouts {
public:
  explicit ValueLayouts(mlir::func::FuncOp graph) : graph_(graph) {}
  mlir::AffineMap of(mlir::Value value);
  // The same counted from the value's first element, as lowerAttentionGradient wants it. The value must be strided.
  mlir::AffineMap fromFirst(mlir::Value value);

private:
  mlir::func::FuncOp graph_;
  llvm::DenseMap<mlir::Value, mlir::AffineMap> known_;
};

// Of each result of a library operation, as stage 2 assigned it.
llvm::SmallVector<mlir::AffineMap> resultLayouts(mlir::Operation* call);

}  // namespace zefuse
