// Attention as in gpu_attention.cpp, where lanes hold fragments: a sub-group has 16 query rows, a lane two of them (g
// and g + 8) in neighbouring columns. So four lanes share a row, the scores' fragments are the second product's operand
// as they are, and nothing but keys and values goes through local memory, where the next step's copies are under way
// while one is computed.
#include "lowering/schedule/products/fragment_attention.h"

#include <numbers>

#include "lowering/dialect/shape.h"
#include "lowering/schedule/products/attention_emitter.h"
#include "lowering/schedule/products/fragment_side.h"
#include "lowering/schedule/products/product_nodes.h"
#include "lowering/schedule/products/product_splits.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;

namespace zefuse {
namespace {

constexpr int64_t square = 16;  // rows of a sub-group; what one load gives of an operand
constexpr int64_t stages = 2;   // of keys and values in local memory

Type typeOf(Value tensor) { return cast<RankedTensorType>(tensor.getType()).getElementType(); }

// The larger of the forms that an operand may have in local memory.
int64_t bytesOfSide(int64_t across, int64_t depth) {
  return 2 * std::max(across * (depth + engine_pad), depth * (across + engine_pad));
}

class FragmentAttention : AttentionEmitter {
public:
  FragmentAttention(const ScheduleContext& context, AttentionOp op, const FragmentAttentionTile& tile)
      : AttentionEmitter{context.builder(),
                         /*rows=*/1,
                         context.target.matrix.lanes,
                         tile.engine,
                         op.getScale()->convertToFloat(),
                         op.getCausal(),
                         extentOf(context, shapeOf(op.getQuery().getType()).end()[-2]),
                         extentOf(context, shapeOf(op.getKey().getType()).end()[-2])},
        c_(context), op_(op), nodes_(context), rank_(unsigned(op.getQuery().getType().getRank())), tile_(tile),
        all_depth_(extentOf(context, shapeOf(op.getQuery().getType()).back())),
        all_columns_(extentOf(context, shapeOf(op.getValue().getType()).back())),
        sources_{source(0), source(1), source(2)},
        query_{sources_[0], /*of_a=*/true, /*across_is_rows=*/true, tile.rows(), tile.depth},
        key_{sources_[1], /*of_a=*/false, /*across_is_rows=*/true, tile.keys, tile.depth},
        value_{sources_[2], /*of_a=*/false, /*across_is_rows=*/false, tile.columns, tile.keys} {
    const double scale = op.getScale()->convertToFloat();
    // exp(scale * (x - top)) = 2^(factor * (x - top)): one multiplication and addition. An addend is not scaled.
    scale_first_ = scale <= 0 || (op.getMask() && !typeOf(op.getMask()).isInteger(1));
    scale_ = scale;
    factor_ = (scale_first_ ? 1 : scale) * std::numbers::log2e;
  }

