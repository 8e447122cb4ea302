// zefuse.attention in a kernel for a GPU, after Dao et al., "FlashAttention" (2022): keys and values pass by in tiles,
// the softmax's maximum and sum are corrected as they grow, the scores stay in registers and local memory. The
// evaluator makes what queries, keys, values and the mask are loaded from, and what the result and the rows' sums
// become.
//
// A sub-group has a few query rows. For the scores a work-item has one key for each of its lanes, for the result one
// column: the product's layout (gpu_product.h), with rows in a vector. The probabilities change hands through local
// memory. A matrix engine of fragments has a schedule of its own (fragment_attention.h).
#include "lowering/dialect/shape.h"
#include "lowering/schedule/products/attention_emitter.h"
#include "lowering/schedule/products/fragment_attention.h"
#include "lowering/schedule/products/product_nodes.h"
#include "lowering/schedule/products/product_splits.h"
#include "lowering/schedule/products/products.h"
#include "lowering/schedule/products/warpgroup_attention.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;

namespace zefuse {
namespace {

constexpr int64_t score_bytes = 1 << 10;  // of registers, for the scores and the softmax

// Query rows per sub-group, sub-groups per group, and how local memory is laid out.
//
// As an ordinary product: queries and keys with their depth outermost (rows and keys are neighbours), values by key,
// probabilities of a sub-group by key; all f32. For a matrix engine all have what is summed over innermost, in the
// engine's 16 bits: the depth of queries and keys, the keys of values and probabilities.
struct AttentionTile {
  const MatrixOperation* engine;  // null: without
  int64_t lanes;                  // of a sub-group
  int64_t depth, columns;         // of a head, in whole blocks
  int64_t rows = 8, subgroups = 8, keys = 32;

