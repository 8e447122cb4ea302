// A zefuse.scatter that sums, by partial sums (core/scatter_plan.h): a group owns a range of rows and a block of
// columns, its teams take slices of the updates. Of few rows the group holds all, and a team adds each update of its
// slice where it belongs; of more, a team looks at as many indices at once as it has work-items, and takes those of its
// range one by one. Loads of several updates are under way at a time.
#include <optional>

#include "lowering/schedule/core/index_math.h"
#include "lowering/schedule/gpu/work_group.h"
#include "lowering/schedule/ordered/ordered.h"
#include "lowering/schedule/ordered/scatter_steps.h"

using namespace mlir;

namespace zefuse {
namespace {

constexpr int64_t at_once = 4;         // loads of a team that wait together
constexpr int64_t looked_at = 2;       // the same of indices, a sub-group's width each
constexpr int64_t last_partials = 16;  // so many are added up by one work-item

class ScatterSums : ScatterSteps {
public:
  explicit ScatterSums(const ScheduleContext& context)
      : ScatterSteps(context), i_{b_, loc_}, plan_(*context.strategy.scatter_sums), laned_(context.strategy.row_lanes),
        sum_(partialSumType(element())), memory_(memoryType(sum_)) {}

  void run() {
    for (unsigned dim : c_.domain.rows)
      if (plan_.lanes == 1 || dim != laned_)
        dims_.push_back(dim);
    c_.launch.extent = space_.constant(plan_.ranges * plan_.blocks);
    c_.launch.grain = 1;
    group_.emplace(b_, c_.function, c_.launch, plan_.items(), c_.target.subgroup_size);
    partials_ = group_->localArray(memory_, plan_.items() * plan_.rows * plan_.lanes);
    first_row_ = i_.multiply(i_.divide(group_->group(), plan_.blocks), plan_.rows);
    first_vector_ = i_.multiply(i_.modulo(group_->group(), plan_.blocks), plan_.width);
    team_ = i_.divide(group_->item(), plan_.width);
    place_ = i_.modulo(group_->item(), plan_.width);

    AffineExpr all = space_.product(form_.sequential);
    const int64_t step = plan_.all ? at_once : group_->subgroup();
    AffineExpr slice = space_.simplify(all.ceilDiv(plan_.teams * step)) * step;
    count_ = e_.index(all);
    Value length = e_.index(slice);
    e_.toInnermost();
    Value from = i_.multiply(team_, length), to = i_.smaller(i_.add(from, length), count_);

    Value nothing = nothingYet();
    auto rows = e_.openLoop(i_.number(0), i_.number(plan_.rows), i_.number(1));
    e_.toInnermost();
    storePartial(slot(team_, rows.index(), place_), nothing);
    e_.closeLoop(rows);
    e_.toInnermost();
    e_.openFrame();
    bindVector(i_.smaller(i_.add(first_vector_, place_), i_.number(plan_.vectors - 1)));
    plan_.all ? allUpdates(from, to) : ownUpdates(from, to, constantOf(space_.simplify(slice)));
    e_.suspend();
    e_.toInnermost();
    group_->barrier();
    finish();
  }

private:
  Value word(int64_t number) { return arith::ConstantOp::create(b_, loc_, b_.getI32IntegerAttr(int32_t(number))); }

  // Elements of `partials_`.
  Value slot(Value team, Value row, Value place) {
    Value line = i_.add(i_.multiply(team, plan_.rows), row);
    return i_.multiply(i_.add(i_.multiply(line, plan_.width), place), plan_.lanes);
  }
  unsigned alignment() const { return unsigned(bytesInMemory(sum_) * plan_.lanes); }
  Value loadPartial(Value slot) {
    return LLVM::LoadOp::create(b_, loc_, withLanes(memory_, unsigned(plan_.lanes)),
                                group_->at(partials_, memory_, slot), alignment());
  }
  void storePartial(Value slot, Value value) {
    LLVM::StoreOp::create(b_, loc_, value, group_->at(partials_, memory_, slot), alignment());
  }
  Value add(Value x, Value y) {
    return isa<FloatType>(sum_) ? arith::AddFOp::create(b_, loc_, x, y).getResult()
                                : arith::AddIOp::create(b_, loc_, x, y).getResult();
  }
  // An element of the tensor's as a partial sum.
  Value widened(Value value) {
    if (sum_ != element())
      value = widenToF32(b_, loc_, value, element());
    return splat(b_, value, unsigned(plan_.lanes));
  }

