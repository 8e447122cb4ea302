// Scaled dot product attention on a GPU, after Dao et al., "FlashAttention" (2022): keys and values pass by in tiles,
// the softmax's maximum and sum are corrected as they grow, the scores stay in registers and local memory.
//
// A sub-group has a few query rows. For the scores a work-item has one key of each 16, for the result one column of
// each 16: the product's layout (gpu_product.h), with rows in a vector. The probabilities change hands through local
// memory.
#include "compiler/dialect/shape.h"
#include "lowering/schedule/call_kernel.h"
#include "lowering/schedule/gpu_product.h"
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
  bool engine;
  int64_t lanes;           // of a sub-group
  int64_t depth, columns;  // of a head, in whole blocks
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
std::optional<AttentionTile> chooseTile(const AttentionCall& call, const TargetDescription& target, bool engine) {
  auto whole = [](int64_t size, int64_t block) { return (size + block - 1) / block * block; };
  int64_t depth = call.q.getShape().back(), columns = call.v.getShape().back();
  AttentionTile tile{engine, engine ? target.matrix.n : 16, engine ? whole(depth, engine_depth) : depth, 0};
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
      tile.keys = 16;  // one row, and still too much
  }
  int64_t queries = call.q.getShape()[call.q.getRank() - 2];
  while (tile.subgroups > 1 && ((!ShapedType::isDynamic(queries) && tile.subgroups / 2 * tile.rows >= queries) ||
                                tile.localBytes() > target.local_memory_bytes))
    tile.subgroups /= 2;
  return tile.localBytes() <= target.local_memory_bytes ? std::optional(tile) : std::nullopt;
}

std::optional<AttentionTile> chooseTile(const AttentionCall& call, const TargetDescription& target) {
  Type element = engineElement(call.q.getElementType(), call.k.getElementType(), target);
  if (element && call.v.getElementType() == element)
    if (auto tile = chooseTile(call, target, true))
      return tile;
  return chooseTile(call, target, false);
}

class AttentionSchedule {
public:
  AttentionSchedule(const AttentionCall& call, CallKernel& kernel, const AttentionTile& tile)
      : call_(call), k_(kernel), tile_(tile), depth_(tile.depth), columns_(tile.columns), rows_(tile.rows),
        subgroups_(tile.subgroups), b_(kernel.builder()), loc_(b_.getUnknownLoc()), i_(kernel.math()),
        f32_(b_.getF32Type()), local_(tile.engine ? Type(b_.getI16Type()) : f32_) {}