  void run() {
    const SmallVector<AffineExpr> q = shapeOf(op_.getQuery().getType());
    AffineExpr batches = getAffineConstantExpr(1, b_.getContext()), tiles = q[rank_ - 2].ceilDiv(tile_.rows());
    for (AffineExpr size : ArrayRef(q).drop_back(2))
      batches = batches * size;
    LoweredKernel& launch = c_.launch;
    launch.extent = batches * tiles;
    launch.grain = 1;
    launch.schedule.add(choice::Attention{tile_.rows(), tile_.subgroups, tile_.keys, true});
    WorkGroup group(b_, c_.function, launch, tile_.subgroups * lanes_, lanes_);
    group_ = &group;

    Value tile_count = nodes_.expression(tiles), number = i_.modulo(group.group(), tile_count);
    if (op_.getCausal())  // those that see most keys first
      number = i_.subtract(i_.subtract(tile_count, i_.number(1)), number);
    Value first_row = i_.multiply(number, tile_.rows());
    nodes_.bindBatch(i_.divide(group.group(), tile_count));
    c_.evaluator.toInnermost();

    stage_ = key_.elements() + value_.elements();
    array_ = group.localArray(b_.getI16Type(), query_.elements() + stages * stage_);
    Value mine = i_.multiply(group.subgroupIndex(), square);
    Value query_place = query_.lanesPlace(b_, group, mine);
    key_place_ = key_.lanesPlace(b_, group, i_.number(0));
    value_place_ = i_.add(value_.lanesPlace(b_, group, i_.number(0)), key_.elements());
    pair_ = i_.multiply(i_.modulo(group.lane(), 4), 2);
    for (int64_t half = 0; half < 2; ++half)
      rows_of_lane_.push_back(i_.add(i_.add(i_.add(first_row, mine), i_.divide(group.lane(), 4)), half * 8));
    end_ = keys_.value;
    if (op_.getCausal())
      end_ = i_.smaller(end_, i_.add(first_row, tile_.rows()));

    query_.copy(b_, group, array_, queries_, first_row, all_depth_, i_.number(0));
    copyStep(i_.number(0), i_.number(0));
    group.waitForCopies(0);
    group.barrier();
    SmallVector<Value> kept;
    auto queries = [&](int64_t k) { return query_.load(b_, group, array_, query_place, 0, k); };
    for (int64_t k = 0; tile_.keep_queries && k < tile_.depth; k += engine_depth)
      kept.push_back(queries(k));

    // Carried: per row the maximum so far and this lane's part of the sum; the result's blocks; the stage.
    SmallVector<Value> carried{scalar(-INFINITY), scalar(-INFINITY), scalar(0), scalar(0)};
    carried.append(tile_.columns / 8, zeros());
    carried.push_back(i_.number(0));
    auto loop = scf::ForOp::create(b_, loc_, i_.number(0), end_, i_.number(tile_.keys), carried);
    {
      OpBuilder::InsertionGuard guard(b_);
      b_.setInsertionPointToStart(loop.getBody());
      SmallVector<Value> now(loop.getRegionIterArgs());
      Value stage = now.pop_back_val(), other = i_.subtract(i_.number(1), stage);
      copyStep(other, i_.add(loop.getInductionVar(), tile_.keys));
      Value start = i_.add(i_.multiply(stage, stage_), query_.elements());
      SmallVector<Value> scores(tile_.keys / 8, zeros());
      for (int64_t k = 0; k < tile_.depth; k += engine_depth) {
        Value rows = tile_.keep_queries ? kept[k / engine_depth] : queries(k);
        multiply(key_, i_.add(key_place_, start), k, rows, scores);
      }
      step(loop.getInductionVar(), start, scores, now);
      group.waitForCopies(0);
      group.barrier();  // the next step is there for all, and nobody reads this one's any more
      now.push_back(other);
      scf::YieldOp::create(b_, loc_, now);
    }
    finish(loop.getResults());
  }

private:
  static Extent extentOf(const ScheduleContext& context, AffineExpr size) {
    Extent extent{context.evaluator.index(size), constantOf(size)};
    context.evaluator.toInnermost();
    return extent;
  }

  ProductSource source(unsigned operand) {
    // A tile's rows need not be a multiple of an access.
    return nodes_.matrixSource(operand, /*runs_of_rows=*/false, [](Value value) { return value; });
  }

  Value zeros() {
    auto vector = VectorType::get({4}, f32_);
    return arith::ConstantOp::create(b_, loc_, vector, cast<TypedAttr>(b_.getZeroAttr(vector)));
  }
  Value at(Value place) { return group_->at(array_, b_.getI16Type(), place); }
  Value times(Value x, Value y) { return arith::MulFOp::create(b_, loc_, x, y); }
  Value plus(Value x, Value y) { return arith::AddFOp::create(b_, loc_, x, y); }
  Value larger(Value x, Value y) { return arith::MaxNumFOp::create(b_, loc_, x, y); }
  Value part(Value vector, int64_t number) { return vector::ExtractOp::create(b_, loc_, vector, number); }

  // Keys and values from `key` on, if there are any.
  void copyStep(Value stage, Value key) {
    {
      OpBuilder::InsertionGuard guard(b_);
      auto branch = scf::IfOp::create(b_, loc_, i_.less(key, end_), /*withElseRegion=*/false);
      b_.setInsertionPointToStart(branch.thenBlock());
      Value start = i_.add(i_.multiply(stage, stage_), query_.elements());
      key_.copy(b_, *group_, at(start), keys_, key, all_depth_, i_.number(0));
      value_.copy(b_, *group_, at(i_.add(start, key_.elements())), all_columns_, i_.number(0), keys_, key);
    }
    group_->commitCopies();
  }

  // totals += rows * side, at one k of 16.
  void multiply(const FragmentSide& side, Value place, int64_t k, Value rows, SmallVector<Value>& totals) {
    for (size_t block = 0; block < totals.size(); block += 2) {
      Value both = side.load(b_, *group_, array_, place, int64_t(block) * 8, k);
      for (int64_t one = 0; one < 2; ++one)
        totals[block + size_t(one)] =
            group_->multiplyFragments(*engine_, rows, pairOf(b_, both, one * 2), totals[block + size_t(one)]);
    }
  }

