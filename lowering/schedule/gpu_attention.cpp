// Scaled dot product attention on a GPU, after Dao et al., "FlashAttention" (2022): keys and values pass by in tiles,
// the softmax's maximum and sum are corrected as they grow, the scores stay in registers and local memory.
//
// A sub-group has a few query rows. For the scores a work-item has one key of each 16, for the result one column of
// each 16: the product's layout (gpu_product.h), with rows in a vector. The probabilities change hands through local
// memory.
#include "lowering/schedule/call_kernel.h"
#include "lowering/schedule/gpu_product.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;

namespace zefuse {
namespace {

constexpr int64_t width = ProductTile::block_columns;
constexpr int64_t keys = 2 * width;       // of a tile
constexpr int64_t score_bytes = 1 << 10;  // of registers, for the scores and the softmax

class AttentionSchedule {
public:
  AttentionSchedule(const AttentionCall& call, CallKernel& kernel, const TargetDescription& target)
      : call_(call), k_(kernel), target_(target), b_(kernel.builder()), loc_(b_.getUnknownLoc()), i_(kernel.math()),
        f32_(b_.getF32Type()) {}

  // Bytes of local memory; rows and sub-groups as chosen.
  int64_t choose(int64_t depth, int64_t columns) {
    depth_ = depth;
    columns_ = (columns + width - 1) / width * width;
    rows_ = 8;
    while (rows_ > 1 && rows_ * columns_ * 4 > target_.accumulator_bytes - score_bytes)
      rows_ /= 2;
    int64_t bytes = 0;
    for (subgroups_ = 8; subgroups_ >= 1; subgroups_ /= 2) {
      bytes = 4 * (depth_ * queryStride() + depth_ * keyStride() + keys * columns_ + subgroups_ * keys * rows_);
      if (bytes <= target_.local_memory_bytes)
        break;
    }
    return bytes;
  }

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
                      std::to_string(subgroups_) + " sub-groups, tiles of " + std::to_string(keys) + " keys";
    WorkGroup group(b_, k_.function(), launch, subgroups_ * width, width);

    Value tile_count = k_.expression(tiles);
    Value first_row = i_.multiply(i_.modulo(group.group(), tile_count), tile_rows);
    bindBatch(i_.divide(group.group(), tile_count), result);
    m_ = {k_.expression(m), constantOf(m)};
    n_ = {k_.expression(n), constantOf(n)};
    Extent depth{i_.number(depth_), depth_}, columns{k_.expression(v.sizes[rank_ - 1]), constantOf(v.sizes[rank_ - 1])};

    Value queries = group.localArray(f32_, depth_ * queryStride());
    Value key_tile = group.localArray(f32_, depth_ * keyStride());
    Value value_tile = group.localArray(f32_, keys * columns_);
    Value chances = group.localArray(f32_, subgroups_ * keys * rows_);
    stageTile(b_, group, source(q), f32_, {m_, first_row, tile_rows, 1}, {depth, i_.number(0), depth_, queryStride()},
              queries);

    Value mine = i_.multiply(group.subgroupIndex(), rows_);
    Value row = i_.add(first_row, mine);
    Value my_chances = i_.multiply(group.subgroupIndex(), keys * rows_);
    int64_t blocks = columns_ / width;
    // Carried: per row the maximum so far, this work-item's part of the sum, and the result's blocks.
    SmallVector<Value> carried{real(-INFINITY), real(0)};
    carried.append(blocks, real(0));
    Value end = n_.value;
    if (call_.causal)
      end = i_.smaller(end, i_.add(first_row, tile_rows));
    auto loop = scf::ForOp::create(b_, loc_, i_.number(0), end, i_.number(keys), carried);
    {
      OpBuilder::InsertionGuard guard(b_);
      b_.setInsertionPointToStart(loop.getBody());
      Value first_key = loop.getInductionVar();
      stageTile(b_, group, source(k), f32_, {n_, first_key, keys, 1}, {depth, i_.number(0), depth_, keyStride()},
                key_tile);
      stageTile(b_, group, source(v), f32_, {n_, first_key, keys, columns_}, {columns, i_.number(0), columns_, 1},
                value_tile);
      group.barrier();
      SmallVector<Value> scores = multiply(
          depth_, [&](Value step) { return at(group, queries, i_.add(i_.multiply(step, queryStride()), mine), rows_); },
          [&](Value step, int64_t block) {
            return at(group, key_tile, i_.add(i_.add(i_.multiply(step, keyStride()), group.lane()), block * width), 1);
          },
          SmallVector<Value>(keys / width, real(0)));
      SmallVector<SmallVector<Value>> seen;  // per block, per row
      for (auto [block, score] : llvm::enumerate(scores))
        seen.push_back(masked(score, row, i_.add(i_.add(first_key, group.lane()), int64_t(block) * width)));

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
        Value place = i_.multiply(i_.add(group.lane(), int64_t(block) * width), rows_);
        LLVM::StoreOp::create(b_, loc_, vector, group.at(chances, f32_, i_.add(my_chances, place)), 4);
      }
      group.barrier();
      SmallVector<Value> totals;
      for (Value total : loop.getRegionIterArgs().drop_front(2))
        totals.push_back(arith::MulFOp::create(b_, loc_, total, shrink));
      totals = multiply(
          keys, [&](Value step) { return at(group, chances, i_.add(my_chances, i_.multiply(step, rows_)), rows_); },
          [&](Value step, int64_t block) {
            return at(group, value_tile, i_.add(i_.add(i_.multiply(step, columns_), group.lane()), block * width), 1);
          },
          totals);
      group.barrier();  // before the next tiles overwrite what is read here
      SmallVector<Value> next{joined(tops), sum};
      next.append(totals);
      scf::YieldOp::create(b_, loc_, next);
    }

