// The nodes around a product in a kernel, emitted at indices that its schedule has: what its operands are computed from
// and what its result becomes (analysis/product_form.h).
#pragma once

#include "lowering/schedule/core/context.h"
#include "lowering/schedule/products/gpu_product.h"

namespace zefuse {

class ProductNodes {
public:
  // Scopes and insertion points: the builder stands where the schedule emits, in a block that the evaluator has not
  // entered (a loop of the schedule's own) or in its innermost one.
  explicit ProductNodes(const ScheduleContext& context);

  // Binds what makes one index of the result, or of an operand, in the evaluator's innermost scope.
  // `lanes` neighbours: no more than lanesOfResult(dimension) allows. `aligned`: the index is a multiple of them.
  void bindResult(unsigned dimension, mlir::Value index, int64_t lanes = 1, bool aligned = true);
  void bindOperand(unsigned operand, unsigned dimension, mlir::Value index);
  // Of matrices, the last two dimensions: the batch, counted row by row, makes the other dimensions of the result and
  // of the operands. Those of an operand may be fewer, its last ones are the result's last; what neighbours in the
  // result share counts once.
  void bindBatch(mlir::Value batch);
  // Its value where the schedule emits.
  mlir::Value expression(mlir::AffineExpr expr) const;

  // How an operand is best walked: the dimension (of `first` and `second`) whose neighbours are neighbours in memory in
  // most of what is read, and how many elements one access takes, which divides what its index is a multiple of.
  struct Access {
    unsigned dimension;
    int64_t run;
    bool aligned = true;  // the index is a multiple of it
  };
  Access accessOf(unsigned operand, unsigned first, unsigned second) const;
  // What is read with neighbours along one dimension of the operand: its bytes per element, and the run of an access.
  struct Neighbours {
    int64_t bytes, run;
  };
  Neighbours neighboursAlong(unsigned operand, unsigned dimension) const;
  // Whether neighbours along this dimension of the result are neighbours in memory of what the kernel writes.
  bool storesAlong(unsigned dimension) const;
  // The largest power of two up to `most` whose runs along an index of the result, or of an operand, lie in one dim of
  // the domain: any run, where that has one dim; else aligned ones.
  int64_t lanesOfResult(unsigned dimension, int64_t most) const;
  int64_t lanesOfOperand(unsigned operand, unsigned dimension, int64_t most) const;
  // The operand's elements at these indices (pairs of dimension and index; the others are bound), `access.run`
  // neighbours along access.dimension, in registers. Indices are inside, that of a run a multiple of it.
  mlir::Value load(unsigned operand, llvm::ArrayRef<std::pair<unsigned, mlir::Value>> indices, Access access) const;
  // Where these neighbours (with a run of 1 the element) lie, as Evaluator::addressOf has it; null: they are computed,
  // or lie otherwise.
  mlir::Value address(unsigned operand, llvm::ArrayRef<std::pair<unsigned, mlir::Value>> indices, Access access) const;
  // An operand whose last two dimensions are a tile's rows and columns, loaded along the better one of them; where that
  // is the rows, in runs only with `runs_of_rows`. `taken`: what local memory holds of registers.
  ProductSource matrixSource(unsigned operand, bool runs_of_rows, std::function<mlir::Value(mlir::Value)> taken) const;

  // A scope for what depends on some indices of the result, opened where the builder stands: under a condition, or none
  // when it is null. Loads that do not depend on what is bound in it move out.
  void open(mlir::Value condition);
  void close();
  // Whether the kernel's outputs read this result of the product.
  bool isRead(unsigned result) const { return result < form_.at.size() && form_.at[result]; }
  // Where all of the result's indices are bound: `element`, as the product's result has it in registers, becomes the
  // kernel's outputs, but those of storeRow. `of_row`: the second result's, null where it is not read.
  void store(mlir::Value element, mlir::Value of_row = nullptr) const;
  // Where the indices of the result's rows are: the second result's becomes the outputs that want nothing of the first.
  void storeRow(mlir::Value of_row) const;
  // The product's bias there, in registers; null: it has none.
  mlir::Value bias() const;

private:
  void storeOutputs(bool of_rows) const;
  void bind(llvm::ArrayRef<unsigned> dims, mlir::Value index, int64_t lanes, bool aligned = true) const;
  int64_t lanesOf(llvm::ArrayRef<unsigned> dims, int64_t most) const;

  const ScheduleContext& c_;
  ProductForm& form_;
  mlir::OpBuilder& b_;
  llvm::SmallVector<llvm::SmallVector<unsigned>> result_dims_;
  llvm::SmallVector<llvm::SmallVector<llvm::SmallVector<unsigned>>> operand_dims_;
  llvm::SmallVector<mlir::OpBuilder::InsertPoint> opened_;
};

}  // namespace zefuse