  // Lines are padded so that neighbouring ones start in different banks.
  int64_t queryLine() const { return engine ? depth + engine_pad : subgroups * rows + 4; }
  int64_t keyLine() const { return engine ? depth + engine_pad : keys + 1; }
  int64_t valueLine() const { return engine ? keys + engine_pad : columns; }
  int64_t probabilityLine() const { return engine ? keys + engine_pad : rows; }
  int64_t queryElements() const { return queryLine() * (engine ? subgroups * rows : depth); }
  int64_t keyElements() const { return keyLine() * (engine ? keys : depth); }
  int64_t valueElements() const { return valueLine() * (engine ? columns : keys); }
  int64_t probabilityElements() const { return probabilityLine() * subgroups * (engine ? rows : keys); }
  int64_t localBytes() const {
    return (engine ? 2 : 4) * (queryElements() + keyElements() + valueElements() + probabilityElements());
  }
};

// Local memory is the limit of a product without an engine: where there are many queries, registers and local memory,
// more rows and keys for what is read of it. None: some are too few.
std::optional<AttentionTile> tileOfManyQueries(AttentionOp op, AttentionTile tile, const TargetDescription& target) {
  constexpr int64_t many = 128, smallest_group = 4;
  const ArrayRef<int64_t> sizes = op.getQuery().getType().getShape();
  const int64_t queries = sizes.end()[-2];
  tile.rows = 16;
  tile.keys = 2 * tile.lanes;
  tile.subgroups = smallest_group;
  if (target.accumulator_bytes < 8 * score_bytes || tile.rows * tile.columns * 4 > target.accumulator_bytes ||
      tile.localBytes() > target.local_memory_bytes || ShapedType::isDynamic(queries) || queries < many)
    return std::nullopt;
  int64_t groups = (queries + many - 1) / many;
  for (int64_t size : sizes.drop_back(2))
    groups *= ShapedType::isDynamic(size) ? 1 : size;
  if (groups >= target.engines)  // each has one
    tile.subgroups = 2 * smallest_group;
  return tile;
}

// None: even the smallest does not fit into local memory. Few queries get a small group.
std::optional<AttentionTile> chooseTile(AttentionOp op, const TargetDescription& target,
                                        const MatrixOperation* engine) {
  auto whole = [](int64_t size, int64_t block) { return (size + block - 1) / block * block; };
  int64_t depth = op.getQuery().getType().getShape().back(), columns = op.getValue().getType().getShape().back();
  AttentionTile tile{engine, engine ? target.matrix.lanes : target.subgroup_size,
                     engine ? whole(depth, engine_depth) : depth, 0};
  tile.columns = whole(columns, tile.lanes);
  if (engine) {
    // The result, and three forms of the scores at once: in 5/8 of the registers (gpu_test.cpp). Fewer rows read a tile
    // of keys less often for each: a group has more sub-groups of them.
    const int64_t limit = target.engine_accumulator_bytes * 5 / 4;
    struct Shape {
      int64_t rows, subgroups, keys;
    };
    constexpr Shape shapes[] = {{8, 8, 32}, {4, 8, 32}, {4, 8, 16}, {2, 16, 32}, {2, 16, 16}};
    const Shape* shape = llvm::find_if(
        shapes, [&](const Shape& shape) { return shape.rows * (tile.columns + 3 * shape.keys) * 4 <= limit; });
    if (shape == std::end(shapes))
      return std::nullopt;
    tile.rows = shape->rows;
    tile.subgroups = shape->subgroups;
    tile.keys = shape->keys;
  } else if (auto large = tileOfManyQueries(op, tile, target)) {
    tile = *large;
  } else {
    while (tile.rows > 1 && tile.rows * tile.columns * 4 > target.accumulator_bytes - score_bytes)
      tile.rows /= 2;
    if (tile.rows * tile.columns * 4 > target.accumulator_bytes / 2)
      tile.keys = tile.lanes;  // one row, and still too much
  }
  int64_t queries = op.getQuery().getType().getShape().end()[-2];
  while (tile.subgroups > 1 && ((!ShapedType::isDynamic(queries) && tile.subgroups / 2 * tile.rows >= queries) ||
                                tile.localBytes() > target.local_memory_bytes))
    tile.subgroups /= 2;
  return tile.localBytes() <= target.local_memory_bytes ? std::optional(tile) : std::nullopt;
}

Type elementOf(Value tensor) { return cast<RankedTensorType>(tensor.getType()).getElementType(); }

std::optional<AttentionTile> chooseTile(AttentionOp op, const TargetDescription& target) {
  const MatrixOperation* engine = matrixOperation(elementOf(op.getQuery()), elementOf(op.getKey()), target);
  if (engine && target.matrix.form == MatrixForm::columns && elementOf(op.getValue()) == elementOf(op.getQuery()))
    if (auto tile = chooseTile(op, target, engine))
      return tile;
  return chooseTile(op, target, nullptr);
}

class AttentionSchedule : AttentionEmitter {
public:
  AttentionSchedule(const ScheduleContext& context, const AttentionTile& tile)
      : AttentionSchedule(context, cast<AttentionOp>(context.domain.product->op), tile) {}

