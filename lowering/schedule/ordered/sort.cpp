// The CPU schedule of a zefuse.sort: a unit is a row. Its elements become keys when they are loaded, 16 in order in a
// register each time. What follows moves whole vectors:
//
// - network: sorted runs of twice the length, pass by pass: a run meets the next one backwards, then distances halve;
// - select (few of many): the best so far stay in order; a vector with nothing better is dropped by one comparison, any
//   other is sorted and moves through them.

#include <algorithm>
#include <cmath>

#include "lowering/schedule/core/index_math.h"
#include "lowering/schedule/core/sort_plan.h"
#include "lowering/schedule/ordered/ordered.h"
#include "lowering/schedule/ordered/sort_network.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/ADT/bit.h"

using namespace mlir;

namespace zefuse {

namespace {

class SortSchedule {
public:
  explicit SortSchedule(const ScheduleContext& context)
      : c_(context), e_(context.evaluator), space_(context.domain.space), form_(*context.domain.sort),
        b_(context.builder()), loc_(context.builder().getUnknownLoc()), i_{b_, loc_}, plan_(planSort(form_, space_)),
        lanes_(plan_.lanes), element_(cast<RankedTensorType>(form_.op.getInput().getType()).getElementType()),
        keys_(b_, loc_, element_, form_.op.getDescending()), network_(b_, loc_, keys_, lanes_) {}

  void run() {
    AffineExpr rows = c_.domain.rowCount();
    Value group = c_.workItem("_Z12get_group_idj");
    makeBuffer(group);
    auto [begin, end] = shareOfGroup(c_, group, rows, c_.strategy.unit_cost);
    size_ = index(space_.size(form_.from));
    capacity_ = index(plan_.capacity);
    Value levels = plan_.select ? Value() : levelCount();
    auto row = e_.openLoop(begin, end, i_.number(1));
    c_.bindPosition(c_.domain.rows, row.index());
    if (plan_.select) {
      clear();
      overVectors([&](SortKey keys) { insert(keys); });
    } else {
      overVectors([&](SortKey keys) { store(place_, network_.sorted(keys)); });
      passes(levels);
    }
    results();
    e_.closeLoop(row);
  }

private:
  Value index(AffineExpr expr) {
    Value value = e_.index(space_.simplify(expr));
    e_.toInnermost();
    return value;
  }

  // `body` once for each `from`, from + step, ... below `to`.
  void loop(Value from, Value to, Value step, llvm::function_ref<void(Value)> body) {
    if (e_.failed())
      return;
    auto op = e_.openLoop(from, to, step);
    body(op.index());
    e_.closeLoop(op);
  }

  //===-- memory -------------------------------------------------------------------------------===//

  void makeBuffer(Value group) {
    e_.toInnermost();
    if (c_.strategy.kept_static) {
      Value count = arith::ConstantOp::create(b_, loc_, b_.getI32IntegerAttr(1));
      Type array = LLVM::LLVMArrayType::get(b_.getI64Type(), *constantOf(plan_.bytes) / 8);
      buffer_ = LLVM::AllocaOp::create(b_, loc_, LLVM::LLVMPointerType::get(b_.getContext()), array, count,
                                       /*alignment=*/64);
      return;
    }
    Value at = i_.multiply(group, index(plan_.bytes));
    Value at64 = arith::IndexCastOp::create(b_, loc_, b_.getI64Type(), at);
    buffer_ = LLVM::GEPOp::create(b_, loc_, c_.scratch.getType(), b_.getI8Type(), c_.scratch,
                                  ArrayRef<LLVM::GEPArg>{at64}, LLVM::GEPNoWrapFlags::inbounds);
  }

  Value address(Value at) {
    Value at64 = arith::IndexCastOp::create(b_, loc_, b_.getI64Type(), at);
    return LLVM::GEPOp::create(b_, loc_, buffer_.getType(), b_.getI64Type(), buffer_, ArrayRef<LLVM::GEPArg>{at64},
                               LLVM::GEPNoWrapFlags::inbounds);
  }

