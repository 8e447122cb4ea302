// Pull-style dataflow: what computing one value at given indices needs.
//
// A node is (value, indices). Values are tensors of the kernel and scalars inside the bodies of linalg ops; the indices
// of a scalar are its linalg op's iteration. The analysis walks these nodes without emitting; the evaluator emits them.
#pragma once

#include "lowering/analysis/index_space.h"
#include "lowering/dialect/Zefuse.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "llvm/ADT/STLFunctionalExtras.h"

namespace zefuse {

struct Node {
  mlir::Value value;
  mlir::AffineMap at;
  bool operator==(const Node& other) const { return value == other.value && at == other.at; }
};

bool isReduction(mlir::Operation* op);

// The reduction's combiner, and the operand of it that is the element (the other is the accumulator); null when the
// body has another form.
struct Combiner {
  mlir::Operation* op = nullptr;
  mlir::Value element;
};
Combiner combinerOf(mlir::linalg::GenericOp reduction);
// The fill value a reduction starts from: a scalar, null when the init is not a fill.
mlir::Value initOf(mlir::linalg::GenericOp reduction);

// An index computed in a linalg body as an expression where it is one (linalg.index, constants, sums, casts), else
// opaque.
mlir::AffineExpr indexExpr(IndexSpace& space, mlir::Value index, mlir::AffineMap at);
// The indices at which a tensor.extract reads.
mlir::AffineMap extractIndices(IndexSpace& space, mlir::tensor::ExtractOp op, mlir::AffineMap at);

// A tensor.concat's piece: the operand, its first index in the result and its size along the concatenated dimension.
struct Piece {
  mlir::Value value;
  mlir::AffineExpr offset, size;
};
llvm::SmallVector<Piece> piecesOf(mlir::tensor::ConcatOp op);
mlir::AffineMap pieceIndices(IndexSpace& space, mlir::tensor::ConcatOp op, const Piece& piece, mlir::AffineMap at);

// The dimensions in which a pad's result reaches outside its source, and where it reads that.
llvm::SmallVector<unsigned> paddedDims(PadOp op);
mlir::AffineMap paddedIndices(IndexSpace& space, PadOp op, mlir::AffineMap at);

// The tensor operand that a linalg op's body argument stands for, and where it is read.
Node bodyArgument(IndexSpace& space, mlir::BlockArgument argument, mlir::AffineMap at);

// Calls `use` for each node that `node` directly needs. Reductions, products, fills and inputs are leaves: the caller
// knows them. Returns false for an op that has no evaluation (the caller reports it).
bool forEachOperand(IndexSpace& space, Node node, llvm::function_ref<void(Node)> use);

}  // namespace zefuse