  void bindVector(Value vector) {
    e_.toInnermost();
    if (plan_.lanes > 1) {
      const int64_t blocks = *constantOf(space_.size(laned_)) / plan_.lanes;
      e_.bindLanes(laned_, i_.multiply(dims_.empty() ? vector : i_.modulo(vector, blocks), plan_.lanes),
                   unsigned(plan_.lanes), /*aligned=*/true);
      vector = i_.divide(vector, blocks);
    }
    c_.bindPosition(dims_, vector);
  }

  // What a sum begins with: -0.0, to which -0.0 may be added.
  Value nothingYet() {
    TypedAttr zero = b_.getZeroAttr(sum_);
    if (auto type = dyn_cast<FloatType>(sum_))
      zero = FloatAttr::get(type, APFloat::getZero(type.getFloatSemantics(), /*Negative=*/true));
    return constantOfType(b_, loc_, zero, unsigned(plan_.lanes));
  }

  Value rowOfUpdate() { return e_.index(form_.target.getResult(c_.strategy.scatter_range)); }

  void allUpdates(Value from, Value to) {
    auto loop = e_.openLoop(from, to, i_.number(at_once));
    e_.toInnermost();
    Value nothing = nothingYet();
    SmallVector<std::pair<Value, Value>> updates;  // row, what is added
    for (int64_t number = 0; number < at_once && !e_.failed(); ++number) {
      Value position = i_.add(loop.index(), number);
      e_.openFrame();
      c_.bindPosition(form_.sequential, i_.smaller(position, i_.subtract(count_, i_.number(1))));
      Value row = rowOfUpdate(), update = e_.evaluate(form_.update());
      e_.toInnermost();
      if (!e_.failed())
        updates.emplace_back(
            row, arith::SelectOp::create(b_, loc_, i_.less(position, to), widened(update), nothing).getResult());
      e_.suspend();
      e_.toInnermost();
    }
    for (auto [row, update] : updates) {
      Value at = slot(team_, row, place_);
      storePartial(at, add(loadPartial(at), update));
    }
    e_.closeLoop(loop);
  }

  void ownUpdates(Value from, Value to, std::optional<int64_t> slice) {
    const int64_t lanes = group_->subgroup();
    const int64_t together = slice ? std::clamp<int64_t>(*slice / lanes, 1, looked_at) : looked_at;
    Value last = i_.smaller(i_.add(first_row_, plan_.rows), i_.number(*constantOf(space_.size(form_.fill.front()))));
    auto loop = e_.openLoop(from, to, i_.number(lanes * together));
    e_.toInnermost();
    SmallVector<Value> mine;  // of each sub-group's width of updates: whether this lane's is in the range
    for (int64_t number = 0; number < together; ++number) {
      Value position = i_.add(i_.add(loop.index(), number * lanes), group_->lane());
      e_.openFrame();
      c_.bindPosition(form_.sequential, i_.smaller(position, i_.subtract(count_, i_.number(1))));
      Value row = rowOfUpdate();
      e_.toInnermost();
      if (e_.failed())
        return;
      e_.suspend();
      e_.toInnermost();
      Value inside =
          i_.both(arith::CmpIOp::create(b_, loc_, arith::CmpIPredicate::sge, row, first_row_), i_.less(row, last));
      mine.push_back(i_.both(i_.less(position, to), inside));
    }
    for (auto [number, owned] : llvm::enumerate(mine))
      addOwned(i_.add(loop.index(), int64_t(number) * lanes), owned);
    e_.closeLoop(loop);
  }

