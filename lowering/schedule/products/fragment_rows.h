// What the kernels of attention on a matrix engine of fragments (MatrixForm::fragments) share: a sub-group has squares
// of 16 query rows, a lane two rows of each (g and g + 8) in neighbouring columns, so four lanes share a row. The
// scores' fragments are the second product's operand as they are.
#pragma once

#include "lowering/schedule/products/attention_emitter.h"
#include "lowering/schedule/products/product_nodes.h"

namespace zefuse {

class FragmentRows : protected AttentionEmitter {
protected:
  FragmentRows(const ScheduleContext& context, AttentionOp op, const MatrixOperation* engine);

  // The launch's groups, of `rows` query rows each, and the schedule's record.
  void describeLaunch(const choice::Attention& chosen);
  // Binds this group's batch and sets what its lanes have; `mine`: the first row of the sub-group's, of the group's.
  // Returns the group's first row.
  // `tile`: which of the launch's tiles of rows; null: the group's.
  mlir::Value beginRows(WorkGroup& group, int64_t rows, mlir::Value mine, int64_t squares, mlir::Value tile = {});
  // The part of it that binds the batch; returns the tile's first row.
  mlir::Value bindTile(int64_t rows, mlir::Value tile);

  static Extent extentOf(const ScheduleContext& context, mlir::AffineExpr size);
  ProductSource source(unsigned operand);
  mlir::Value times(mlir::Value x, mlir::Value y) { return mlir::arith::MulFOp::create(b_, loc_, x, y); }
  mlir::Value plus(mlir::Value x, mlir::Value y) { return mlir::arith::AddFOp::create(b_, loc_, x, y); }
  mlir::Value larger(mlir::Value x, mlir::Value y) { return mlir::arith::MaxNumFOp::create(b_, loc_, x, y); }
  mlir::Value part(mlir::Value vector, int64_t number);

  // The keys of `count` from first_key on that a row sees, less the lane's first column: i32.
  mlir::Value limitOf(size_t row, mlir::Value first_key, int64_t count);
  // What a row sees of a product, as the softmax takes it; else -inf. `limit`: as limitOf has it; null: it sees all.
  mlir::Value seen(mlir::Value product, size_t row, int64_t column, mlir::Value first_key, mlir::Value limit);
  // A row that has seen no key yet: 2^(-inf - -inf) would be NaN.
  mlir::Value finite(mlir::Value base);
  mlir::Value power(mlir::Value x, mlir::Value less);  // 2^(factor * x + less)
  // By how much a maximum is above a row's base, in powers of two, is more than probabilities are let grow.
  mlir::Value isFarAbove(mlir::Value top, mlir::Value base);
  mlir::Value maximumOfRow(mlir::Value top);  // of the four lanes' maxima
  // Two blocks' numbers (of a square's two rows two neighbours, block by block) as fragments of 16 rows by 16 keys:
  // 4 integers.
  mlir::Value fragmentsOf(llvm::ArrayRef<mlir::Value> numbers);

  // Stores the results. Of each row its base and the lane's sum; `totals`: of each square its blocks of 4 numbers.
  void finish(mlir::ValueRange bases, mlir::ValueRange sums, mlir::ValueRange totals);

  const ScheduleContext& c_;
  AttentionOp op_;
  ProductNodes nodes_;
  const unsigned rank_;
  const Extent all_depth_, all_columns_;
  bool scale_first_ = false;
  double scale_ = 1, factor_ = 1;
  WorkGroup* group_ = nullptr;
  mlir::Value end_;                              // of the keys that some row of the group sees
  mlir::Value pair_;                             // the first of the lane's columns in a block
  llvm::SmallVector<mlir::Value> rows_of_lane_;  // of the queries
};

}  // namespace zefuse