  void run() {
    const SmallVector<AffineExpr> q = shapeOf(op_.getQuery().getType()), v = shapeOf(op_.getValue().getType());
    int64_t tile_rows = subgroups_ * rows_;
    AffineExpr batches = getAffineConstantExpr(1, b_.getContext()), tiles = q[rank_ - 2].ceilDiv(tile_rows);
    for (AffineExpr size : ArrayRef(q).drop_back(2))
      batches = batches * size;
    LoweredKernel& launch = c_.launch;
    launch.extent = batches * tiles;
    launch.grain = 1;
    launch.schedule.add(choice::Attention{tile_rows, subgroups_, tile_.keys, tile_.engine != nullptr});
    WorkGroup group(b_, c_.function, launch, subgroups_ * tile_.lanes, tile_.lanes);

    Value tile_count = nodes_.expression(tiles);
    Value first_row = i_.multiply(i_.modulo(group.group(), tile_count), tile_rows);
    nodes_.bindBatch(i_.divide(group.group(), tile_count));
    c_.evaluator.toInnermost();
    Extent depth = extentOf(c_, q[rank_ - 1]), columns = extentOf(c_, v[rank_ - 1]);

    Value queries = group.localArray(local_, tile_.queryElements());
    Value key_tile = group.localArray(local_, tile_.keyElements());
    Value value_tile = group.localArray(local_, tile_.valueElements());
    Value probabilities = group.localArray(local_, tile_.probabilityElements());
    TileSide query_rows{queries_, first_row, tile_rows, 1}, query_depth{depth, i_.number(0), depth_, tile_.queryLine()};
    TileSide key_rows{keys_, {}, tile_.keys, 1}, key_depth{depth, i_.number(0), depth_, tile_.keyLine()};
    TileSide value_rows{keys_, {}, tile_.keys, tile_.valueLine()}, value_columns{columns, i_.number(0), columns_, 1};
    if (tile_.engine) {
      std::swap(query_rows.step, query_depth.step);
      std::swap(key_rows.step, key_depth.step);
      std::swap(value_rows.step, value_columns.step);
    }
    stageTile(b_, group, source(0), local_, query_rows, query_depth, queries);

    Value mine = i_.multiply(group.subgroupIndex(), rows_);
    Value row = i_.add(first_row, mine);
    // Where what is summed over is innermost, and where it is not.
    auto side = [&](Value array, Value first, int64_t line) {
      return tile_.engine ? Side{array, first, line, 1} : Side{array, first, 1, line};
    };
    Value start = i_.number(0);
    Side my_queries = side(queries, mine, tile_.queryLine()), all_keys = side(key_tile, start, tile_.keyLine());
    Side my_probabilities =
        side(probabilities, tile_.engine ? mine : i_.multiply(group.subgroupIndex(), tile_.keys * rows_),
             tile_.probabilityLine());
    Side all_values = side(value_tile, start, tile_.valueLine());
    const int64_t blocks = columns_ / tile_.lanes;
    // Carried: per row the maximum so far, this work-item's part of the sum, and the result's blocks.
    SmallVector<Value> carried{real(-INFINITY), real(0)};
    carried.append(blocks, real(0));
    Value end = keys_.value;
    if (op_.getCausal())
      end = i_.smaller(end, i_.add(first_row, tile_rows));
    auto loop = scf::ForOp::create(b_, loc_, i_.number(0), end, i_.number(tile_.keys), carried);
    {
      OpBuilder::InsertionGuard guard(b_);
      b_.setInsertionPointToStart(loop.getBody());
      Value first_key = loop.getInductionVar();
      key_rows.first = value_rows.first = first_key;
      stageTile(b_, group, source(1), local_, key_rows, key_depth, key_tile);
      stageTile(b_, group, source(2), local_, value_rows, value_columns, value_tile);
      group.barrier();
      SmallVector<Value> scores(tile_.keys / tile_.lanes, real(0));
      scores = multiply(group, depth_, my_queries, all_keys, scores);
      const Softmax seen = advance(group, scoresOf(group, scores, row, first_key), loop.getRegionIterArgs()[0]);
      const Value shrink = joined(seen.shrinks);
      Value sum = loop.getRegionIterArgs()[1];
      sum = arith::MulFOp::create(b_, loc_, sum, shrink);
      for (auto [block, values] : llvm::enumerate(seen.probabilities)) {
        Value vector = joined(values);
        sum = arith::AddFOp::create(b_, loc_, sum, vector);
        Value key = i_.add(group.lane(), int64_t(block) * tile_.lanes);
        storeRows(group, vector, my_probabilities, key, elementOf(op_.getValue()));
      }
      group.barrier();
      SmallVector<Value> totals;
      for (Value total : loop.getRegionIterArgs().drop_front(2))
        totals.push_back(arith::MulFOp::create(b_, loc_, total, shrink));
      totals = multiply(group, tile_.keys, my_probabilities, all_values, totals);
      group.barrier();  // before the next tiles overwrite what is read here
      SmallVector<Value> next{joined(seen.tops), sum};
      next.append(totals);
      scf::YieldOp::create(b_, loc_, next);
    }

    const RowSums rows = finishSums(group, loop.getResult(0), loop.getResult(1));
    if (nodes_.isRead(1))
      storeLogSums(group, row, rows.log_sum_of_lane);
    if (nodes_.isRead(0))
      storeResult(group, row, columns, loop.getResults().drop_front(2), rows);
  }

private:
  // What a tile of keys makes of each row's softmax.
  struct Softmax {
    SmallVector<Value> tops, shrinks;  // per row: the new maximum, and by how much what was summed so far shrinks
    SmallVector<SmallVector<Value>> probabilities;  // per block of keys, per row
  };
  struct RowSums {
    SmallVector<Value> sums, log_sums;  // per row; the second where they are read
    Value log_sum_of_lane;              // of the row that has this lane's number
  };