  // The updates from `first` on whose lanes' `owned` is true, one after the other.
  void addOwned(Value first, Value owned) {
    const int64_t lanes = group_->subgroup();
    e_.toInnermost();
    Value lane = arith::IndexCastOp::create(b_, loc_, b_.getI32Type(), group_->lane());
    Value found = group_->sumInSubgroup(arith::ExtUIOp::create(b_, loc_, b_.getI32Type(), owned));
    auto each = e_.openLoop(i_.number(0), arith::IndexCastOp::create(b_, loc_, b_.getIndexType(), found), i_.number(1),
                            word(0));
    e_.toInnermost();
    Value waits = arith::AndIOp::create(
        b_, loc_, owned, arith::CmpIOp::create(b_, loc_, arith::CmpIPredicate::sge, lane, each.carried()[0]));
    Value rank = arith::SelectOp::create(b_, loc_, waits, arith::SubIOp::create(b_, loc_, word(lanes), lane), word(0));
    Value next = arith::SubIOp::create(b_, loc_, word(lanes), group_->maximumInSubgroup(rank));
    c_.bindPosition(form_.sequential, i_.add(first, arith::IndexCastOp::create(b_, loc_, b_.getIndexType(), next)));
    Value update = e_.evaluate(form_.update()), row = plan_.rows == 1 ? first_row_ : rowOfUpdate();
    e_.toInnermost();
    if (e_.failed())
      return;
    Value at = slot(team_, i_.subtract(row, first_row_), place_);
    storePartial(at, add(loadPartial(at), widened(update)));
    Value after = arith::AddIOp::create(b_, loc_, next, word(1));
    e_.closeLoop(each, after);
  }

  // Adds the teams' sums up, to the init.
  void finish() {
    const int64_t line = plan_.rows * plan_.width;
    int64_t teams = plan_.teams;
    for (; teams > last_partials; teams /= 2) {
      auto loop = e_.openLoop(group_->item(), i_.number(teams / 2 * line), i_.number(group_->size()));
      e_.toInnermost();
      Value at = i_.multiply(loop.index(), plan_.lanes);
      storePartial(at, add(loadPartial(at), loadPartial(i_.add(at, teams / 2 * line * plan_.lanes))));
      e_.closeLoop(loop);
      e_.toInnermost();
      group_->barrier();
    }
    auto loop = e_.openLoop(group_->item(), i_.number(line), i_.number(group_->size()));
    e_.toInnermost();
    Value row = i_.add(first_row_, i_.divide(loop.index(), plan_.width));
    Value vector = i_.add(first_vector_, i_.modulo(loop.index(), plan_.width));
    e_.openIf(i_.both(i_.less(row, i_.number(*constantOf(space_.size(form_.fill.front())))),
                      i_.less(vector, i_.number(plan_.vectors))));
    e_.bind(form_.fill.front(), row);
    bindVector(vector);
    Value total = e_.evaluate(form_.init());
    e_.toInnermost();
    if (e_.failed())
      return;
    total = widened(total);
    for (int64_t team = 0; team < teams; ++team)
      total = add(total, loadPartial(i_.multiply(i_.add(loop.index(), team * line), plan_.lanes)));
    if (sum_ != element())
      total = narrowFromF32(b_, loc_, total, element());
    e_.store(c_.outputs[0], offset(form_.init_at), total, element());
    e_.closeIf();
    e_.closeLoop(loop);
  }

  IndexMath i_;
  const ScatterSumsPlan& plan_;
  const unsigned laned_;
  const Type sum_, memory_;
  SmallVector<unsigned> dims_;      // free, but the laned one
  std::optional<WorkGroup> group_;  // once launch's extent is known
  Value partials_, count_;          // count_: of updates
  Value first_row_, first_vector_;  // of the group
  Value team_, place_;              // the work-item's: its team, its vector of the group's
};

}  // namespace

void scheduleScatterSums(const ScheduleContext& context) { ScatterSums(context).run(); }

}  // namespace zefuse
