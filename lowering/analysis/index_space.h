// The dimensions of a kernel's iteration space, and index expressions over them.
//
// Indices are AffineExprs over: dims (one per loop variable of the schedule), the graph's symbols, and opaque symbols
// (integers that the kernel itself computes, such as a gather's index). A list of indices is kept as an AffineMap,
// which MLIRContext makes unique, so that (value, indices) is a cheap key.
#pragma once

#include <optional>

#include "lowering/analysis/dims.h"
#include "mlir/IR/AffineMap.h"
#include "mlir/IR/Value.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/SmallVector.h"

namespace zefuse {

// sum of coefficient * atom, plus a constant. Atoms: a dim, an opaque symbol, or a floordiv/mod of such. Coefficients
// and the constant hold graph symbols only.
struct LinearForm {
  struct Term {
    mlir::AffineExpr atom, coefficient;
  };
  llvm::SmallVector<Term> terms;
  mlir::AffineExpr constant;
};

class IndexSpace {
public:
  static constexpr unsigned max_dims = Dims::most;
  static constexpr unsigned max_opaques = 4096;

  IndexSpace(mlir::MLIRContext* context, unsigned graph_symbols) : context_(context), graph_symbols_(graph_symbols) {}

  mlir::MLIRContext* context() const { return context_; }
  unsigned graphSymbols() const { return graph_symbols_; }

  // Of more than max_dims dims the last stands for all the others, so that every number is valid: whoever builds on the
  // space asks tooManyDims() before it uses what was built.
  unsigned addDim(mlir::AffineExpr size);
  bool tooManyDims() const { return too_many_dims_; }
  void resize(unsigned dim, mlir::AffineExpr size) {  // what was simplified before stays
    sizes_[dim] = size;
    simplified_.clear();
  }
  unsigned numDims() const { return sizes_.size(); }
  mlir::AffineExpr size(unsigned dim) const { return sizes_[dim]; }
  mlir::AffineExpr product(llvm::ArrayRef<unsigned> dims) const;  // of their sizes, simplified
  mlir::AffineExpr dim(unsigned dim) const { return mlir::getAffineDimExpr(dim, context_); }
  mlir::AffineExpr constant(int64_t value) const { return mlir::getAffineConstantExpr(value, context_); }

  // The symbol that stands for the integer `value` (of a linalg body) in the iteration `at`. `dims`: those it really
  // depends on (a gather's index often needs fewer than the iteration has).
  mlir::AffineExpr opaque(mlir::Value value, mlir::AffineMap at, Dims dims);
  struct Opaque {
    mlir::Value value;
    mlir::AffineMap at;
    Dims dims;
  };
  unsigned numOpaques() const { return opaques_.size(); }
  bool isOpaque(mlir::AffineExpr expr) const;
  const Opaque& opaqueOf(mlir::AffineExpr expr) const;

  mlir::AffineExpr simplify(mlir::AffineExpr expr) const;                 // each expression once
  mlir::AffineMap indices(llvm::ArrayRef<mlir::AffineExpr> exprs) const;  // simplified, unique
  mlir::AffineMap substitute(mlir::AffineMap at, unsigned dim, mlir::AffineExpr with) const;

  // map(at): composition, simplified. `map` is over its own dims and the graph's symbols.
  mlir::AffineMap apply(mlir::AffineMap map, mlir::AffineMap at) const;

  LinearForm linear(mlir::AffineExpr expr) const;
  // expr(dim + 1) - expr(dim) where that is a constant over the dims, i.e. the stride along `dim`; null when it is not.
  mlir::AffineExpr strideAlong(mlir::AffineExpr expr, unsigned dim) const;

  // The dims that an expression depends on, also through opaque symbols.
  Dims dimsOf(mlir::AffineExpr expr) const;
  Dims dimsOf(mlir::AffineMap at) const;

private:
  mlir::AffineExpr simplifiedAnew(mlir::AffineExpr expr) const;

  mlir::MLIRContext* context_;
  unsigned graph_symbols_;
  llvm::SmallVector<mlir::AffineExpr> sizes_;
  bool too_many_dims_ = false;
  mutable llvm::DenseMap<mlir::AffineExpr, mlir::AffineExpr> simplified_;  // depends on the sizes of its own dims alone
  llvm::SmallVector<Opaque> opaques_;
  llvm::DenseMap<std::pair<mlir::Value, mlir::AffineMap>, unsigned> opaque_numbers_;
};

std::optional<int64_t> constantOf(mlir::AffineExpr expr);
bool neverNegative(mlir::AffineExpr expr);  // for certain: made of sums and products without a minus
bool hasDivisions(mlir::AffineExpr expr);   // floordiv, ceildiv or mod of something that holds a dim

}  // namespace zefuse
