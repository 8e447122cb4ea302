#include "lowering/schedule/gpu/row_walk.h"

#include "lowering/schedule/core/stages.h"
#include "lowering/schedule/gpu/held_values.h"

using namespace mlir;

namespace zefuse {
namespace {

SmallVector<unsigned> without(ArrayRef<unsigned> dims, unsigned laned) {
  return llvm::filter_to_vector(dims, [&](unsigned dim) { return dim != laned; });
}

}  // namespace

RowWalk::RowWalk(const ScheduleContext& context, const AccessLanes& access)
    : c_(context), access_(access), e_(context.evaluator), space_(context.domain.space), b_(context.builder()),
      i_{context.builder(), context.builder().getUnknownLoc()} {}

Value RowWalk::emitted(AffineExpr expr) {
  Value value = e_.index(space_.simplify(expr));
  e_.toInnermost();
  return value;
}

// The positions of `count` that this work-item takes: as many as all take, then perhaps one more. bind(position)
// binds its dims; emit(carried) returns what to carry on. `sums`: null, or what is carried are those reductions'
// partial results. `held`: null, or what is held of them.
SmallVector<Value> RowWalk::positions(const Walk& walk, AffineExpr count, SmallVector<Value> carried,
                                      const LongTotals* sums, InRegisters* held, Bind bind, Step emit) {
  auto body = [&](Value position, ValueRange values) {
    bind(position);
    return emit(values);
  };
  auto inOwnFrame = [&](Value position, SmallVector<Value> values) {
    e_.openFrame();
    SmallVector<Value> next = body(position, values);
    e_.suspend();
    return next;
  };
  // `trips`: how many there are, if that is known.
  auto loop = [&](Value from, Value to, int64_t step, llvm::function_ref<Value(Value)> position,
                  SmallVector<Value> values, std::optional<int64_t> trips = std::nullopt) {
    if (const int64_t together = sums && trips ? roundsTogether(*trips) : 1; together > 1) {
      auto at = [&](Value index, int64_t round) { return position(add(index, number(round * step))); };
      const int64_t whole = *trips > together ? *trips / together * together : 0;
      SmallVector<Value> next = values;
      if (whole > 0) {
        auto op = e_.openLoop(from, add(from, number(whole * step)), number(step * together), values);
        next = SmallVector<Value>(op.carried());
        for (int64_t round = 0; round < together && !e_.failed(); ++round)
          next = inOwnFrame(at(op.index(), round), next);
        if (e_.failed())
          return values;
        e_.toInnermost();
        next = SmallVector<Value>(e_.closeLoop(op, next));
        e_.toInnermost();
      }
      for (int64_t round = whole; round < *trips && !e_.failed(); ++round)
        next = inOwnFrame(at(from, round), next);
      return next;
    }
    auto op = e_.openLoop(from, to, number(step), values);
    SmallVector<Value> next = body(position(op.index()), op.carried());
    return e_.failed() ? values : SmallVector<Value>(e_.closeLoop(op, next));
  };
  auto long_loop = [&](Value from, Value to, int64_t step, llvm::function_ref<Value(Value)> position,
                       std::optional<int64_t> trips = std::nullopt) {
    unsigned lanes = lanesOf(carried.front());
    int64_t block = step * sum_block;
    auto op = e_.openLoop(from, to, number(block), sums->start(lanes));
    e_.toInnermost();
    Value last = i_.smaller(add(op.index(), number(block)), to);
    if (trips && *trips % sum_block == 0)
      trips = sum_block;  // of each block
    else
      trips.reset();
    SmallVector<Value> inner = loop(op.index(), last, step, position, sums->block(lanes), trips);
    if (e_.failed())
      return;
    e_.toInnermost();
    SmallVector<Value> totals(e_.closeLoop(op, sums->add(op.carried(), inner)));
    e_.toInnermost();
    carried = sums->joined(llvm::to_vector(llvm::concat<Value>(carried, sums->values(totals))));
  };
  auto same = [](Value value) { return value; };
  auto constant = constantOf(count);
  std::optional<int64_t> each = constant ? std::optional(*constant / walk.team) : std::nullopt;
  int64_t done = 0;
  if (held && each)
    for (; done < std::min(held->rounds, *each) && !e_.failed(); ++done)
      carried = inFrame(*held, done, [&] { bind(add(number(done * walk.team), walk.first)); }, emit, carried);
  bool blocks = sums && sumBlocks({each ? std::optional(*each - done) : each}, sums->reductions());
  if (!constant) {
    if (blocks)
      long_loop(walk.first, emitted(count), walk.team, same);
    else
      carried = loop(walk.first, emitted(count), walk.team, same, carried);
    return carried;
  }
  // A constant trip count: the device's compiler unrolls what is short.
  int64_t rounds = *each, rest = *constant % walk.team;
  auto mine = [&](Value round) { return add(multiply(round, walk.team), walk.first); };
  if (rounds > done && blocks)
    long_loop(number(done), number(rounds), 1, mine, rounds - done);
  else if (rounds > done)
    carried = loop(number(done), number(rounds), 1, mine, carried, rounds - done);
  if (rest > 0 && !e_.failed())
    carried = loop(add(walk.first, number(rounds * walk.team)), number(*constant), walk.team, same, carried);
  return carried;
}

// Rounds of a loop in straight-line code: their loads are begun side by side, where the device's compiler would not
// unroll the loop.
int64_t RowWalk::roundsTogether(int64_t trips) {
  const int64_t together = c_.decisions.take("rounds of a loop together", 1, {1, 2, 4, 8});
  return std::min(trips, together);
}

SmallVector<Value> RowWalk::inFrame(InRegisters& held, int64_t round, llvm::function_ref<void()> bind, Step emit,
                                    ValueRange carried) {
  e_.toInnermost();
  if (round < int64_t(held.frames.size())) {
    e_.resume(std::move(held.frames[round]));
  } else {
    held.frames.emplace_back();
    e_.openFrame();
    bind();
  }
  SmallVector<Value> next = emit(carried);
  held.frames[round] = e_.suspend();
  return next;
}

// Full vectors of an axis set, then the elements past them. `vector` and `scalar` emit one position with its dims
// bound.
void RowWalk::bindAxes(unsigned axes, Value position, int64_t lanes, bool rest) {
  const auto& dims = c_.domain.axis_sets[axes].dims;
  unsigned laned = c_.strategy.axis_lanes[axes];
  SmallVector<unsigned> outer = without(dims, laned);
  AffineExpr full = space_.size(laned).floorDiv(lanes), left = space_.size(laned) - full * lanes;
  Value inner = position;
  if (!outer.empty()) {
    Value count = emitted(rest ? left : full);
    inner = i_.modulo(position, count);
    c_.bindPosition(outer, i_.divide(position, count));
    e_.toInnermost();
  }
  if (rest)
    e_.bind(laned, add(inner, emitted(full * lanes)));
  else
    e_.bindLanes(laned, multiply(inner, lanes), lanes, true);
}

int64_t RowWalk::axisLanes(const Walk& walk, unsigned axes) const {
  unsigned laned = c_.strategy.axis_lanes[axes];
  return walk.vectors && laned != Strategy::none ? access_.aligned(laned) : 1;
}

// Lanes along `dim` such that no vector of a row's element has to be split: work-items side by side then still read
// and write side by side, as rows of an odd length otherwise do not. What the rows share does not count: it is in a

// Calls emit(lanes) with all dims of the axis set bound, for all of this work-item's share.
SmallVector<Value> RowWalk::walkAxes(const Walk& walk, unsigned axes, SmallVector<Value> vectors,
                                     const LongTotals* sums,
                                     llvm::function_ref<SmallVector<Value>(SmallVector<Value>)> between, Step emit) {
  const auto& dims = c_.domain.axis_sets[axes].dims;
  unsigned laned = c_.strategy.axis_lanes[axes];
  int64_t lanes = axisLanes(walk, axes);
  if (lanes == 1) {
    SmallVector<unsigned> order = without(dims, laned);
    if (laned != Strategy::none)
      order.push_back(laned);
    return positions(
        walk, space_.product(dims), between(vectors), sums, axes < held_.size() ? &held_[axes] : nullptr,
        [&](Value position) { c_.bindPosition(order, position); }, emit);
  }
  AffineExpr lines = space_.product(without(dims, laned));
  AffineExpr full = space_.simplify(lines * space_.size(laned).floorDiv(lanes));
  InRegisters* held = axes < held_.size() ? &held_[axes] : nullptr;
  vectors =
      positions(walk, full, vectors, sums, held, [&](Value position) { bindAxes(axes, position, lanes, false); }, emit);
  if (e_.failed())
    return {};
  e_.toInnermost();
  SmallVector<Value> scalars = between(vectors);
  AffineExpr left = space_.simplify(lines * (space_.size(laned) % lanes));
  if (constantOf(left) == 0)
    return scalars;
  return positions(
      walk, left, scalars, sums, nullptr, [&](Value position) { bindAxes(axes, position, lanes, true); }, emit);
}

SmallVector<Value> RowWalk::reduceWalk(const Walk& walk, unsigned axes, ArrayRef<const Instance*> instances,
                                       int64_t row_lanes) {
  int64_t lanes = std::max(axisLanes(walk, axes), row_lanes);
  e_.toInnermost();
  LongTotals sums(c_, instances);
  auto between = [&](SmallVector<Value> values) {
    if (row_lanes == 1)
      for (auto [instance, value] : llvm::zip(instances, values))
        value = c_.combineLanes(*instance, value);
    return values;
  };
  if (readsOnce(instances))
    e_.readOnce(elementDims(axes));
  SmallVector<Value> totals = walkAxes(walk, axes, sums.block(lanes), &sums, between, [&](ValueRange carried) {
    SmallVector<Value> next;
    for (auto [instance, total] : llvm::zip(instances, carried)) {
      Value element = e_.evaluate(instance->element());
      if (!element)
        return SmallVector<Value>();
      e_.toInnermost();
      next.push_back(c_.combine(*instance, total, splat(b_, element, lanesOf(total))));
    }
    return next;
  });
  e_.readOnce({});
  return totals;
}

// Where these are the only reductions, and all that is stored is of rows, what is reduced is not read again: past the
// first cache 26 us of 31 for the squares' sum of 67 MB, a bias gradient or sums of columns (H100).
bool RowWalk::readsOnce(ArrayRef<const Instance*> instances) const {
  if (c_.target.matrix.form != MatrixForm::fragments || instances.size() != c_.domain.instances.size() ||
      !llvm::all_of(c_.domain.outputs, [](const DomainOutput& output) { return output.per_row; }))
    return false;
  return c_.decisions.take("loads past the first cache", true);
}

// Those that tell elements apart.
Dims RowWalk::elementDims(unsigned axes) const {
  Dims dims;
  for (const auto* each : {&c_.domain.rows, &c_.domain.axis_sets[axes].dims})
    for (unsigned dim : *each)
      if (dim < Dims::most && constantOf(space_.size(dim)) != 1)
        dims.set(dim);
  return dims;
}

// All stages of the rows that are bound. meet(instances, partial results) combines over the team.
void RowWalk::stages(const Walk& walk, int64_t row_lanes, Value stores_rows, Meet meet) {
  auto reduce = [&](unsigned, unsigned axes, ArrayRef<const Instance*> instances) {
    SmallVector<Value> totals = reduceWalk(walk, axes, instances, row_lanes);
    if (e_.failed())
      return;
    e_.toInnermost();
    totals = meet(instances, totals);
    for (auto [instance, total] : llvm::zip(instances, totals))
      e_.bindValue(instance->result(), c_.finish(*instance, total));
  };
  auto storeRows = [&](ArrayRef<const DomainOutput*> outputs) {
    e_.toInnermost();
    if (stores_rows)
      e_.openIf(stores_rows);
    c_.storeOutputs(outputs);
    if (stores_rows)
      e_.closeIf();
  };
  auto storeColumns = [&](ArrayRef<const DomainOutput*> outputs) {
    e_.toInnermost();
    walkAxes(
        walk, 0, {}, nullptr, [](SmallVector<Value> none) { return none; },
        [&](ValueRange) {
          c_.storeOutputs(outputs);
          return SmallVector<Value>();
        });
  };
  emitStages(c_, {.reduce = reduce, .storeRows = storeRows, .storeColumns = storeColumns});
}

void RowWalk::holdRows(const Walk& walk) {
  held_.resize(c_.domain.axis_sets.size());
  for (unsigned axes = 0; axes < held_.size(); ++axes) {
    const int64_t modelled = heldVectors(c_, axes, axisLanes(walk, axes));
    held_[axes].rounds = modelled;
    if (modelled > 0)
      held_[axes].rounds = c_.decisions.take("vectors held in registers" +
                                                 (axes ? " of axes " + std::to_string(axes + 1) : std::string()),
                                             modelled, {0, modelled / 2});
  }
}

}  // namespace zefuse