  // What is seen of a product, as the softmax takes it; else -inf. `limits`: keys of this step that a row sees, less
  // the lane's first column.
  Value seen(Value product, int64_t half, int64_t column, Value first_key, ArrayRef<Value> limits) {
    Value number = arith::ConstantOp::create(b_, loc_, b_.getI32IntegerAttr(int32_t(column)));
    Value exists = arith::CmpIOp::create(b_, loc_, arith::CmpIPredicate::slt, number, limits[half]);
    if (scale_first_)
      product = times(product, scalar(scale_));
    if (op_.getMask()) {
      Value key = i_.add(i_.add(first_key, pair_), column);
      const unsigned rank = unsigned(op_.getMask().getType().getRank());
      SmallVector<std::pair<unsigned, Value>> place{
          {rank - 1, i_.smaller(key, i_.subtract(keys_.value, i_.number(1)))}};
      if (rank > 1)
        place.emplace_back(rank - 2, i_.smaller(rows_of_lane_[half], i_.subtract(queries_.value, i_.number(1))));
      Value mask = nodes_.load(3, place, {rank - 1, 1});
      const Type element = typeOf(op_.getMask());
      if (element.isInteger(1))
        exists = i_.both(exists, mask);
      else
        product = plus(product, element.isF32() ? mask : widenToF32(b_, loc_, mask, element));
    }
    return arith::SelectOp::create(b_, loc_, exists, product, scalar(-INFINITY));
  }

  // The softmax of a step's scores, and its share of the result. `now`: what is carried, but the stage.
  void step(Value first_key, Value start, SmallVector<Value>& scores, SmallVector<Value>& now) {
    SmallVector<Value> limits;
    for (Value row : rows_of_lane_) {
      Value limit = op_.getCausal() ? i_.smaller(keys_.value, i_.add(row, 1)) : keys_.value;
      limit = i_.subtract(limit, i_.add(first_key, pair_));
      limit = i_.smaller(i_.larger(limit, i_.number(0)), i_.number(tile_.keys));
      limits.push_back(arith::IndexCastOp::create(b_, loc_, b_.getI32Type(), limit));
    }
    SmallVector<SmallVector<Value>> probabilities(scores.size(), SmallVector<Value>(4));
    SmallVector<Value> shrinks;
    for (int64_t half = 0; half < 2; ++half) {
      Value top;
      for (auto [block, products] : llvm::enumerate(scores))
        for (int64_t one = 0; one < 2; ++one) {
          Value score = seen(part(products, half * 2 + one), half, int64_t(block) * 8 + one, first_key, limits);
          probabilities[block][size_t(half * 2 + one)] = score;
          top = top ? larger(top, score) : score;
        }
      for (int64_t mask : {1, 2})
        top = larger(top, group_->exchanged(top, mask));
      Value before = now[size_t(half)];
      top = larger(before, top);
      // A row that has seen no key yet: 2^(-inf - -inf) would be NaN.
      Value none = arith::CmpFOp::create(b_, loc_, arith::CmpFPredicate::OEQ, top, scalar(-INFINITY));
      Value base = arith::SelectOp::create(b_, loc_, none, scalar(0), top);
      Value less = times(base, scalar(-factor_));
      auto power = [&](Value x) -> Value {
        return group_->nativeExp2(math::FmaOp::create(b_, loc_, x, scalar(factor_), less));
      };
      Value shrink = power(before), sum = times(now[size_t(2 + half)], shrink);
      for (SmallVector<Value>& block : probabilities)
        for (int64_t one = 0; one < 2; ++one) {
          Value& probability = block[size_t(half * 2 + one)];
          probability = power(probability);
          sum = plus(sum, probability);
        }
      now[size_t(half)] = top;
      now[size_t(2 + half)] = sum;
      shrinks.append(2, shrink);
    }
    Value shrink = vector::FromElementsOp::create(b_, loc_, VectorType::get({4}, f32_), shrinks);
    SmallVector<Value> totals;
    for (Value total : ArrayRef(now).drop_front(4))
      totals.push_back(times(total, shrink));
    // Two blocks of scores are the fragments of 16 rows by 16 keys.
    for (int64_t key = 0; key < tile_.keys; key += engine_depth) {
      SmallVector<Value> pairs = probabilities[size_t(key / 8)];
      pairs.append(probabilities[size_t(key / 8 + 1)]);
      Value numbers = vector::FromElementsOp::create(b_, loc_, VectorType::get({8}, f32_), pairs);
      Value bits = narrowFromF32(b_, loc_, numbers, typeOf(op_.getValue()));
      Value rows = vector::BitCastOp::create(b_, loc_, VectorType::get({4}, b_.getI32Type()), bits);
      multiply(value_, i_.add(value_place_, start), key, rows, totals);
    }
    std::copy(totals.begin(), totals.end(), now.begin() + 4);
  }