  void run() {
    result_ = call_.mask ? 4 : 3;
    const StridedTensor &q = k_.tensor(0), &k = k_.tensor(1), &v = k_.tensor(2), &result = k_.tensor(result_);
    rank_ = q.sizes.size();
    AffineExpr m = q.sizes[rank_ - 2], n = k.sizes[rank_ - 2];
    int64_t tile_rows = subgroups_ * rows_;
    AffineExpr batches = getAffineConstantExpr(1, b_.getContext()), tiles = m.ceilDiv(tile_rows);
    for (AffineExpr size : ArrayRef(result.sizes).drop_back(2))
      batches = batches * size;
    LoweredKernel& launch = k_.launch();
    launch.extent = batches * tiles;
    launch.grain = 1;
    launch.schedule = "attention, " + std::to_string(tile_rows) + " query rows per group of " +
                      std::to_string(subgroups_) + " sub-groups, tiles of " + std::to_string(tile_.keys) + " keys" +
                      (tile_.engine ? ", on the matrix engine" : "");
    WorkGroup group(b_, k_.function(), launch, subgroups_ * tile_.lanes, tile_.lanes);

    Value tile_count = k_.expression(tiles);
    Value first_row = i_.multiply(i_.modulo(group.group(), tile_count), tile_rows);
    bindBatch(i_.divide(group.group(), tile_count), result);
    m_ = {k_.expression(m), constantOf(m)};
    n_ = {k_.expression(n), constantOf(n)};
    Extent depth{k_.expression(q.sizes[rank_ - 1]), constantOf(q.sizes[rank_ - 1])},
        columns{k_.expression(v.sizes[rank_ - 1]), constantOf(v.sizes[rank_ - 1])};

    Value queries = group.localArray(local_, tile_.queryElements());
    Value key_tile = group.localArray(local_, tile_.keyElements());
    Value value_tile = group.localArray(local_, tile_.valueElements());
    Value chances = group.localArray(local_, tile_.chanceElements());
    TileSide query_rows{m_, first_row, tile_rows, 1}, query_depth{depth, i_.number(0), depth_, tile_.queryLine()};
    TileSide key_rows{n_, {}, tile_.keys, 1}, key_depth{depth, i_.number(0), depth_, tile_.keyLine()};
    TileSide value_rows{n_, {}, tile_.keys, tile_.valueLine()}, value_columns{columns, i_.number(0), columns_, 1};
    if (tile_.engine) {
      std::swap(query_rows.step, query_depth.step);
      std::swap(key_rows.step, key_depth.step);
      std::swap(value_rows.step, value_columns.step);
    }
    stageTile(b_, group, source(q), local_, query_rows, query_depth, queries);

    Value mine = i_.multiply(group.subgroupIndex(), rows_);
    Value row = i_.add(first_row, mine);
    Value my_chances = i_.multiply(group.subgroupIndex(), tile_.chanceLine() * (tile_.engine ? rows_ : tile_.keys));
    int64_t blocks = columns_ / tile_.lanes;
    // Carried: per row the maximum so far, this work-item's part of the sum, and the result's blocks.
    SmallVector<Value> carried{real(-INFINITY), real(0)};
    carried.append(blocks, real(0));
    Value end = n_.value;
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
      if (tile_.engine)
        scores =
            multiplyOnEngine(group, depth_, mine, {queries, tile_.queryLine()}, {key_tile, tile_.keyLine()}, scores);
      else
        scores = multiply(
            depth_,
            [&](Value step) { return at(group, queries, i_.add(i_.multiply(step, tile_.queryLine()), mine), rows_); },
            [&](Value step, int64_t block) {
              return at(group, key_tile,
                        i_.add(i_.add(i_.multiply(step, tile_.keyLine()), group.lane()), block * tile_.lanes), 1);
            },
            scores);
      SmallVector<SmallVector<Value>> seen;  // per block, per row
      for (auto [block, score] : llvm::enumerate(scores))
        seen.push_back(masked(score, row, i_.add(i_.add(first_key, group.lane()), int64_t(block) * tile_.lanes)));

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
        if (!tile_.engine) {
          Value place = i_.add(my_chances, i_.multiply(key, tile_.chanceLine()));
          LLVM::StoreOp::create(b_, loc_, vector, group.at(chances, f32_, place), 4);
          continue;
        }
        // Rounded as the decomposition's second product has them.
        for (auto [r, value] : llvm::enumerate(values)) {
          Value place = i_.add(i_.add(my_chances, key), int64_t(r) * tile_.chanceLine());
          Value bits = narrowFromF32(b_, loc_, value, k_.tensor(2).element);
          LLVM::StoreOp::create(b_, loc_, bits, group.at(chances, local_, place), 2);
        }
      }
      group.barrier();
      SmallVector<Value> totals;
      for (Value total : loop.getRegionIterArgs().drop_front(2))
        totals.push_back(arith::MulFOp::create(b_, loc_, total, shrink));
      if (tile_.engine)
        totals = multiplyOnEngine(group, tile_.keys, mine, {chances, tile_.chanceLine()},
                                  {value_tile, tile_.valueLine()}, totals);
      else
        totals = multiply(
            tile_.keys,
            [&](Value step) {
              return at(group, chances, i_.add(my_chances, i_.multiply(step, tile_.chanceLine())), rows_);
            },
            [&](Value step, int64_t block) {
              return at(group, value_tile,
                        i_.add(i_.add(i_.multiply(step, tile_.valueLine()), group.lane()), block * tile_.lanes), 1);
            },
            totals);
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
      const StridedTensor& log_sums = k_.tensor(result_ + 1);
      Value at_row = i_.add(row, group.lane());
      OpBuilder::InsertionGuard guard(b_);
      Value exists = i_.both(i_.less(group.lane(), i_.number(rows_)), i_.less(at_row, m_.value));
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
        Value exists = i_.both(i_.less(at_row, m_.value), i_.less(column, columns.value));
        auto branch = scf::IfOp::create(b_, loc_, exists, false);
        b_.setInsertionPointToStart(branch.thenBlock());
        Value value = arith::DivFOp::create(b_, loc_, element(loop.getResult(unsigned(2 + block)), r), sums[r]);
        k_.store(result, k_.offset(result, indices(result, at_row, column)), value);
      }
    }
  }

