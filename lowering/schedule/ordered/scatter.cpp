// The schedule of a zefuse.scatter: deterministic on any number of threads, since rows touch different elements and
// each row's updates come in order.
//
// - Groups of one work-item: a unit is a row, or a vector of rows (lanes); a group takes consecutive units. Or a unit
//   is an index of the result's outermost addressed dimension, and a group passes over the updates of others.
//   Where only the fill has lanes, a vector's rows take their updates one by one.
// - In place: the result's memory holds the init, and an update whose index is out of bounds stores nothing.
// - Larger groups: a row per work-item, or ranges of the result (gpu_scatter.cpp).
#include "lowering/schedule/ordered/ordered.h"
#include "lowering/schedule/ordered/scatter_steps.h"

using namespace mlir;

namespace zefuse {
namespace {

class ScatterSchedule : ScatterSteps {
public:
  explicit ScatterSchedule(const ScheduleContext& context) : ScatterSteps(context) {}

  void run() { c_.target.hasWorkGroups() ? rowPerItem() : shares(); }

private:
  void rowPerItem() {
    int group_size = c_.target.max_group_size;
    c_.launch.chunked = false;
    c_.launch.group_size = {uint32_t(group_size), 1, 1};
    c_.launch.grain = group_size;
    c_.launch.extent = c_.domain.rowCount();
    c_.function->setAttr("zefuse.group_size", b_.getI64IntegerAttr(group_size));
    Value group = c_.workItem("_Z12get_group_idj"), local = c_.workItem("_Z12get_local_idj");
    Value extent = e_.index(c_.launch.extent);
    e_.toInnermost();
    Value size = constantIndex(b_, loc_, group_size);
    Value item = arith::AddIOp::create(b_, loc_, arith::MulIOp::create(b_, loc_, group, size), local);
    e_.openIf(arith::CmpIOp::create(b_, loc_, arith::CmpIPredicate::slt, item, extent));
    c_.bindPosition(c_.domain.rows, item);
    auto once = [](auto body) { body(); };
    row(once, once);
    e_.closeIf();
  }

  void shares() {
    laned_ = c_.strategy.row_lanes;
    SmallVector<unsigned> line_dims;
    AffineExpr blocks = space_.constant(1);
    for (unsigned dim : c_.domain.rows)
      if (dim != laned_)
        line_dims.push_back(dim);
    AffineExpr lines = space_.product(line_dims);
    if (laned_ != Strategy::none) {
      lanes_ = lanesFor(space_, laned_, c_.target);
      blocks = space_.size(laned_).ceilDiv(lanes_);
    }
    if (c_.strategy.scatter_range != Strategy::none)
      return ranges(line_dims, blocks);
    Value group = c_.workItem("_Z12get_group_idj");
    auto [begin, end] = shareOfGroup(c_, group, space_.simplify(lines * blocks), c_.strategy.unit_cost);
    Value one = constantIndex(b_, loc_, 1), zero = constantIndex(b_, loc_, 0);
    Value per_line = atLeastOne(c_, blocks);
    Value up = arith::AddIOp::create(b_, loc_, end, arith::SubIOp::create(b_, loc_, per_line, one));
    auto loop = e_.openLoop(arith::DivUIOp::create(b_, loc_, begin, per_line),
                            arith::DivUIOp::create(b_, loc_, up, per_line), one);
    c_.bindPosition(line_dims, loop.index());
    e_.toInnermost();
    Value start = arith::MulIOp::create(b_, loc_, loop.index(), per_line);
    Value low = arith::MaxSIOp::create(b_, loc_, arith::SubIOp::create(b_, loc_, begin, start), zero);
    Value high = arith::MinSIOp::create(b_, loc_, arith::SubIOp::create(b_, loc_, end, start), per_line);
    auto vectors = [&](auto body) { overLanes(low, high, body); };
    if (c_.strategy.scatter_fill_lanes)
      row(vectors, [&](auto body) { overElements(low, high, body); });
    else
      row(vectors, vectors);
    e_.closeLoop(loop);
  }