  void finish(ValueRange carried) {
    const unsigned lanes =
        all_columns_.constant && *all_columns_.constant % 2 == 0 ? unsigned(nodes_.lanesOfResult(rank_ - 1, 2)) : 1;
    for (int64_t half = 0; half < 2; ++half) {
      Value sum = carried[size_t(2 + half)], log_sum;
      for (int64_t mask : {1, 2})
        sum = plus(sum, group_->exchanged(sum, mask));
      Value row = rows_of_lane_[half], exists = i_.less(row, queries_.value);
      if (nodes_.isRead(1)) {
        Value top = scale_first_ ? carried[size_t(half)] : times(carried[size_t(half)], scalar(scale_));
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
      for (int64_t block = 0; block < tile_.columns / 8; ++block)
        for (int64_t one = 0; one < 2; one += lanes) {
          c_.evaluator.toInnermost();
          Value column = i_.add(pair_, block * 8 + one), total = carried[size_t(4 + block)];
          nodes_.open(i_.less(column, all_columns_.value));
          nodes_.bindResult(rank_ - 1, column, lanes);
          c_.evaluator.toInnermost();
          Value value = lanes == 2 ? pairOf(b_, total, half * 2) : part(total, half * 2 + one);
          value = times(value, splat(b_, share, lanes));
          if (Type type = typeOf(op_.getResult()); !type.isF32())
            value = narrowFromF32(b_, loc_, value, type);
          nodes_.store(value, log_sum);
          nodes_.close();
        }
      nodes_.close();
    }
  }

  const ScheduleContext& c_;
  AttentionOp op_;
  ProductNodes nodes_;
  const unsigned rank_;
  const FragmentAttentionTile tile_;
  const Extent all_depth_, all_columns_;
  const ProductSource sources_[3];
  const FragmentSide query_, key_, value_;
  bool scale_first_ = false;
  double scale_ = 1, factor_ = 1;
  WorkGroup* group_ = nullptr;
  int64_t stage_ = 0;  // elements
  Value array_, key_place_, value_place_, end_;
  Value pair_;                       // the first of the lane's columns in a block
  SmallVector<Value> rows_of_lane_;  // of the queries
};

}  // namespace

std::optional<FragmentAttentionTile> chooseFragmentAttention(AttentionOp op, const TargetDescription& target) {
  if (target.matrix.form != MatrixForm::fragments)
    return std::nullopt;
  const MatrixOperation* engine = matrixOperation(typeOf(op.getQuery()), typeOf(op.getKey()), target);
  if (!engine || typeOf(op.getValue()) != typeOf(op.getQuery()))
    return std::nullopt;
  auto whole = [](int64_t size) { return (size + square - 1) / square * square; };
  FragmentAttentionTile tile{
      engine, 8, 64, whole(op.getQuery().getType().getShape().back()), whole(op.getValue().getType().getShape().back()),
      false};
  // Of a lane: the result, the scores, and the queries where they stay.
  const int64_t registers = target.engine_accumulator_bytes * 5 / 4 / 4 / target.matrix.lanes;
  auto held = [&] { return tile.columns / 2 + tile.keys / 2 + (tile.keep_queries ? tile.depth / 4 : 0); };
  tile.keep_queries = tile.depth <= 128;
  while (tile.keys > square && held() > registers)
    tile.keys /= 2;
  if (held() > registers)
    return std::nullopt;
  int64_t queries = op.getQuery().getType().getShape().end()[-2], batches = 1;
  for (int64_t size : op.getQuery().getType().getShape().drop_back(2))
    batches = ShapedType::isDynamic(size) || batches < 0 ? -1 : batches * size;
  auto localBytes = [&] {
    return bytesOfSide(tile.rows(), tile.depth) +
           stages * (bytesOfSide(tile.keys, tile.depth) + bytesOfSide(tile.columns, tile.keys));
  };
  const bool known = !ShapedType::isDynamic(queries);
  // Few queries get a small group, and so do few groups: each engine has one.
  while (tile.subgroups > 1 && ((known && tile.rows() / 2 >= queries) || localBytes() > target.local_memory_bytes ||
                                (tile.subgroups > 2 && known && batches > 0 &&
                                 batches * ((queries + tile.rows() - 1) / tile.rows()) < target.engines)))
    tile.subgroups /= 2;
  return localBytes() <= target.local_memory_bytes ? std::optional(tile) : std::nullopt;
}

void scheduleFragmentAttention(const ScheduleContext& context, const FragmentAttentionTile& tile) {
  FragmentAttention(context, cast<AttentionOp>(context.domain.product->op), tile).run();
}

}  // namespace zefuse
