// Scaled dot product attention on a GPU, after Dao et al., "FlashAttention" (2022): keys and values pass by in tiles,
// the softmax's maximum and sum are corrected as they grow, the scores stay in registers and local memory.
//
// A sub-group has a few query rows. For the scores a work-item has one key for each of its lanes, for the result one
// column: the product's layout (gpu_product.h), with rows in a vector. The probabilities change hands through local
// memory.
#include "lowering/dialect/shape.h"
#include "lowering/schedule/products/attention_emitter.h"
#include "lowering/schedule/products/product_splits.h"
#include "lowering/schedule/products/products.h"
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
  int64_t chanceLine() const { return engine ? keys + engine_pad : rows; }
  int64_t queryElements() const { return queryLine() * (engine ? subgroups * rows : depth); }
  int64_t keyElements() const { return keyLine() * (engine ? keys : depth); }
  int64_t valueElements() const { return valueLine() * (engine ? columns : keys); }
  int64_t chanceElements() const { return chanceLine() * subgroups * (engine ? rows : keys); }
  int64_t localBytes() const {
    return (engine ? 2 : 4) * (queryElements() + keyElements() + valueElements() + chanceElements());
  }
};

// None: even the smallest does not fit into local memory. Few queries get a small group.
std::optional<AttentionTile> chooseTile(const AttentionCall& call, const TargetDescription& target,
                                        const MatrixOperation* engine) {
  auto whole = [](int64_t size, int64_t block) { return (size + block - 1) / block * block; };
  int64_t depth = call.q.getShape().back(), columns = call.v.getShape().back();
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
  } else {
    while (tile.rows > 1 && tile.rows * tile.columns * 4 > target.accumulator_bytes - score_bytes)
      tile.rows /= 2;
    if (tile.rows * tile.columns * 4 > target.accumulator_bytes / 2)
      tile.keys = tile.lanes;  // one row, and still too much
  }
  int64_t queries = call.q.getShape()[call.q.getRank() - 2];
  while (tile.subgroups > 1 && ((!ShapedType::isDynamic(queries) && tile.subgroups / 2 * tile.rows >= queries) ||
                                tile.localBytes() > target.local_memory_bytes))
    tile.subgroups /= 2;
  return tile.localBytes() <= target.local_memory_bytes ? std::optional(tile) : std::nullopt;
}

std::optional<AttentionTile> chooseTile(const AttentionCall& call, const TargetDescription& target) {
  const MatrixOperation* engine = matrixOperation(call.q.getElementType(), call.k.getElementType(), target);
  if (engine && call.v.getElementType() == call.q.getElementType())
    if (auto tile = chooseTile(call, target, engine))
      return tile;
  return chooseTile(call, target, nullptr);
}

class AttentionSchedule : AttentionEmitter {
public:
  AttentionSchedule(const AttentionCall& call, CallKernel& kernel, const AttentionTile& tile)
      : AttentionEmitter(kernel, tile.rows, tile.lanes, tile.engine, call.scale, call.causal,
                         call.mask ? std::optional(3u) : std::nullopt),
        call_(call), tile_(tile), depth_(tile.depth), columns_(tile.columns), subgroups_(tile.subgroups) {}