  // The places of wide keys stand behind the keys.
  void store(Value at, SortKey keys) {
    LLVM::StoreOp::create(b_, loc_, keys.key, address(at), 8);
    if (keys.place)
      LLVM::StoreOp::create(b_, loc_, keys.place, address(i_.add(at, capacity_)), 8);
  }
  SortKey load(Value at, unsigned lanes) {
    Type type = withLanes(b_.getI64Type(), lanes);
    SortKey keys;
    keys.key = LLVM::LoadOp::create(b_, loc_, type, address(at), 8);
    if (keys_.wide())
      keys.place = LLVM::LoadOp::create(b_, loc_, type, address(i_.add(at, capacity_)), 8);
    return keys;
  }
  SortKey load(Value at) { return load(at, lanes_); }

  //===-- from the input -----------------------------------------------------------------------===//

  // The row's keys, a vector at a time, with place_ the position of its first lane. Lanes past the row's end sort last.
  void overVectors(llvm::function_ref<void(SortKey)> body) {
    auto vector = [&](Value base, Value limit) {
      e_.bindLanes(form_.from, base, lanes_, true, limit);
      Value element = e_.evaluate(form_.input());
      if (!element)
        return;
      e_.toInnermost();
      element = splat(b_, element, lanes_);
      place_ = base;
      Value base64 = arith::IndexCastOp::create(b_, loc_, b_.getI64Type(), base);
      SmallVector<int64_t> steps = llvm::to_vector(llvm::seq<int64_t>(0, lanes_));
      auto type = VectorType::get({int64_t(lanes_)}, b_.getI64Type());
      Value offsets = arith::ConstantOp::create(b_, loc_, type, DenseIntElementsAttr::get(type, ArrayRef(steps)));
      Value positions = arith::AddIOp::create(b_, loc_, splat(b_, base64, lanes_), offsets);
      SortKey keys = keys_.encode(element, positions);
      if (limit) {
        Value limit64 = arith::IndexCastOp::create(b_, loc_, b_.getI64Type(), limit);
        Value inside =
            arith::CmpIOp::create(b_, loc_, arith::CmpIPredicate::slt, positions, splat(b_, limit64, lanes_));
        SortKey last = keys_.last(lanes_);
        keys.key = arith::SelectOp::create(b_, loc_, inside, keys.key, last.key);
        if (keys.place)
          keys.place = arith::SelectOp::create(b_, loc_, inside, keys.place, last.place);
      }
      body(keys);
    };
    Value lanes = i_.number(lanes_), whole = i_.multiply(i_.divide(size_, lanes_), lanes_);
    loop(i_.number(0), whole, lanes, [&](Value base) { vector(base, Value()); });
    if (auto size = constantOf(space_.size(form_.from)); size && *size % lanes_ == 0)
      return;
    e_.toInnermost();
    loop(whole, size_, lanes, [&](Value base) { vector(base, size_); });
  }

  //===-- network ------------------------------------------------------------------------------===//

  // How often sorted vectors double until they are a row.
  Value levelCount() {
    if (auto capacity = constantOf(plan_.capacity)) {
      int64_t levels = 0;
      while ((int64_t(lanes_) << levels) < *capacity)
        ++levels;
      return i_.number(levels);
    }
    Value zero = i_.number(0);
    auto count = e_.openLoop(zero, i_.number(40), i_.number(1), zero);
    Value length = arith::ShLIOp::create(b_, loc_, i_.number(lanes_), count.index());
    Value more = arith::ExtUIOp::create(b_, loc_, b_.getI64Type(), i_.less(length, capacity_));
    Value next = i_.add(count.carried()[0], arith::IndexCastOp::create(b_, loc_, b_.getIndexType(), more));
    Value levels = e_.closeLoop(count, next)[0];
    e_.toInnermost();
    return levels;
  }

  void exchange(Value low_at, Value high_at, bool backwards) {
    SortKey low = load(low_at), high = load(high_at);
    if (backwards)
      high = network_.reversed(high);
    network_.exchange(low, high);
    store(low_at, low);
    store(high_at, backwards ? network_.reversed(high) : high);
  }

