// The Intel GPU schedule of a zefuse.sort: a group per row, whose keys stand in local memory, or in the launch's
// scratch memory when they are too many or their number is symbolic. The network's steps are separated by barriers: in
// each, a work-item takes pairs of keys in turn. Pairs that reach past the row are left out (they would not move).
#include <algorithm>

#include "lowering/schedule/core/index_math.h"
#include "lowering/schedule/core/sort_plan.h"
#include "lowering/schedule/gpu/work_group.h"
#include "lowering/schedule/ordered/ordered.h"
#include "lowering/schedule/ordered/sort_keys.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "llvm/ADT/bit.h"

using namespace mlir;

namespace zefuse {

namespace {

constexpr int64_t symbolic_sort_group = 256;  // work-items of a row whose length is not known
constexpr int64_t largest_sort_group = 512;   // work-items

class GpuSort {
public:
  explicit GpuSort(const ScheduleContext& context)
      : c_(context), e_(context.evaluator), space_(context.domain.space), form_(*context.domain.sort),
        b_(context.builder()), loc_(context.builder().getUnknownLoc()), i_{b_, loc_},
        element_(cast<RankedTensorType>(form_.op.getInput().getType()).getElementType()),
        keys_(b_, loc_, element_, form_.op.getDescending()), length_(constantOf(space_.size(form_.from))),
        group_(b_, c_.function, c_.launch, groupSize(), 0) {}

  void run() {
    c_.launch.extent = c_.domain.rowCount();
    c_.launch.grain = 1;
    size_ = index(space_.size(form_.from));
    makeBuffer();
    c_.bindPosition(c_.domain.rows, group_.group());
    e_.toInnermost();
    eachItem(size_, [&](Value at) {
      e_.bind(form_.from, at);
      Value element = e_.evaluate(form_.input());
      if (!element)
        return;
      e_.toInnermost();
      store(at, keys_.encode(element, arith::IndexCastOp::create(b_, loc_, b_.getI64Type(), at)));
    });
    if (e_.failed())
      return;
    e_.toInnermost();
    barrier();
    steps();
    eachItem(index(space_.size(form_.to)), [&](Value at) {
      e_.bind(form_.to, at);
      SortKey key = load(at);
      for (const DomainOutput& output : c_.domain.outputs) {
        Value value = output.node.value == form_.op.getValues() ? keys_.element(key) : keys_.position(key);
        e_.store(c_.outputs[output.number], c_.graph.output_offset(space_, output), value,
                 cast<RankedTensorType>(output.node.value.getType()).getElementType());
      }
    });
  }

private:
  int64_t groupSize() const {
    if (!length_)
      return std::min<int64_t>(symbolic_sort_group, c_.target.max_group_size);
    int64_t pairs = llvm::bit_ceil(uint64_t(std::max<int64_t>(*length_, 2))) / 2;
    return std::clamp<int64_t>(pairs, c_.target.subgroup_size,
                               std::min<int64_t>(largest_sort_group, c_.target.max_group_size));
  }

  Value index(AffineExpr expr) {
    Value value = e_.index(space_.simplify(expr));
    e_.toInnermost();
    return value;
  }

  // `body` for this work-item's share of 0..count.
  void eachItem(Value count, llvm::function_ref<void(Value)> body) {
    auto loop = e_.openLoop(group_.item(), count, i_.number(group_.size()));
    body(loop.index());
    e_.closeLoop(loop);
  }

  //===-- memory -------------------------------------------------------------------------------===//

  void makeBuffer() {
    Type i64 = b_.getI64Type();
    if (c_.strategy.kept_static) {
      int64_t count = std::max<int64_t>(*length_, 1);
      key_array_ = group_.localArray(i64, count);
      if (keys_.wide())
        place_array_ = group_.localArray(i64, count);
      return;
    }
    Value bytes = i_.multiply(group_.group(), index(c_.strategy.kept_bytes));
    Value at = arith::IndexCastOp::create(b_, loc_, i64, bytes);
    key_array_ = LLVM::GEPOp::create(b_, loc_, c_.scratch.getType(), b_.getI8Type(), c_.scratch,
                                     ArrayRef<LLVM::GEPArg>{at}, LLVM::GEPNoWrapFlags::inbounds);
    if (keys_.wide())
      place_array_ = group_.at(key_array_, i64, size_);
  }