  void run() {
    const unsigned result_number = call_.mask ? 4 : 3;
    const StridedTensor &q = k_.tensor(0), &k = k_.tensor(1), &v = k_.tensor(2), &result = k_.tensor(result_number);
    AffineExpr m = q.sizes[rank_ - 2];
    int64_t tile_rows = subgroups_ * rows_;
    AffineExpr batches = getAffineConstantExpr(1, b_.getContext()), tiles = m.ceilDiv(tile_rows);
    for (AffineExpr size : ArrayRef(result.sizes).drop_back(2))
      batches = batches * size;
    LoweredKernel& launch = k_.launch();
    launch.extent = batches * tiles;
    launch.grain = 1;
    launch.schedule.add(choice::Attention{tile_rows, subgroups_, tile_.keys, tile_.engine != nullptr});
    WorkGroup group(b_, k_.function(), launch, subgroups_ * tile_.lanes, tile_.lanes);

    Value tile_count = k_.expression(tiles);
    Value first_row = i_.multiply(i_.modulo(group.group(), tile_count), tile_rows);
    bindBatch(i_.divide(group.group(), tile_count), result.sizes);
    Extent depth{k_.expression(q.sizes[rank_ - 1]), constantOf(q.sizes[rank_ - 1])},
        columns{k_.expression(v.sizes[rank_ - 1]), constantOf(v.sizes[rank_ - 1])};

    Value queries = group.localArray(local_, tile_.queryElements());
    Value key_tile = group.localArray(local_, tile_.keyElements());
    Value value_tile = group.localArray(local_, tile_.valueElements());
    Value chances = group.localArray(local_, tile_.chanceElements());
    TileSide query_rows{queries_, first_row, tile_rows, 1}, query_depth{depth, i_.number(0), depth_, tile_.queryLine()};
    TileSide key_rows{keys_, {}, tile_.keys, 1}, key_depth{depth, i_.number(0), depth_, tile_.keyLine()};
    TileSide value_rows{keys_, {}, tile_.keys, tile_.valueLine()}, value_columns{columns, i_.number(0), columns_, 1};
    if (tile_.engine) {
      std::swap(query_rows.step, query_depth.step);
      std::swap(key_rows.step, key_depth.step);
      std::swap(value_rows.step, value_columns.step);
    }
    stageTile(b_, group, source(q), local_, query_rows, query_depth, queries);

    Value mine = i_.multiply(group.subgroupIndex(), rows_);
    Value row = i_.add(first_row, mine);
    // Where what is summed over is innermost, and where it is not.
    auto side = [&](Value array, Value first, int64_t line) {
      return tile_.engine ? Side{array, first, line, 1} : Side{array, first, 1, line};
    };
    Value start = i_.number(0);
    Side my_queries = side(queries, mine, tile_.queryLine()), all_keys = side(key_tile, start, tile_.keyLine());
    Side my_chances =
        side(chances, tile_.engine ? mine : i_.multiply(group.subgroupIndex(), tile_.keys * rows_), tile_.chanceLine());
    Side all_values = side(value_tile, start, tile_.valueLine());
    int64_t blocks = columns_ / tile_.lanes;
    // Carried: per row the maximum so far, this work-item's part of the sum, and the result's blocks.
    SmallVector<Value> carried{real(-INFINITY), real(0)};
    carried.append(blocks, real(0));
    Value end = keys_.value;
    if (call_.causal)
      end = i_.smaller(end, i_.add(first_row, tile_rows));
    auto loop = scf::ForOp::create(b_, loc_, i_.number(0), end, i_.number(tile_.keys), carried);
    {
      OpBuilder::InsertionGuard guard(b_);
      b_.setInsertionPointToStart(loop.getBody());
      Value first_key = loop.getInductionVar();
      key_rows.first = value_rows.first = first_key;
      stageTile(b_, group, source(k), local_, key_rows, key_depth, key_tile);
      stageTile(b_, group, source(v), local_, value_rows, value_columns, value_tile);
      group.barrier();
      SmallVector<Value> scores(tile_.keys / tile_.lanes, real(0));
      scores = multiply(group, depth_, my_queries, all_keys, scores);
      SmallVector<SmallVector<Value>> seen;  // per block, per row
      for (auto [block, products] : llvm::enumerate(scores)) {
        Value key = i_.add(i_.add(first_key, group.lane()), int64_t(block) * tile_.lanes);
        Value exists = i_.less(key, keys_.value);
        SmallVector<Value>& column = seen.emplace_back();
        for (int64_t r = 0; r < rows_; ++r)
          column.push_back(score(element(products, r), i_.add(row, r), key, exists));
      }

      // Per row, over the sub-group: the new maximum, and by how much what was summed so far shrinks.
      SmallVector<Value> tops, shrinks;
      SmallVector<SmallVector<Value>> chance(seen.size());
      Value old_top = loop.getRegionIterArgs()[0], sum = loop.getRegionIterArgs()[1];
      for (int64_t r = 0; r < rows_; ++r) {
        Value top = seen[0][r];
        for (size_t block = 1; block < seen.size(); ++block)
          top = larger(top, seen[block][r]);
        Value before = element(old_top, r);
        top = larger(before, group.maximumInSubgroup(top));
        // A row that has seen no key yet: exp(-inf - -inf) would be NaN.
        Value none = arith::CmpFOp::create(b_, loc_, arith::CmpFPredicate::OEQ, top, scalar(-INFINITY));
        Value base = arith::SelectOp::create(b_, loc_, none, scalar(0), top);
        tops.push_back(top);
        shrinks.push_back(exponential(before, base));
        for (size_t block = 0; block < seen.size(); ++block)
          chance[block].push_back(exponential(seen[block][r], base));
      }
      Value shrink = joined(shrinks);
      sum = arith::MulFOp::create(b_, loc_, sum, shrink);
      for (auto [block, values] : llvm::enumerate(chance)) {
        Value vector = joined(values);
        sum = arith::AddFOp::create(b_, loc_, sum, vector);
        Value key = i_.add(group.lane(), int64_t(block) * tile_.lanes);
        storeRows(group, vector, my_chances, key, k_.tensor(2).element);
      }
      group.barrier();
      SmallVector<Value> totals;
      for (Value total : loop.getRegionIterArgs().drop_front(2))
        totals.push_back(arith::MulFOp::create(b_, loc_, total, shrink));
      totals = multiply(group, tile_.keys, my_chances, all_values, totals);
      group.barrier();  // before the next tiles overwrite what is read here
      SmallVector<Value> next{joined(tops), sum};
      next.append(totals);
      scf::YieldOp::create(b_, loc_, next);
    }

    SmallVector<Value> sums;
    Value log_sum;  // of the row that has this lane's number
    for (int64_t r = 0; r < rows_; ++r) {
      Value sum = group.sumInSubgroup(element(loop.getResult(1), r));
      if (call_.log_sums) {
        Value mine = arith::AddFOp::create(b_, loc_, math::LogOp::create(b_, loc_, sum), element(loop.getResult(0), r));
        log_sum =
            r == 0 ? mine
                   : arith::SelectOp::create(b_, loc_, i_.less(group.lane(), i_.number(r)), log_sum, mine).getResult();
      }
      if (call_.empty_rows_are_zero) {  // 0 / 1 instead of 0 / 0
        Value none = arith::CmpFOp::create(b_, loc_, arith::CmpFPredicate::OEQ, sum, scalar(0));
        sum = arith::SelectOp::create(b_, loc_, none, scalar(1), sum);
      }
      sums.push_back(sum);
    }
    if (call_.log_sums) {
      const StridedTensor& log_sums = k_.tensor(result_number + 1);
      Value at_row = i_.add(row, group.lane());
      OpBuilder::InsertionGuard guard(b_);
      Value exists = i_.both(i_.less(group.lane(), i_.number(rows_)), i_.less(at_row, queries_.value));
      auto branch = scf::IfOp::create(b_, loc_, exists, false);
      b_.setInsertionPointToStart(branch.thenBlock());
      SmallVector<Value> place(batch_);
      place[rank_ - 2] = at_row;
      k_.store(log_sums, k_.offset(log_sums, ArrayRef(place).drop_back()), log_sum);
    }
    for (int64_t block = 0; block < blocks; ++block) {
      Value column = i_.add(group.lane(), block * tile_.lanes);
      for (int64_t r = 0; r < rows_; ++r) {
        Value at_row = i_.add(row, r);
        OpBuilder::InsertionGuard guard(b_);
        Value exists = i_.both(i_.less(at_row, queries_.value), i_.less(column, columns.value));
        auto branch = scf::IfOp::create(b_, loc_, exists, false);
        b_.setInsertionPointToStart(branch.thenBlock());
        Value value = arith::DivFOp::create(b_, loc_, element(loop.getResult(unsigned(2 + block)), r), sums[r]);
        k_.store(result, k_.offset(result, indices(result, at_row, column)), value);
      }
    }
  }

private:
  Value larger(Value x, Value y) {
    Value more = arith::CmpFOp::create(b_, loc_, arith::CmpFPredicate::OGT, y, x);
    return arith::SelectOp::create(b_, loc_, more, y, x);
  }
  const AttentionCall& call_;
  const AttentionTile tile_;
  const int64_t depth_, columns_, subgroups_;
};

}  // namespace

