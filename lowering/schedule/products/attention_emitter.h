// What the GPU kernels of attention and of its derivatives share: products of tiles in local memory, by sub-groups that
// have a few rows each, and the scores between them.
#pragma once

#include "lowering/schedule/products/gpu_product.h"

namespace zefuse {

class AttentionEmitter {
protected:
  // `rows` (1, 2, 4 or 8) of a sub-group of `lanes`. engine: multiply with it, in the operands' type; null: in f32.
  AttentionEmitter(mlir::OpBuilder& builder, int64_t rows, int64_t lanes, const MatrixOperation* engine, double scale,
                   bool causal, Extent queries, Extent keys);

  // A block: one column of a work-item, its sub-group's rows in a vector (a scalar for one row).
  mlir::Value scalar(double value) const;
  mlir::Value real(double value) const;  // a block of it
  mlir::Value element(mlir::Value block, int64_t row);
  mlir::Value joined(llvm::ArrayRef<mlir::Value> rows);
  mlir::Value exponential(mlir::Value x, mlir::Value base);  // of x - base

  // A side of a product in local memory: index i, step k of what is summed over, at (first + i) * neighbour + k * step.
  // On the engine step is 1; else the rows' neighbour is.
  struct Side {
    mlir::Value array, first;
    int64_t neighbour, step;
  };
  // totals[block] += this sub-group's rows * its columns: lane and block * lanes after columns.first.
  llvm::SmallVector<mlir::Value> multiply(WorkGroup& group, int64_t count, const Side& rows, const Side& columns,
                                          llvm::SmallVector<mlir::Value> totals);
  // Writes a block where the rows of a product are, its column at `column` of what is summed over; rounded to `type` on
  // the engine, as the products of the decomposition have it.
  void storeRows(WorkGroup& group, mlir::Value block, const Side& rows, mlir::Value column, mlir::Type type);

  // Of a query and a key: scaled and masked; -inf where `exists` does not hold or the query does not see the key.
  mlir::Value score(mlir::Value product, mlir::Value query, mlir::Value key, mlir::Value exists);

  mlir::OpBuilder& b_;
  mlir::Location loc_;
  IndexMath i_;
  const int64_t rows_, lanes_;
  const MatrixOperation* const engine_;
  mlir::Type f32_, local_;  // the latter: what local memory holds
  const Extent queries_, keys_;
  // The mask's element at a query and a key, which exist: i1, kept where true, or f32, added. Set by who has one.
  std::function<mlir::Value(mlir::Value query, mlir::Value key)> mask_;

private:
  const double scale_;
  const bool causal_;
};

}  // namespace zefuse