  // Per block of a tile's keys and per row; -inf where the row does not see the key.
  SmallVector<SmallVector<Value>> scoresOf(WorkGroup& group, ArrayRef<Value> products, Value row, Value first_key) {
    SmallVector<SmallVector<Value>> seen;
    for (auto [block, of_rows] : llvm::enumerate(products)) {
      Value key = i_.add(i_.add(first_key, group.lane()), int64_t(block) * tile_.lanes);
      Value exists = i_.less(key, keys_.value);
      SmallVector<Value>& column = seen.emplace_back();
      for (int64_t r = 0; r < rows_; ++r)
        column.push_back(score(element(of_rows, r), i_.add(row, r), key, exists));
    }
    return seen;
  }

  Softmax advance(WorkGroup& group, ArrayRef<SmallVector<Value>> scores, Value old_top) {
    Softmax next;
    next.probabilities.resize(scores.size());
    for (int64_t r = 0; r < rows_; ++r) {
      Value top = scores[0][r];
      for (size_t block = 1; block < scores.size(); ++block)
        top = larger(top, scores[block][r]);
      Value before = element(old_top, r);
      top = larger(before, group.maximumInSubgroup(top));
      // A row that has seen no key yet: exp(-inf - -inf) would be NaN.
      Value none = arith::CmpFOp::create(b_, loc_, arith::CmpFPredicate::OEQ, top, scalar(-INFINITY));
      Value base = arith::SelectOp::create(b_, loc_, none, scalar(0), top);
      next.tops.push_back(top);
      next.shrinks.push_back(exponential(before, base));
      for (size_t block = 0; block < scores.size(); ++block)
        next.probabilities[block].push_back(exponential(scores[block][r], base));
    }
    return next;
  }

  // Of each work-item's part of the sums, and of the maxima.
  RowSums finishSums(WorkGroup& group, Value tops, Value parts) {
    RowSums rows;
    for (int64_t r = 0; r < rows_; ++r) {
      Value sum = group.sumInSubgroup(element(parts, r));
      if (nodes_.isRead(1)) {
        Value mine = arith::AddFOp::create(b_, loc_, math::LogOp::create(b_, loc_, sum), element(tops, r));
        Value& of_lane = rows.log_sum_of_lane;
        of_lane =
            r == 0 ? mine
                   : arith::SelectOp::create(b_, loc_, i_.less(group.lane(), i_.number(r)), of_lane, mine).getResult();
        rows.log_sums.push_back(mine);
      }
      // A row that sees no key is zeros: 0 / 1 instead of 0 / 0.
      Value none = arith::CmpFOp::create(b_, loc_, arith::CmpFPredicate::OEQ, sum, scalar(0));
      rows.sums.push_back(arith::SelectOp::create(b_, loc_, none, scalar(1), sum));
    }
    return rows;
  }

