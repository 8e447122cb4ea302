#include "lowering/schedule/products/attention_emitter.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;

namespace zefuse {

AttentionEmitter::AttentionEmitter(OpBuilder& builder, int64_t rows, int64_t lanes, const MatrixOperation* engine,
                                   double scale, bool causal, Extent queries, Extent keys)
    : b_(builder), loc_(b_.getUnknownLoc()), i_{b_, loc_}, rows_(rows), lanes_(lanes), engine_(engine),
      f32_(b_.getF32Type()), local_(engine ? Type(b_.getI16Type()) : f32_), queries_(queries), keys_(keys),
      scale_(scale), causal_(causal) {}

Value AttentionEmitter::scalar(double value) const {
  return constantOfType(b_, loc_, b_.getF32FloatAttr(float(value)), 1);
}

Value AttentionEmitter::real(double value) const {
  return constantOfType(b_, loc_, b_.getF32FloatAttr(float(value)), unsigned(rows_));
}

Value AttentionEmitter::element(Value block, int64_t row) {
  return rows_ == 1 ? block : vector::ExtractOp::create(b_, loc_, block, row).getResult();
}

Value AttentionEmitter::joined(ArrayRef<Value> rows) {
  if (rows_ == 1)
    return rows[0];
  return vector::FromElementsOp::create(b_, loc_, VectorType::get({rows_}, f32_), rows);
}

Value AttentionEmitter::exponential(Value x, Value base) {
  return math::ExpOp::create(b_, loc_, arith::SubFOp::create(b_, loc_, x, base));
}

SmallVector<Value> AttentionEmitter::multiply(WorkGroup& group, int64_t count, const Side& rows, const Side& columns,
                                              SmallVector<Value> totals) {
  int64_t unrolled = engine_ ? engine_depth : count % 4 == 0 ? 4 : 1;
  auto loop = scf::ForOp::create(b_, loc_, i_.number(0), i_.number(count), i_.number(unrolled), totals);
  OpBuilder::InsertionGuard guard(b_);
  b_.setInsertionPointToStart(loop.getBody());
  totals = SmallVector<Value>(loop.getRegionIterArgs());
  Value lane = i_.add(columns.first, group.lane());
  for (int64_t ahead = 0; ahead < unrolled; ahead += engine_ ? unrolled : 1) {
    Value k = i_.add(loop.getInductionVar(), ahead);
    auto at = [&](Value array, Value place, int64_t lanes) -> Value {
      return LLVM::LoadOp::create(b_, loc_, withLanes(f32_, unsigned(lanes)), group.at(array, f32_, place), 4);
    };
    Value a = engine_ ? engineRows(b_, group, rows.array, rows.neighbour, rows_, rows.first, k)
                      : at(rows.array, i_.add(i_.multiply(k, rows.step), rows.first), rows_);
    for (auto [block, total] : llvm::enumerate(totals)) {
      Value column = i_.add(lane, int64_t(block) * lanes_);
      if (engine_) {
        Value b = engineColumn(b_, group, columns.array, columns.neighbour, column, k);
        total = group.multiplyMatrices(*engine_, a, b, total);
      } else {
        Value place = i_.add(i_.multiply(k, columns.step), i_.multiply(column, columns.neighbour));
        total = math::FmaOp::create(b_, loc_, a, splat(b_, at(columns.array, place, 1), unsigned(rows_)), total);
      }
    }
  }
  scf::YieldOp::create(b_, loc_, totals);
  return SmallVector<Value>(loop.getResults());
}

void AttentionEmitter::storeRows(WorkGroup& group, Value block, const Side& rows, Value column, Type type) {
  Value start = i_.add(i_.multiply(rows.first, rows.neighbour), i_.multiply(column, rows.step));
  if (!engine_) {
    LLVM::StoreOp::create(b_, loc_, block, group.at(rows.array, f32_, start), 4);
    return;
  }
  for (int64_t r = 0; r < rows_; ++r) {
    Value bits = narrowFromF32(b_, loc_, element(block, r), type);
    LLVM::StoreOp::create(b_, loc_, bits, group.at(rows.array, local_, i_.add(start, r * rows.neighbour)), 2);
  }
}

Value AttentionEmitter::score(Value product, Value query, Value key, Value exists) {
  Value score = arith::MulFOp::create(b_, loc_, product, scalar(scale_));
  Value seen = exists;
  if (causal_)
    seen = i_.both(seen, i_.less(key, i_.add(query, 1)));
  if (mask_) {
    Value mask = mask_(i_.smaller(query, i_.subtract(queries_.value, i_.number(1))),
                       i_.smaller(key, i_.subtract(keys_.value, i_.number(1))));
    if (mask.getType().isInteger(1))
      seen = i_.both(seen, mask);
    else
      score = arith::AddFOp::create(b_, loc_, score, mask);
  }
  return arith::SelectOp::create(b_, loc_, seen, score, scalar(-INFINITY));
}

}  // namespace zefuse