std::string whyNoAttentionKernel(const AttentionCall& call, const TargetDescription& target) {
  if (!target.supports.products)
    return "has a kernel of its own on GPU targets only";
  SmallVector<RankedTensorType> operands{call.q, call.k, call.v, call.result};
  if (call.mask)
    operands.push_back(call.mask);
  for (RankedTensorType operand : operands) {
    Type element = operand.getElementType();
    bool boolean = operand == call.mask && element.isInteger(1);
    if (!boolean && !element.isF32() && !element.isF16() && !element.isBF16())
      return "no GPU kernel for elements of another type than f32, f16 and bf16 (and i1 of a mask)";
  }
  const int64_t rank = call.result.getRank();
  if (rank < 3 || call.q.getRank() != rank || call.k.getRank() != rank || call.v.getRank() != rank ||
      (call.mask && call.mask.getRank() > rank))
    return "wants q, k, v and result of one rank, 3 or more";
  if (call.q.getShape().back() <= 0 || call.v.getShape().back() <= 0)
    return "the sizes of a head must be known and not 0";
  // Dimensions of 1 broadcast; known numbers of k's and v's may divide q's.
  SmallVector<AffineExpr> q = shapeOf(call.q), result = shapeOf(call.result);
  if (ArrayRef(q).drop_back(1) != ArrayRef(result).drop_back(1))
    return "the result's batches and rows are not the queries'";
  for (RankedTensorType operand : {call.k, call.v}) {
    const SmallVector<AffineExpr> sizes = shapeOf(operand);
    for (auto [size, whole] : llvm::zip(ArrayRef(sizes).drop_back(2), q)) {
      auto mine = constantOf(size), all = constantOf(whole);
      if (size != whole && mine != 1 && !(mine && all && *mine > 0 && *all % *mine == 0))
        return "the batches of the keys are not known to divide those of the queries";
    }
  }
  if (call.mask) {
    SmallVector<AffineExpr> scores(q), mask = shapeOf(call.mask);
    scores.back() = shapeOf(call.k)[rank - 2];
    for (auto [size, whole] : llvm::zip(mask, ArrayRef(scores).take_back(mask.size())))
      if (size != whole && constantOf(size) != 1)
        return "the mask's sizes are not known to be those of the scores";
  }
  if (call.log_sums &&
      (!call.log_sums.getElementType().isF32() || ArrayRef(shapeOf(call.log_sums)) != ArrayRef(result).drop_back(1)))
    return "wants one f32 for each row's sum";
  if (!chooseTile(call, target))
    return "heads of " + std::to_string(call.q.getShape().back()) + " and " + std::to_string(call.v.getShape().back()) +
           " elements do not fit into local memory";
  return {};
}

FailureOr<ScheduledKernel> scheduleAttention(Operation* op, const AttentionCall& call,
                                             const TargetDescription& target) {
  auto refuse = [&](const Twine& reason) { return op->emitError() << "attention: " << reason, failure(); };
  if (std::string reason = whyNoAttentionKernel(call, target); !reason.empty())
    return refuse(reason);
  SmallVector<Type> operands{call.q, call.k, call.v};
  if (call.mask)
    operands.push_back(call.mask);
  operands.push_back(call.result);
  if (call.log_sums)
    operands.push_back(call.log_sums);
  CallKernel kernel(op, "attention", operands, call.log_sums ? 2 : 1, call.layouts);
  if (!kernel.ok())
    return refuse(kernel.refusal());
  AttentionSchedule(call, kernel, *chooseTile(call, target)).run();
  return kernel.finish();
}

}  // namespace zefuse