  void storeLogSums(WorkGroup& group, Value row, Value log_sum_of_lane) {
    Value at_row = i_.add(row, group.lane());
    nodes_.open(i_.both(i_.less(group.lane(), i_.number(rows_)), i_.less(at_row, queries_.value)));
    nodes_.bindResult(rank_ - 2, at_row);
    c_.evaluator.toInnermost();
    nodes_.storeRow(log_sum_of_lane);
    nodes_.close();
  }

  // `totals`: per block of columns.
  void storeResult(WorkGroup& group, Value row, const Extent& columns, ValueRange totals, const RowSums& rows) {
    for (auto [block, total] : llvm::enumerate(totals)) {
      Value column = i_.add(group.lane(), int64_t(block) * tile_.lanes);
      nodes_.open(i_.less(column, columns.value));
      nodes_.bindResult(rank_ - 1, column);
      for (int64_t r = 0; r < rows_; ++r) {
        c_.evaluator.toInnermost();
        Value at_row = i_.add(row, r);
        nodes_.open(i_.less(at_row, queries_.value));
        nodes_.bindResult(rank_ - 2, at_row);
        c_.evaluator.toInnermost();
        Value value = arith::DivFOp::create(b_, loc_, element(total, r), rows.sums[r]);
        if (Type type = elementOf(op_.getResult()); !type.isF32())
          value = narrowFromF32(b_, loc_, value, type);
        nodes_.store(value, nodes_.isRead(1) ? rows.log_sums[r] : Value());
        nodes_.close();
      }
      nodes_.close();
    }
  }

  Value larger(Value x, Value y) {
    Value more = arith::CmpFOp::create(b_, loc_, arith::CmpFPredicate::OGT, y, x);
    return arith::SelectOp::create(b_, loc_, more, y, x);
  }

  AttentionSchedule(const ScheduleContext& context, AttentionOp op, const AttentionTile& tile)
      : AttentionEmitter{context.builder(),
                         tile.rows,
                         tile.lanes,
                         tile.engine,
                         op.getScale()->convertToFloat(),
                         op.getCausal(),
                         rowsOf(context, op.getQuery()),
                         rowsOf(context, op.getKey())},
        c_(context), op_(op), nodes_(context), rank_(unsigned(op.getQuery().getType().getRank())), tile_(tile),
        depth_(tile.depth), columns_(tile.columns), subgroups_(tile.subgroups) {
    if (op.getMask())
      mask_ = [this](Value query, Value key) {
        const unsigned rank = unsigned(op_.getMask().getType().getRank());
        SmallVector<std::pair<unsigned, Value>> at{{rank - 1, key}};
        if (rank > 1)
          at.emplace_back(rank - 2, query);
        return widened(nodes_.load(3, at, {rank - 1, 1}), elementOf(op_.getMask()));
      };
  }

  static Extent extentOf(const ScheduleContext& context, AffineExpr size) {
    Extent extent{context.evaluator.index(size), constantOf(size)};
    context.evaluator.toInnermost();
    return extent;
  }
  static Extent rowsOf(const ScheduleContext& context, TypedValue<RankedTensorType> tensor) {
    return extentOf(context, shapeOf(tensor.getType()).end()[-2]);
  }

  Value widened(Value value, Type element) {
    return element.isF16() || element.isBF16() ? widenToF32(b_, loc_, value, element) : value;
  }

  ProductSource source(unsigned operand) {
    const Type element = elementOf(op_->getOperand(operand));
    // A tile's rows need not be a multiple of an access.
    return nodes_.matrixSource(operand, /*runs_of_rows=*/false,
                               [this, element](Value value) { return engine_ ? value : widened(value, element); });
  }