  // Positions past the capacity would hold keys that sort last and never move: they are left out.
  void passes(Value levels) {
    Value zero = i_.number(0), one = i_.number(1), lanes = i_.number(lanes_);
    loop(zero, levels, one, [&](Value level) {
      Value half = arith::ShLIOp::create(b_, loc_, lanes, level), size = i_.add(half, half);
      loop(zero, capacity_, size, [&](Value base) {
        Value end = i_.add(base, size);
        loop(i_.larger(zero, i_.subtract(end, capacity_)), half, lanes,
             [&](Value offset) { exchange(i_.add(base, offset), i_.subtract(i_.subtract(end, lanes), offset), true); });
      });
      loop(zero, level, one, [&](Value step) {
        Value distance = arith::ShRUIOp::create(b_, loc_, half, i_.add(step, one));
        loop(zero, capacity_, i_.add(distance, distance), [&](Value base) {
          Value high = i_.add(base, distance);
          loop(zero, i_.smaller(distance, i_.subtract(capacity_, high)), lanes,
               [&](Value offset) { exchange(i_.add(base, offset), i_.add(high, offset), false); });
        });
      });
      loop(zero, capacity_, lanes, [&](Value at) { store(at, network_.merged(load(at))); });
    });
  }

  //===-- select -------------------------------------------------------------------------------===//

  void clear() {
    e_.toInnermost();
    SortKey last = keys_.last(lanes_);
    loop(i_.number(0), capacity_, i_.number(lanes_), [&](Value at) { store(at, last); });
  }

  void insert(SortKey keys) {
    SortKey worst = load(i_.subtract(capacity_, i_.number(1)), 1);
    worst.key = splat(b_, worst.key, lanes_);
    if (worst.place)
      worst.place = splat(b_, worst.place, lanes_);
    e_.openIf(e_.anyLane(loc_, keys_.less(keys, worst)));
    keys = network_.sorted(keys);
    SmallVector<Value> carried = {keys.key};
    if (keys.place)
      carried.push_back(keys.place);
    // The smaller half of both stays, the larger moves on; past the last it is dropped.
    auto blocks = e_.openLoop(i_.number(0), capacity_, i_.number(lanes_), carried);
    SortKey high{blocks.carried()[0], keys.place ? blocks.carried()[1] : Value()};
    SortKey low = load(blocks.index());
    high = network_.reversed(high);
    network_.exchange(low, high);
    store(blocks.index(), network_.merged(low));
    high = network_.merged(high);
    carried = {high.key};
    if (high.place)
      carried.push_back(high.place);
    e_.closeLoop(blocks, carried);
    e_.closeIf();
  }

  //===-- results ------------------------------------------------------------------------------===//

  void results() {
    e_.toInnermost();
    Value count = index(space_.size(form_.to)), lanes = i_.number(lanes_);
    auto put = [&](Value at, unsigned width) {
      SortKey keys = load(at, width);
      for (const DomainOutput& output : c_.domain.outputs) {
        bool values = output.node.value == form_.op.getValues();
        Value value = values ? keys_.element(keys) : keys_.position(keys);
        e_.store(c_.outputs[output.number], c_.graph.output_offset(space_, output), value,
                 cast<RankedTensorType>(output.node.value.getType()).getElementType());
      }
    };
    Value whole = i_.multiply(i_.divide(count, lanes_), lanes_);
    auto known = constantOf(space_.size(form_.to));
    if (!known || *known >= lanes_)
      loop(i_.number(0), whole, lanes, [&](Value at) {
        e_.bindLanes(form_.to, at, lanes_, true);
        put(at, lanes_);
      });
    if (known && *known % lanes_ == 0)
      return;
    e_.toInnermost();
    loop(whole, count, i_.number(1), [&](Value at) {
      e_.bind(form_.to, at);
      put(at, 1);
    });
  }

  const ScheduleContext& c_;
  Evaluator& e_;
  IndexSpace& space_;
  SortForm& form_;
  OpBuilder& b_;
  Location loc_;
  IndexMath i_;
  SortPlan plan_;
  unsigned lanes_;
  Type element_;
  SortKeys keys_;
  SortNetwork network_;
  Value buffer_, size_, capacity_;
  Value place_;  // of the vector that is being loaded
};

}  // namespace

void scheduleSort(const ScheduleContext& context) { SortSchedule(context).run(); }

}  // namespace zefuse