private:
  Value scalar(double value) const { return constantOfType(b_, loc_, b_.getF32FloatAttr(float(value)), 1); }
  Value real(double value) const { return constantOfType(b_, loc_, b_.getF32FloatAttr(float(value)), unsigned(rows_)); }
  Value element(Value vector, int64_t row) {
    return rows_ == 1 ? vector : vector::ExtractOp::create(b_, loc_, vector, row).getResult();
  }
  Value joined(ArrayRef<Value> values) {
    if (rows_ == 1)
      return values[0];
    return vector::FromElementsOp::create(b_, loc_, VectorType::get({rows_}, f32_), values);
  }
  Value larger(Value x, Value y) {
    Value more = arith::CmpFOp::create(b_, loc_, arith::CmpFPredicate::OGT, y, x);
    return arith::SelectOp::create(b_, loc_, more, y, x);
  }
  Value exponential(Value x, Value base) {
    return math::ExpOp::create(b_, loc_, arith::SubFOp::create(b_, loc_, x, base));
  }
  Value at(WorkGroup& group, Value array, Value place, int64_t lanes) {
    return LLVM::LoadOp::create(b_, loc_, withLanes(f32_, unsigned(lanes)), group.at(array, f32_, place), 4);
  }

  // totals[block] += rows(step) * column(step, block), for `count` steps.
  SmallVector<Value> multiply(int64_t count, llvm::function_ref<Value(Value)> rows,
                              llvm::function_ref<Value(Value, int64_t)> column, SmallVector<Value> totals) {
    int64_t unrolled = count % 4 == 0 ? 4 : 1;
    auto loop = scf::ForOp::create(b_, loc_, i_.number(0), i_.number(count), i_.number(unrolled), totals);
    OpBuilder::InsertionGuard guard(b_);
    b_.setInsertionPointToStart(loop.getBody());
    totals = SmallVector<Value>(loop.getRegionIterArgs());
    for (int64_t ahead = 0; ahead < unrolled; ++ahead) {
      Value step = i_.add(loop.getInductionVar(), ahead);
      Value row = rows(step);
      for (auto [block, total] : llvm::enumerate(totals))
        total = math::FmaOp::create(b_, loc_, row, splat(b_, column(step, int64_t(block)), unsigned(rows_)), total);
    }
    scf::YieldOp::create(b_, loc_, totals);
    return SmallVector<Value>(loop.getResults());
  }

  struct Lines {
    Value array;
    int64_t line;
  };
  // totals[block] += this sub-group's rows * columns of the block, over the `count` innermost elements of each line.
  SmallVector<Value> multiplyOnEngine(WorkGroup& group, int64_t count, Value row, const Lines& rows,
                                      const Lines& columns, SmallVector<Value> totals) {
    Type element = k_.tensor(0).element;
    auto loop = scf::ForOp::create(b_, loc_, i_.number(0), i_.number(count), i_.number(engine_depth), totals);
    OpBuilder::InsertionGuard guard(b_);
    b_.setInsertionPointToStart(loop.getBody());
    totals = SmallVector<Value>(loop.getRegionIterArgs());
    Value k = loop.getInductionVar();
    Value a = engineRows(b_, group, rows.array, rows.line, rows_, row, k);
    for (auto [block, total] : llvm::enumerate(totals)) {
      Value column = i_.add(group.lane(), int64_t(block) * tile_.lanes);
      Value b = engineColumn(b_, group, columns.array, columns.line, column, k);
      total = group.multiplyMatrices(element, a, b, total);
    }
    scf::YieldOp::create(b_, loc_, totals);
    return SmallVector<Value>(loop.getResults());
  }

  void bindBatch(Value batch, const StridedTensor& result) {
    batch_.assign(rank_, Value());
    for (size_t dim = rank_ - 2; dim-- > 0;) {
      if (dim == 0) {
        batch_[0] = batch;
        break;
      }
      Value size = k_.expression(result.sizes[dim]);
      batch_[dim] = i_.modulo(batch, size);
      batch = i_.divide(batch, size);
    }
  }

  // A tensor's indices in this batch: heads that several query heads share are fewer.
  SmallVector<Value> indices(const StridedTensor& tensor, Value row, Value column) {
    SmallVector<Value> result(batch_);
    const StridedTensor& q = k_.tensor(0);
    size_t dropped = rank_ - tensor.sizes.size();
    for (size_t dim = dropped; dim + 2 < rank_; ++dim) {
      auto mine = constantOf(tensor.sizes[dim - dropped]), whole = constantOf(q.sizes[dim]);
      if (mine && whole && *mine > 1 && *mine < *whole)
        result[dim] = i_.divide(result[dim], *whole / *mine);
    }
    result[rank_ - 2] = row;
    result[rank_ - 1] = column;
    return result;
  }

  ProductSource source(const StridedTensor& tensor) {
    ProductSource source;
    source.columns_contiguous =
        constantOf(tensor.strides[rank_ - 2]) != 1 || constantOf(tensor.strides[rank_ - 1]) == 1;
    // A tile's rows need not be a multiple of an access.
    if (source.columns_contiguous)
      source.run = accessRun(tensor.strides[rank_ - 1], tensor.sizes[rank_ - 1], tensor.element);
    source.load = [this, &tensor](Value row, Value column, int64_t run) {
      Value offset = k_.offset(tensor, indices(tensor, row, column));
      return tile_.engine ? k_.loadBits(tensor, offset, run) : k_.load(tensor, offset, run);
    };
    return source;
  }

  // The scores of a block's key for each row: scaled, masked, -inf for a key that does not exist or is not seen.
  SmallVector<Value> masked(Value scores, Value row, Value key) {
    Value hidden = scalar(-INFINITY);
    Value exists = i_.less(key, n_.value);
    SmallVector<Value> result;
    for (int64_t r = 0; r < rows_; ++r) {
      Value at_row = i_.add(row, r);
      Value score = arith::MulFOp::create(b_, loc_, element(scores, r), scalar(call_.scale));
      Value seen = exists;
      if (call_.causal)
        seen = i_.both(seen, i_.less(key, i_.add(at_row, 1)));
      if (call_.mask) {
        const StridedTensor& mask = k_.tensor(3);
        Value safe_row = i_.smaller(at_row, i_.subtract(m_.value, i_.number(1)));
        Value safe_key = i_.smaller(key, i_.subtract(n_.value, i_.number(1)));
        Value offset = k_.offset(mask, ArrayRef(indices(mask, safe_row, safe_key)));
        if (mask.element.isInteger(1)) {
          Value bit = toRegister(b_, loc_, k_.load(mask, offset), mask.element);
          seen = i_.both(seen, bit);
        } else {
          score = arith::AddFOp::create(b_, loc_, score, k_.load(mask, offset));
        }
      }
      result.push_back(arith::SelectOp::create(b_, loc_, seen, score, hidden));
    }
    return result;
  }

  const AttentionCall& call_;
  CallKernel& k_;
  const AttentionTile tile_;
  const int64_t depth_, columns_, rows_, subgroups_;
  OpBuilder& b_;
  Location loc_;
  IndexMath i_;
  Type f32_, local_;  // the latter: what local memory holds
  size_t rank_ = 0;
  unsigned result_ = 3;
  SmallVector<Value> batch_;
  Extent m_, n_;
};

}  // namespace

std::string whyNoAttentionKernel(const AttentionCall& call, const TargetDescription& target) {
  if (target.kind != TargetDescription::Kind::intel_gpu)
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
  for (RankedTensorType operand : {call.k, call.v})
    for (auto [size, whole] : llvm::zip(ArrayRef(shapeOf(operand)).drop_back(2), q)) {
      auto mine = constantOf(size), all = constantOf(whole);
      if (size != whole && mine != 1 && !(mine && all && *mine > 0 && *all % *mine == 0))
        return "the batches of the keys are not known to divide those of the queries";
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