  const ScheduleContext& c_;
  AttentionOp op_;
  ProductNodes nodes_;
  const unsigned rank_;
  const AttentionTile tile_;
  const int64_t depth_, columns_, subgroups_;
};

}  // namespace

std::string whyNoGpuAttention(AttentionOp op, const TargetDescription& target) {
  if (!op.getScale())
    return "the sizes of a head must be known";
  const RankedTensorType query = op.getQuery().getType(), key = op.getKey().getType(), value = op.getValue().getType(),
                         whole = op.getResult().getType();
  const RankedTensorType scores_mask = op.getMask() ? op.getMask().getType() : RankedTensorType();
  SmallVector<RankedTensorType> operands{query, key, value, whole};
  if (scores_mask)
    operands.push_back(scores_mask);
  for (RankedTensorType operand : operands) {
    Type element = operand.getElementType();
    bool boolean = operand == scores_mask && element.isInteger(1);
    if (!boolean && !element.isF32() && !element.isF16() && !element.isBF16())
      return "no GPU kernel for elements of another type than f32, f16 and bf16 (and i1 of a mask)";
  }
  const int64_t rank = whole.getRank();
  if (rank < 3 || query.getRank() != rank || key.getRank() != rank || value.getRank() != rank ||
      (scores_mask && (scores_mask.getRank() > rank || scores_mask.getRank() < 1)))
    return "wants q, k, v and result of one rank, 3 or more";
  if (query.getShape().back() <= 0 || value.getShape().back() <= 0)
    return "the sizes of a head must be known and not 0";
  // Dimensions of 1 broadcast; known numbers of k's and v's may divide q's.
  SmallVector<AffineExpr> q = shapeOf(query), result = shapeOf(whole);
  if (ArrayRef(q).drop_back(1) != ArrayRef(result).drop_back(1))
    return "the result's batches and rows are not the queries'";
  for (RankedTensorType operand : {key, value}) {
    const SmallVector<AffineExpr> sizes = shapeOf(operand);
    for (auto [size, all] : llvm::zip(ArrayRef(sizes).drop_back(2), q)) {
      auto mine = constantOf(size), most = constantOf(all);
      if (size != all && mine != 1 && !(mine && most && *mine > 0 && *most % *mine == 0))
        return "the batches of the keys are not known to divide those of the queries";
    }
  }
  if (scores_mask) {
    SmallVector<AffineExpr> scores(q), mask = shapeOf(scores_mask);
    scores.back() = shapeOf(key)[rank - 2];
    for (auto [size, all] : llvm::zip(mask, ArrayRef(scores).take_back(mask.size())))
      if (size != all && constantOf(size) != 1)
        return "the mask's sizes are not known to be those of the scores";
  }
  if (op.getLogSums()) {
    auto log_sums = cast<RankedTensorType>(op.getLogSums().getType());
    if (!log_sums.getElementType().isF32() || ArrayRef(shapeOf(log_sums)) != ArrayRef(result).drop_back(1))
      return "wants one f32 for each row's sum";
  }
  if (!chooseFragmentAttention(op, target) && !chooseTile(op, target))
    return "heads of " + std::to_string(query.getShape().back()) + " and " + std::to_string(value.getShape().back()) +
           " elements do not fit into local memory";
  return {};
}

int64_t queriesOfTile(AttentionOp op, const TargetDescription& target) {
  if (auto tile = chooseWarpgroupAttention(op, target))
    return tile->rows();
  if (auto tile = chooseFragmentAttention(op, target))
    return tile->rows();
  const AttentionTile tile = chooseTile(op, target).value();
  return tile.rows * tile.subgroups;
}

void scheduleGpuAttention(const ScheduleContext& context) {
  auto op = cast<AttentionOp>(context.domain.product->op);
  if (auto tile = chooseWarpgroupAttention(op, context.target, &context.decisions)) {
    scheduleWarpgroupAttention(context, *tile);
    return;
  }
  if (auto tile = chooseFragmentAttention(op, context.target, &context.decisions)) {
    scheduleFragmentAttention(context, *tile);
    return;
  }
  AttentionSchedule(context, chooseTile(op, context.target).value()).run();
}

}  // namespace zefuse