  void ranges(ArrayRef<unsigned> line_dims, AffineExpr blocks) {
    unsigned split = form_.fill.front();
    Value group = c_.workItem("_Z12get_group_idj");
    auto [begin, end] = shareOfGroup(c_, group, space_.size(split), c_.strategy.unit_cost);
    Value first = begin, last = end, high = e_.index(space_.simplify(blocks));
    e_.toInnermost();
    Value low = constantIndex(b_, loc_, 0);
    auto everywhere = [&](auto body) { loops(line_dims, [&] { overLanes(low, high, body); }); };
    auto mine = e_.openLoop(first, last, constantIndex(b_, loc_, 1));
    e_.bind(split, mine.index());
    if (!form_.in_place)
      loops(ArrayRef(form_.fill).drop_front(), [&] { everywhere([&] { fill(); }); });
    e_.closeLoop(mine);
    loops(form_.sequential, [&] {
      Value at = e_.index(form_.target.getResult(c_.strategy.scatter_range));
      if (e_.failed())
        return;
      e_.toInnermost();
      Value inside =
          arith::AndIOp::create(b_, loc_, arith::CmpIOp::create(b_, loc_, arith::CmpIPredicate::sge, at, first),
                                arith::CmpIOp::create(b_, loc_, arith::CmpIPredicate::slt, at, last));
      e_.openIf(inside);
      everywhere([&] { update(); });
      e_.closeIf();
    });
  }

  // A row's init, then its updates; both arguments run theirs once, or for each row or vector of rows.
  template <typename Filled, typename Updated> void row(Filled filled, Updated updated) {
    if (!form_.in_place)
      loops(form_.fill, [&] { filled([&] { fill(); }); });
    loops(form_.sequential, [&] { updated([&] { update(); }); });
  }

  // The elements of vectors number low..high of the laned dim, one by one.
  template <typename Body> void overElements(Value low, Value high, Body body) {
    Value size = e_.index(space_.size(laned_));
    e_.toInnermost();
    Value width = constantIndex(b_, loc_, lanes_);
    Value last = arith::MinSIOp::create(b_, loc_, arith::MulIOp::create(b_, loc_, high, width), size);
    auto loop = e_.openLoop(arith::MulIOp::create(b_, loc_, low, width), last, constantIndex(b_, loc_, 1));
    e_.bind(laned_, loop.index());
    body();
    e_.closeLoop(loop);
  }

  // Vectors number low..high of the laned dim; what is left of the dim goes one by one, since a vector that repeats
  // elements would change them twice.
  template <typename Body> void overLanes(Value low, Value high, Body body) {
    if (laned_ == Strategy::none)
      return body();
    AffineExpr whole = space_.simplify(space_.size(laned_).floorDiv(lanes_));
    Value full = e_.index(whole), size = e_.index(space_.size(laned_));
    e_.toInnermost();
    Value one = constantIndex(b_, loc_, 1), width = constantIndex(b_, loc_, lanes_);
    auto loop = e_.openLoop(low, arith::MinSIOp::create(b_, loc_, high, full), one);
    e_.bindLanes(laned_, arith::MulIOp::create(b_, loc_, loop.index(), width), lanes_, true);
    body();
    e_.closeLoop(loop);
    auto known = constantOf(space_.size(laned_));
    if (known && *known % lanes_ == 0)
      return;
    e_.toInnermost();
    Value rest = arith::MulIOp::create(b_, loc_, full, width);
    Value mine = arith::CmpIOp::create(b_, loc_, arith::CmpIPredicate::sgt, high, full);
    auto tail = e_.openLoop(arith::SelectOp::create(b_, loc_, mine, rest, size), size, one);
    e_.bind(laned_, tail.index());
    body();
    e_.closeLoop(tail);
  }

  unsigned laned_ = Strategy::none;
  int64_t lanes_ = 1;
};

}  // namespace

void scheduleScatter(const ScheduleContext& context) {
  if (context.strategy.scatter_sums)
    return scheduleScatterSums(context);
  if (context.target.hasWorkGroups() && context.strategy.scatter_range != Strategy::none)
    return scheduleGroupScatter(context);
  ScatterSchedule(context).run();
}

}  // namespace zefuse
