// A zefuse.scatter whose work-groups own ranges of the result's outermost addressed dimension: each fills its part,
// then applies the updates that land there, in order. So the same bits come out whatever the number of groups, without
// atomics, and a table's gradient is filled by the whole device.
//
// Every group looks at all indices, and each of its sub-groups by itself: as many at a time as it has lanes, and those
// that are the group's one after the other. An element is filled and updated by the same work-item, so that nothing
// waits for another sub-group.
#include <optional>

#include "lowering/schedule/core/index_math.h"
#include "lowering/schedule/gpu/work_group.h"
#include "lowering/schedule/ordered/ordered.h"
#include "lowering/schedule/ordered/scatter_steps.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace zefuse {
namespace {

constexpr int64_t most_items = 256;       // of a group
constexpr int64_t symbolic_indices = 64;  // of a group, of a dimension whose size is not known

class GroupScatter : ScatterSteps {
public:
  explicit GroupScatter(const ScheduleContext& context)
      : ScatterSteps(context), i_{b_, loc_}, laned_(context.strategy.row_lanes) {}

  void run() {
    for (unsigned dim : c_.domain.rows)
      if (dim != laned_)
        dims_.push_back(dim);
    AffineExpr columns = space_.product(dims_);
    if (laned_ != Strategy::none) {  // innermost: neighbouring work-items have neighbours in memory
      auto size = constantOf(space_.size(laned_));
      lanes_ = size ? std::max<int64_t>(1, c_.target.access_bytes / bytesInMemory(element())) : 1;
      while (lanes_ > 1 && *size % lanes_ != 0)
        lanes_ /= 2;
      columns = columns * space_.size(laned_).floorDiv(lanes_);
    }
    columns = space_.simplify(columns);
    const int64_t subgroup = c_.target.subgroup_size;
    auto known = constantOf(columns);
    const int64_t items = std::min(
        known ? int64_t(llvm::alignTo(uint64_t(std::max<int64_t>(1, *known)), uint64_t(subgroup))) : most_items,
        most_items);
    const unsigned split = form_.fill.front();
    auto size = constantOf(space_.size(split));
    const int64_t groups = std::max<int64_t>(1, c_.target.resident_items / items);
    const int64_t each = size ? std::max<int64_t>(1, (*size + groups - 1) / groups) : symbolic_indices;
    c_.launch.extent = space_.size(split);
    c_.launch.grain = each;
    group_.emplace(b_, c_.function, c_.launch, items, subgroup);

    columns_ = e_.index(columns);
    Value end = e_.index(space_.size(split));
    e_.toInnermost();
    Value first = i_.multiply(group_->group(), each), last = i_.smaller(end, i_.add(first, each));
    if (!form_.in_place) {
      auto mine = e_.openLoop(first, last, i_.number(1));
      e_.bind(split, mine.index());
      loops(ArrayRef(form_.fill).drop_front(), [&] { everywhere([&] { fill(); }); });
      e_.closeLoop(mine);
    }
    updates(first, last);
  }

private:
  Value word(int64_t number) { return arith::ConstantOp::create(b_, loc_, b_.getI32IntegerAttr(int32_t(number))); }

  void updates(Value first, Value last) {
    Value count = e_.index(space_.product(form_.sequential));
    e_.toInnermost();
    const int64_t lanes = group_->subgroup();
    Value lane = arith::IndexCastOp::create(b_, loc_, b_.getI32Type(), group_->lane());
    auto loop = e_.openLoop(i_.number(0), count, i_.number(lanes));
    e_.toInnermost();
    Value position = i_.add(loop.index(), group_->lane());
    Value exists = i_.less(position, count);
    // What is known of this lane's update ends here: below, the sub-group is at one update.
    e_.openFrame();
    c_.bindPosition(form_.sequential, i_.smaller(position, i_.subtract(count, i_.number(1))));
    Value at = e_.index(form_.target.getResult(c_.strategy.scatter_range));
    e_.toInnermost();
    if (e_.failed())
      return;
    e_.suspend();
    e_.toInnermost();
    Value below = arith::CmpIOp::create(b_, loc_, arith::CmpIPredicate::slt, at, first);
    Value before = i_.less(at, last);
    Value mine = arith::SelectOp::create(b_, loc_, below, arith::ConstantOp::create(b_, loc_, b_.getBoolAttr(false)),
                                         i_.both(exists, before));
    Value found = group_->sumInSubgroup(arith::ExtUIOp::create(b_, loc_, b_.getI32Type(), mine));
    auto each = e_.openLoop(i_.number(0), arith::IndexCastOp::create(b_, loc_, b_.getIndexType(), found), i_.number(1),
                            word(0));
    e_.toInnermost();
    Value from = each.carried()[0];
    Value waits =
        arith::AndIOp::create(b_, loc_, mine, arith::CmpIOp::create(b_, loc_, arith::CmpIPredicate::sge, lane, from));
    Value rank = arith::SelectOp::create(b_, loc_, waits, arith::SubIOp::create(b_, loc_, word(lanes), lane), word(0));
    Value next = arith::SubIOp::create(b_, loc_, word(lanes), group_->maximumInSubgroup(rank));
    Value number = arith::IndexCastOp::create(b_, loc_, b_.getIndexType(), next);
    c_.bindPosition(form_.sequential, i_.add(loop.index(), number));
    everywhere([&] { update(); });
    e_.toInnermost();
    Value after = arith::AddIOp::create(b_, loc_, next, word(1));
    e_.closeLoop(each, after);
    e_.closeLoop(loop);
  }

  // The work-item's share of the dims that no index addresses.
  template <typename Body> void everywhere(Body body) {
    if (e_.failed())
      return;
    e_.toInnermost();
    auto loop = e_.openLoop(group_->item(), columns_, i_.number(group_->size()));
    e_.toInnermost();
    Value position = loop.index();
    if (laned_ != Strategy::none) {
      AffineExpr blocks = space_.simplify(space_.size(laned_).floorDiv(lanes_));
      Value count = e_.index(blocks);
      e_.toInnermost();
      Value block = dims_.empty() ? position : i_.modulo(position, count);
      position = dims_.empty() ? position : i_.divide(position, count);
      e_.bindLanes(laned_, i_.multiply(block, lanes_), unsigned(lanes_), /*aligned=*/true);
    }
    c_.bindPosition(dims_, position);
    body();
    e_.closeLoop(loop);
  }

  IndexMath i_;
  const unsigned laned_;
  int64_t lanes_ = 1;
  SmallVector<unsigned> dims_;      // free, but the laned one
  Value columns_;                   // vectors of an update
  std::optional<WorkGroup> group_;  // once launch's extent is known
};

}  // namespace

void scheduleGroupScatter(const ScheduleContext& context) { GroupScatter(context).run(); }

}  // namespace zefuse