  void barrier() { group_.barrier(/*global=*/!c_.strategy.kept_static); }

  void store(Value at, const SortKey& key) {
    LLVM::StoreOp::create(b_, loc_, key.key, group_.at(key_array_, b_.getI64Type(), at), 8);
    if (key.place)
      LLVM::StoreOp::create(b_, loc_, key.place, group_.at(place_array_, b_.getI64Type(), at), 8);
  }
  SortKey load(Value at) {
    Type i64 = b_.getI64Type();
    SortKey key;
    key.key = LLVM::LoadOp::create(b_, loc_, i64, group_.at(key_array_, i64, at), 8);
    if (keys_.wide())
      key.place = LLVM::LoadOp::create(b_, loc_, i64, group_.at(place_array_, i64, at), 8);
    return key;
  }

  //===-- network ------------------------------------------------------------------------------===//

  // How often a run of one key doubles until it is a row.
  Value levelCount() {
    if (length_) {
      int64_t levels = 0;
      while ((int64_t(1) << levels) < *length_)
        ++levels;
      return i_.number(levels);
    }
    Value zero = i_.number(0), one = i_.number(1);
    auto count = e_.openLoop(zero, i_.number(40), one, zero);
    Value more = i_.less(arith::ShLIOp::create(b_, loc_, one, count.index()), size_);
    Value next = arith::SelectOp::create(b_, loc_, more, i_.add(count.carried()[0], one), count.carried()[0]);
    Value levels = e_.closeLoop(count, next)[0];
    e_.toInnermost();
    return levels;
  }

  void steps() {
    Value zero = i_.number(0), one = i_.number(1);
    auto shifted = [&](Value value, Value by) -> Value { return arith::ShLIOp::create(b_, loc_, value, by); };
    Value levels = levelCount();
    Value pairs = arith::ShRUIOp::create(b_, loc_, shifted(one, levels), one);
    auto level = e_.openLoop(zero, levels, one);  // runs of 2^level keys meet
    auto step = e_.openLoop(zero, i_.add(level.index(), one), one);
    Value exponent = i_.subtract(level.index(), step.index()), distance = shifted(one, exponent);
    // The first step of a level pairs a run with the next one backwards, the others keys `distance` apart.
    Value whole = i_.subtract(i_.add(distance, distance), one);
    Value mask = arith::SelectOp::create(b_, loc_, i_.equal(step.index(), zero), whole, distance);
    eachItem(pairs, [&](Value pair) {
      Value below = arith::AndIOp::create(b_, loc_, pair, i_.subtract(distance, one));
      Value run = shifted(arith::ShRUIOp::create(b_, loc_, pair, exponent), i_.add(exponent, one));
      Value low_at = i_.add(run, below), high_at = arith::XOrIOp::create(b_, loc_, low_at, mask);
      e_.openIf(i_.less(high_at, size_));
      SortKey low = load(low_at), high = load(high_at);
      e_.openIf(keys_.less(high, low));
      store(low_at, high);
      store(high_at, low);
      e_.closeIf();
      e_.closeIf();
    });
    e_.toInnermost();
    barrier();
    e_.closeLoop(step);
    e_.closeLoop(level);
    e_.toInnermost();
  }

  const ScheduleContext& c_;
  Evaluator& e_;
  IndexSpace& space_;
  SortForm& form_;
  OpBuilder& b_;
  Location loc_;
  IndexMath i_;
  Type element_;
  SortKeys keys_;
  std::optional<int64_t> length_;
  WorkGroup group_;
  Value size_, key_array_, place_array_;
};

}  // namespace

void scheduleGpuSort(const ScheduleContext& context) { GpuSort(context).run(); }

}  // namespace zefuse
