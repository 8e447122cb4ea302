#include "lowering/schedule/products/fragment_rows.h"

#include <numbers>

#include "lowering/dialect/shape.h"
#include "lowering/schedule/products/fragment_side.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;

namespace zefuse {
namespace {

// A row's base may stay below its maximum by this, in powers of two, so that what was summed is seldom scaled anew:
// probabilities are up to 2^8, which all types hold, and as exact as others.
constexpr double most_above = 8;

Type elementOfTensor(Value tensor) { return cast<RankedTensorType>(tensor.getType()).getElementType(); }

}  // namespace

FragmentRows::FragmentRows(const ScheduleContext& context, AttentionOp op, const MatrixOperation* engine)
    : AttentionEmitter{context.builder(),
                       /*rows=*/1,
                       context.target.matrix.lanes,
                       engine,
                       op.getScale()->convertToFloat(),
                       op.getCausal(),
                       extentOf(context, shapeOf(op.getQuery().getType()).end()[-2]),
                       extentOf(context, shapeOf(op.getKey().getType()).end()[-2])},
      c_(context), op_(op), nodes_(context), rank_(unsigned(op.getQuery().getType().getRank())),
      all_depth_(extentOf(context, shapeOf(op.getQuery().getType()).back())),
      all_columns_(extentOf(context, shapeOf(op.getValue().getType()).back())) {
  const double scale = op.getScale()->convertToFloat();
  // exp(scale * (x - top)) = 2^(factor * (x - top)): one multiplication and addition. An addend is not scaled.
  scale_first_ = scale <= 0 || (op.getMask() && !elementOfTensor(op.getMask()).isInteger(1));
  scale_ = scale;
  factor_ = (scale_first_ ? 1 : scale) * std::numbers::log2e;
}

void FragmentRows::describeLaunch(const choice::Attention& chosen) {
  const SmallVector<AffineExpr> q = shapeOf(op_.getQuery().getType());
  AffineExpr batches = getAffineConstantExpr(1, b_.getContext()), tiles = q[rank_ - 2].ceilDiv(chosen.rows);
  for (AffineExpr size : ArrayRef(q).drop_back(2))
    batches = batches * size;
  c_.launch.extent = batches * tiles;
  c_.launch.grain = 1;
  c_.launch.schedule.add(chosen);
}

Value FragmentRows::bindTile(int64_t rows, Value tile) {
  Value tile_count = nodes_.expression(shapeOf(op_.getQuery().getType())[rank_ - 2].ceilDiv(rows));
  Value number = i_.modulo(tile, tile_count);
  if (op_.getCausal())  // those that see most keys first
    number = i_.subtract(i_.subtract(tile_count, i_.number(1)), number);
  nodes_.bindBatch(i_.divide(tile, tile_count));
  c_.evaluator.toInnermost();
  return i_.multiply(number, rows);
}

Value FragmentRows::beginRows(WorkGroup& group, int64_t rows, Value mine, int64_t squares, Value tile) {
  group_ = &group;
  Value first_row = bindTile(rows, tile ? tile : group.group());
  pair_ = i_.multiply(i_.modulo(group.lane(), 4), 2);
  rows_of_lane_.clear();
  for (int64_t half = 0; half < 2 * squares; ++half)
    rows_of_lane_.push_back(i_.add(i_.add(i_.add(first_row, mine), i_.divide(group.lane(), 4)), half * 8));
  end_ = keys_.value;
  if (op_.getCausal())
    end_ = i_.smaller(end_, i_.add(first_row, rows));
  return first_row;
}

Extent FragmentRows::extentOf(const ScheduleContext& context, AffineExpr size) {
  Extent extent{context.evaluator.index(size), constantOf(size)};
  context.evaluator.toInnermost();
  return extent;
}

ProductSource FragmentRows::source(unsigned operand) {
  // A tile's rows need not be a multiple of an access.
  return nodes_.matrixSource(operand, /*runs_of_rows=*/false, [](Value value) { return value; });
}

Value FragmentRows::part(Value vector, int64_t number) { return vector::ExtractOp::create(b_, loc_, vector, number); }

Value FragmentRows::limitOf(size_t row, Value first_key, int64_t count) {
  Value limit = op_.getCausal() ? i_.smaller(keys_.value, i_.add(rows_of_lane_[row], 1)) : keys_.value;
  limit = i_.subtract(limit, i_.add(first_key, pair_));
  limit = i_.smaller(i_.larger(limit, i_.number(0)), i_.number(count));
  return arith::IndexCastOp::create(b_, loc_, b_.getI32Type(), limit);
}

Value FragmentRows::seen(Value product, size_t row, int64_t column, Value first_key, Value limit) {
  Value number = arith::ConstantOp::create(b_, loc_, b_.getI32IntegerAttr(int32_t(column))), exists;
  if (limit)
    exists = arith::CmpIOp::create(b_, loc_, arith::CmpIPredicate::slt, number, limit);
  if (scale_first_)
    product = times(product, scalar(scale_));
  if (op_.getMask()) {
    Value key = i_.add(i_.add(first_key, pair_), column);
    const unsigned rank = unsigned(op_.getMask().getType().getRank());
    SmallVector<std::pair<unsigned, Value>> place{{rank - 1, i_.smaller(key, i_.subtract(keys_.value, i_.number(1)))}};
    if (rank > 1)
      place.emplace_back(rank - 2, i_.smaller(rows_of_lane_[row], i_.subtract(queries_.value, i_.number(1))));
    Value mask = nodes_.load(3, place, {rank - 1, 1});
    const Type element = elementOfTensor(op_.getMask());
    if (element.isInteger(1))
      exists = i_.both(exists, mask);
    else
      product = plus(product, element.isF32() ? mask : widenToF32(b_, loc_, mask, element));
  }
  return exists ? arith::SelectOp::create(b_, loc_, exists, product, scalar(-INFINITY)).getResult() : product;
}

Value FragmentRows::finite(Value base) {
  Value none = arith::CmpFOp::create(b_, loc_, arith::CmpFPredicate::OEQ, base, scalar(-INFINITY));
  return arith::SelectOp::create(b_, loc_, none, scalar(0), base);
}

Value FragmentRows::power(Value x, Value less) {
  return group_->nativeExp2(math::FmaOp::create(b_, loc_, x, scalar(factor_), less));
}

Value FragmentRows::isFarAbove(Value top, Value base) {
  Value above = times(arith::SubFOp::create(b_, loc_, top, base), scalar(factor_));
  return arith::CmpFOp::create(b_, loc_, arith::CmpFPredicate::OGT, above, scalar(most_above));
}

Value FragmentRows::maximumOfRow(Value top) {
  for (int64_t mask : {1, 2})
    top = larger(top, group_->exchanged(top, mask));
  return top;
}

Value FragmentRows::fragmentsOf(ArrayRef<Value> numbers) {
  Value vector = vector::FromElementsOp::create(b_, loc_, VectorType::get({8}, f32_), numbers);
  Value bits = narrowFromF32(b_, loc_, vector, elementOfTensor(op_.getValue()));
  return vector::BitCastOp::create(b_, loc_, VectorType::get({4}, b_.getI32Type()), bits);
}

void FragmentRows::finish(ValueRange bases, ValueRange sums, ValueRange totals) {
  const unsigned lanes =
      all_columns_.constant && *all_columns_.constant % 2 == 0 ? unsigned(nodes_.lanesOfResult(rank_ - 1, 2)) : 1;
  const size_t blocks = totals.size() / (rows_of_lane_.size() / 2);
  for (size_t each = 0; each < rows_of_lane_.size(); ++each) {
    const int64_t half = int64_t(each % 2);
    Value sum = sums[each], log_sum;
    for (int64_t mask : {1, 2})
      sum = plus(sum, group_->exchanged(sum, mask));
    Value row = rows_of_lane_[each], exists = i_.less(row, queries_.value);
    if (nodes_.isRead(1)) {
      Value top = scale_first_ ? bases[each] : times(bases[each], scalar(scale_));
      log_sum = plus(math::LogOp::create(b_, loc_, sum), top);
      nodes_.open(i_.both(i_.equal(pair_, i_.number(0)), exists));
      nodes_.bindResult(rank_ - 2, row);
      c_.evaluator.toInnermost();
      nodes_.storeRow(log_sum);
      nodes_.close();
    }
    if (!nodes_.isRead(0))
      continue;
    // A row that sees no key is zeros: 0 / 1 instead of 0 / 0.
    Value none = arith::CmpFOp::create(b_, loc_, arith::CmpFPredicate::OEQ, sum, scalar(0));
    Value divisor = arith::SelectOp::create(b_, loc_, none, scalar(1), sum);
    Value share = arith::DivFOp::create(b_, loc_, scalar(1), divisor);
    nodes_.open(exists);
    nodes_.bindResult(rank_ - 2, row);
    for (int64_t block = 0; block < int64_t(blocks); ++block)
      for (int64_t one = 0; one < 2; one += lanes) {
        c_.evaluator.toInnermost();
        Value column = i_.add(pair_, block * 8 + one), total = totals[each / 2 * blocks + size_t(block)];
        nodes_.open(i_.less(column, all_columns_.value));
        nodes_.bindResult(rank_ - 1, column, lanes);
        c_.evaluator.toInnermost();
        Value value = lanes == 2 ? pairOf(b_, total, half * 2) : part(total, half * 2 + one);
        value = times(value, splat(b_, share, lanes));
        if (Type type = elementOfTensor(op_.getResult()); !type.isF32())
          value = narrowFromF32(b_, loc_, value, type);
        nodes_.store(value, log_sum);
        nodes_.close();
      }
    nodes_.close();
  }
}

}  // namespace zefuse