    SmallVector<Value> sums;
    for (int64_t r = 0; r < rows_; ++r) {
      Value sum = group.sumInSubgroup(element(loop.getResult(1), r));
      if (call_.empty_rows_are_zero) {  // 0 / 1 instead of 0 / 0
        Value none = arith::CmpFOp::create(b_, loc_, arith::CmpFPredicate::OEQ, sum, scalar(0));
        sum = arith::SelectOp::create(b_, loc_, none, scalar(1), sum);
      }
      sums.push_back(sum);
    }
    for (int64_t block = 0; block < blocks; ++block) {
      Value column = i_.add(group.lane(), block * width);
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
  // Rows of local memory, padded so that neighbouring keys or rows lie in different banks.
  int64_t queryStride() const { return subgroups_ * rows_ + 4; }
  int64_t keyStride() const { return keys + 1; }

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
      return k_.load(tensor, k_.offset(tensor, indices(tensor, row, column)), run);
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
  const TargetDescription& target_;
  OpBuilder& b_;
  Location loc_;
  IndexMath i_;
  Type f32_;
  size_t rank_ = 0;
  unsigned result_ = 3;
  int64_t depth_ = 0, columns_ = 0, rows_ = 8, subgroups_ = 8;
  SmallVector<Value> batch_;
  Extent m_, n_;
};

}  // namespace

FailureOr<ScheduledKernel> scheduleAttention(Operation* op, const AttentionCall& call,
                                             const TargetDescription& target) {
  auto refuse = [&](const Twine& reason) { return op->emitError() << "attention: " << reason, failure(); };
  if (target.kind != TargetDescription::Kind::intel_gpu)
    return refuse("has a kernel of its own on GPU targets only");
  SmallVector<Type> operands{call.q, call.k, call.v};
  if (call.mask)
    operands.push_back(call.mask);
  operands.push_back(call.result);
  for (Type operand : operands) {
    Type element = getElementTypeOrSelf(operand);
    bool boolean = call.mask && operand == Type(call.mask) && element.isInteger(1);
    if (!boolean && !element.isF32() && !element.isF16() && !element.isBF16())
      return refuse("no GPU kernel for elements of another type than f32, f16 and bf16");
  }
  int64_t rank = call.result.getRank();
  if (rank < 3 || call.q.getRank() != rank || call.k.getRank() != rank || call.v.getRank() != rank)
    return refuse("wants q, k, v and result of one rank, 3 or more");
  int64_t depth = call.q.getShape().back(), columns = call.v.getShape().back();
  if (depth <= 0 || columns <= 0)
    return refuse("the sizes of a head must be known and not 0");
  CallKernel kernel(op, "attention", operands, 1, call.layouts);
  if (!kernel.ok())
    return refuse(kernel.refusal());
  AttentionSchedule schedule(call, kernel, target);
  if (schedule.choose(depth, columns) > target.local_memory_bytes)
    return refuse("heads of " + Twine(depth) + " and " + Twine(columns) + " elements do not fit into local memory");
  schedule.run();
  return kernel.finish();
}

}  // namespace zefuse
