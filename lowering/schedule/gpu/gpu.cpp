// The schedule of targets with work-groups: groups of work-items, each with vectors as wide as an access.
//
// - Pointwise: a vector per work-item, neighbouring work-items on neighbouring vectors; in large kernels several for
//   each, a group's width apart. Transposes: gpu_transpose.cpp.
// - Scans: a row per work-item, or shared by several (gpu_scan.cpp).
// - Reductions with lanes along the row: a row belongs to one work-item (a few elements), a sub-group, or a whole group
//   (long rows, or few of them); its work-items take vectors in turn and combine in sub-group operations and local
//   memory.
// - Reductions with lanes across rows: vectors of rows; when they are too few to fill the device, the sub-groups of a
//   group share the reduced dims and combine in local memory.
//
// A row's elements past the last full vector are taken one per work-item, so nothing is masked. Every combination has a
// fixed order.
#include "lowering/schedule/gpu/gpu.h"

#include "lowering/schedule/core/index_math.h"
#include "lowering/schedule/core/stages.h"
#include "lowering/schedule/gpu/access_lanes.h"
#include "lowering/schedule/gpu/gpu_scan.h"
#include "lowering/schedule/gpu/gpu_transpose.h"
#include "lowering/schedule/gpu/row_walk.h"
#include "lowering/schedule/gpu/subgroup_totals.h"
#include "lowering/schedule/gpu/work_group.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;

namespace zefuse {
namespace {

constexpr int64_t plain_group = 256;         // work-items, where nothing else decides
constexpr int64_t alone_elements = 16;       // of a row, up to which one work-item takes it
constexpr int64_t subgroup_elements = 1024;  // up to which a sub-group takes it
constexpr int64_t symbolic_row_group = 128;  // work-items of a row whose length is not known
constexpr int64_t largest_row_group = 512;   // work-items
constexpr size_t few_accesses = 4;           // of an element, up to which a work-item begins several at a time

class GpuSchedule {
public:
  explicit GpuSchedule(const ScheduleContext& context)
      : c_(context), e_(context.evaluator), space_(context.domain.space), b_(context.builder()),
        loc_(context.builder().getUnknownLoc()), i_{b_, loc_}, access_(context), walk_(context, access_) {}

  void run() {
    if (c_.strategy.tile_dim != Strategy::none && !c_.in_place && scheduleTranspose(c_))
      return;
    if (const int64_t width = access_.width(); width > 1)
      access_.limit(c_.decisions.take("elements of a vector", width, {width / 2}));
    if (c_.domain.scan_dim)
      scan();
    else if (c_.domain.instances.empty())
      pointwise();
    else if (c_.strategy.lanes_in_rows)
      acrossRows();
    else
      alongRows();
  }

private:
  //===-- sizes --------------------------------------------------------------------------------===//

  SmallVector<unsigned> without(ArrayRef<unsigned> dims, unsigned laned) const {
    return llvm::filter_to_vector(dims, [&](unsigned dim) { return dim != laned; });
  }

  Value emitted(AffineExpr expr) {
    Value value = e_.index(space_.simplify(expr));
    e_.toInnermost();
    return value;
  }
  Value number(int64_t value) { return i_.number(value); }
  Value add(Value a, Value b) { return i_.add(a, b); }
  Value multiply(Value a, int64_t b) { return i_.multiply(a, b); }

  // Work-items of a group, where no row needs all of them.
  int64_t plainGroup() const {
    SmallVector<int64_t> sizes;
    for (int64_t size : {64, 128, 256, 512, 1024})
      if (size <= c_.target.max_group_size && size % c_.target.subgroup_size == 0)
        sizes.push_back(size);
    return c_.decisions.take("work-items of a group", plain_group, sizes);
  }

  static int64_t powerOfTwo(int64_t value) {  // the largest that is not above it
    int64_t power = 1;
    while (power * 2 <= value)
      power *= 2;
    return power;
  }

  //===-- vectors of rows ----------------------------------------------------------------------===//

  // Units are vectors of rows: lines of all other row dims, blocks along the laned one.
  struct Units {
    unsigned dim = Strategy::none;
    int64_t lanes = 1;
    SmallVector<unsigned> lines;
    AffineExpr blocks, count;
  };
  Units rowUnits(bool vectors, int64_t most = 64) const {
    Units units;
    units.dim = c_.strategy.row_lanes;
    units.lines = without(c_.domain.rows, units.dim);
    units.blocks = space_.constant(1);
    if (units.dim != Strategy::none) {
      units.lanes = !vectors ? 1 : c_.domain.instances.empty() ? access_.aligned(units.dim) : access_.along(units.dim);
      units.lanes = std::min(units.lanes, most);
      // In place no element may be computed twice, as a last vector that overlaps the one before does.
      auto size = constantOf(space_.size(units.dim));
      while (c_.in_place && size && *size % units.lanes != 0)
        units.lanes /= 2;
      units.blocks = space_.simplify(space_.size(units.dim).ceilDiv(units.lanes));
    }
    units.count = space_.simplify(space_.product(units.lines) * units.blocks);
    return units;
  }

  // Binds unit number `unit` and emits `body` for it; for a vector that the size cuts off, once per element.
  void atUnit(const Units& units, Value unit, llvm::function_ref<void()> body) {
    if (units.dim == Strategy::none) {
      c_.bindPosition(units.lines, unit);
      return body();
    }
    Value block = unit;
    if (!units.lines.empty()) {
      Value blocks = emitted(units.blocks);
      block = i_.modulo(unit, blocks);
      c_.bindPosition(units.lines, i_.divide(unit, blocks));
      e_.toInnermost();
    }
    Value base = multiply(block, units.lanes);
    if (units.lanes == 1) {
      e_.bind(units.dim, base);
      return body();
    }
    if (auto size = constantOf(space_.size(units.dim))) {
      // The last vector may overlap the one before: the same values are stored twice.
      bool aligned = *size % units.lanes == 0;
      e_.bindLanes(units.dim, aligned ? base : i_.smaller(base, number(*size - units.lanes)), units.lanes, aligned);
      return body();
    }
    Value size = emitted(space_.size(units.dim));
    Value full = arith::CmpIOp::create(b_, loc_, arith::CmpIPredicate::sle, add(base, number(units.lanes)), size);
    e_.openIf(full);
    e_.bindLanes(units.dim, base, units.lanes, true);
    body();
    e_.closeIf();
    Value cut = arith::XOrIOp::create(b_, loc_, full, arith::ConstantOp::create(b_, loc_, b_.getBoolAttr(true)));
    e_.openIf(cut);
    auto loop = e_.openLoop(base, size, number(1));
    e_.bind(units.dim, loop.index());
    body();
    e_.closeLoop(loop);
    e_.closeIf();
  }

  //===-- pointwise ----------------------------------------------------------------------------===//

  void pointwise() {
    Units units = rowUnits(true);
    // One vector where that was measured: groups end one by one then, and none is left over at the end. On a H100 add
    // of 134 MB took 134 us so, with eight vectors each 140; Adam 314, 330; the pointwise probe in bf16 69.6, 73.4.
    const bool measured = c_.target.matrix.form == MatrixForm::fragments && units.lanes > 1;
    int64_t rounds = 1;
    if (auto count = constantOf(units.count); count && !measured)
      rounds = std::clamp<int64_t>(powerOfTwo(std::max<int64_t>(1, *count / (2 * c_.target.resident_items))), 1, 8);
    rounds = c_.decisions.take("vectors of a work-item", rounds, {1, 2, 4, 8});
    const int64_t size = plainGroup();
    c_.launch.extent = units.count;
    c_.launch.grain = size * rounds;
    c_.launch.schedule.add(choice::ItemVectors{rounds, units.lanes, constantOf(units.count), c_.target.resident_items});
    WorkGroup group(b_, c_.function, c_.launch, size, 0);
    Value extent = emitted(units.count);
    Value first = add(multiply(group.group(), size * rounds), group.item());
    auto store = [&] { c_.storeAllOutputs(); };
    // Single elements, since vectors would not be aligned: a loop would wait for each load. Past the end the last
    // element is stored again, which is the same.
    if (units.lanes == 1 && access_.width() > 1 && rounds > 1 && access_.accesses() <= few_accesses && !c_.in_place) {
      Value last = emitted(units.count - 1);
      SmallVector<std::unique_ptr<Evaluator::Frame>> frames;
      for (int64_t round = 0; round < rounds; ++round) {
        e_.openFrame();
        atUnit(units, i_.smaller(add(first, number(size * round)), last), [&] {
          for (const DomainOutput& output : c_.domain.outputs)
            e_.evaluate(output.node);
        });
        frames.push_back(e_.suspend());
      }
      for (auto& frame : frames) {
        e_.resume(std::move(frame));
        store();
        e_.suspend();
      }
      return;
    }
    if (rounds == 1) {
      e_.openIf(i_.less(first, extent));
      atUnit(units, first, store);
      e_.closeIf();
      return;
    }
    Value end = i_.smaller(add(multiply(group.group(), size * rounds), number(size * rounds)), extent);
    auto loop = e_.openLoop(first, end, number(size));
    atUnit(units, loop.index(), store);
    e_.closeLoop(loop);
  }

  // A row per work-item, neighbours on the dim that the accesses step through by one. Nothing is shared along a row:
  // the order of its steps is part of the meaning.
  void scan() {
    if (scheduleScan(c_, access_.width()))
      return;
    SmallVector<unsigned> rows = without(c_.domain.parallelRows(), c_.strategy.row_lanes);
    if (c_.strategy.row_lanes != Strategy::none)
      rows.push_back(c_.strategy.row_lanes);
    const int64_t size = plainGroup();
    c_.launch.extent = c_.domain.rowCount();
    c_.launch.grain = size;
    c_.launch.schedule.add(rowTeam(choice::RowTeam::Of::item, 1));
    WorkGroup group(b_, c_.function, c_.launch, size, 0);
    Value row = add(multiply(group.group(), size), group.item());
    e_.openIf(i_.less(row, emitted(c_.launch.extent)));
    c_.bindPosition(rows, row);
    c_.scanRow(1);
    e_.closeIf();
  }

  //===-- rows ---------------------------------------------------------------------------------===//

  choice::RowTeam rowTeam(choice::RowTeam::Of of, int64_t size) const {
    return {of, size, elementsOfRow(c_.domain), constantOf(c_.domain.rowCount())};
  }

  void alongRows() {
    auto elements = elementsOfRow(c_.domain);
    c_.launch.extent = c_.domain.rowCount();
    auto rows = constantOf(c_.launch.extent);
    int64_t subgroup = c_.target.subgroup_size;
    // Sub-groups that leave most of the device idle are worth joining.
    bool few = rows && *rows * subgroup * 2 < c_.target.resident_items;
    const int64_t largest = std::min<int64_t>(largest_row_group, c_.target.max_group_size);
    int64_t wanted = symbolic_row_group;
    if (elements && *elements <= alone_elements)
      wanted = 1;
    else if (elements && *elements <= (few ? subgroup_elements / 4 : subgroup_elements))
      wanted = subgroup;
    else if (elements)
      wanted = std::clamp(powerOfTwo(*elements / (access_.width() * 2)), 4 * subgroup, largest);
    SmallVector<int64_t> others;
    if (elements && *elements <= 4 * alone_elements)
      others.push_back(1);
    if (elements && *elements <= 4 * subgroup_elements)
      others.push_back(subgroup);
    for (int64_t size = 4 * subgroup; size <= largest && (!elements || *elements > alone_elements); size *= 2)
      others.push_back(size);
    wanted = std::min<int64_t>(wanted, c_.target.max_group_size);
    wanted = c_.decisions.take("work-items of a row", wanted, others);
    if (wanted == 1)
      return rowPerItem();
    if (wanted == subgroup)
      return rowPerSubgroup();
    rowPerGroup(wanted);
  }

  void rowPerItem() {
    const int64_t size = plainGroup();
    c_.launch.grain = size;
    c_.launch.schedule.add(rowTeam(choice::RowTeam::Of::item, 1));
    WorkGroup group(b_, c_.function, c_.launch, size, 0);
    Value row = add(multiply(group.group(), size), group.item());
    e_.openIf(i_.less(row, emitted(c_.launch.extent)));
    c_.bindPosition(c_.domain.rows, row);
    walk_.stages({number(0), 1, true}, 1, {}, [](auto, SmallVector<Value> totals) { return totals; });
    e_.closeIf();
  }

  void rowPerSubgroup() {
    const int64_t size = plainGroup();
    int64_t rows = size / c_.target.subgroup_size;
    c_.launch.grain = rows;
    c_.launch.schedule.add(rowTeam(choice::RowTeam::Of::subgroup, c_.target.subgroup_size));
    WorkGroup group(b_, c_.function, c_.launch, size, c_.target.subgroup_size);
    Value row = add(multiply(group.group(), rows), group.subgroupIndex());
    e_.openIf(i_.less(row, emitted(c_.launch.extent)));
    c_.bindPosition(c_.domain.rows, row);
    Value first = arith::CmpIOp::create(b_, loc_, arith::CmpIPredicate::eq, group.lane(), number(0));
    Walk walk{group.lane(), group.subgroup(), true};
    walk_.holdRows(walk);
    walk_.stages(walk, 1, first, [&](ArrayRef<const Instance*> instances, SmallVector<Value> totals) {
      for (auto [instance, total] : llvm::zip(instances, totals))
        total = group.reduceInSubgroup(combinerOf(instance->op).op, total);
      return totals;
    });
    e_.closeIf();
  }

  void rowPerGroup(int64_t size) {
    c_.launch.grain = 1;
    c_.launch.schedule.add(rowTeam(choice::RowTeam::Of::group, size));
    WorkGroup group(b_, c_.function, c_.launch, size, c_.target.subgroup_size);
    c_.bindPosition(c_.domain.rows, group.group());
    e_.toInnermost();
    Value first = arith::CmpIOp::create(b_, loc_, arith::CmpIPredicate::eq, group.item(), number(0));
    Walk walk{group.item(), size, true};
    walk_.holdRows(walk);
    walk_.stages(walk, 1, first, [&](ArrayRef<const Instance*> instances, SmallVector<Value> totals) {
      return group.reduceInGroup(instances, totals);
    });
  }

  //===-- vectors of rows with reductions ------------------------------------------------------===//

  void acrossRows() {
    const bool vectors = constantOf(space_.size(c_.strategy.row_lanes)).has_value();
    Units units = rowUnits(vectors);
    auto elements = elementsOfRow(c_.domain);
    // Sub-groups share the reduced dims while the rows alone do not fill the device.
    int64_t teams = elements ? std::clamp<int64_t>(powerOfTwo(std::max<int64_t>(*elements / 8, 1)), 1, 16) : 8;
    // Where rows in vectors leave much of the device without work, a work-item takes fewer, if a sub-group's loads are
    // whole lines all the same: on a H100 products of one row with codes of 2048 to 5632 rows took 10 to 24 us with one
    // row each and 13 to 32 with four; of 32000 rows 30 and 27.
    int64_t most = units.lanes;
    const int64_t sharing = lanesThatMayShare(units);
    if (auto rows = constantOf(units.count * units.lanes); rows && c_.target.subgroup_size >= 32 && sharing <= 1)
      while (most > 1 && *rows / most * teams * 4 < c_.target.resident_items)
        most /= 2;
    SmallVector<int64_t> fewer;
    for (int64_t rows = 1; rows <= units.lanes; rows *= 2)
      fewer.push_back(rows);
    if (units.lanes > 1)
      units = rowUnits(vectors, c_.decisions.take("rows of a work-item", most, fewer));
    auto count = constantOf(units.count);
    c_.launch.extent = units.count;
    while (count && teams > 1 && *count * teams / 2 >= c_.target.resident_items)
      teams /= 2;
    SmallVector<int64_t> others;
    for (int64_t other = 1; other <= 16 && other * c_.target.subgroup_size <= c_.target.max_group_size; other *= 2)
      others.push_back(other);
    teams = c_.decisions.take("sub-groups that share a reduction", teams, others);
    if (teams == 1) {
      const int64_t size = plainGroup();
      c_.launch.grain = size;
      c_.launch.schedule.add(choice::RowVectors{units.lanes, teams, elements, count});
      WorkGroup group(b_, c_.function, c_.launch, size, 0);
      Value unit = add(multiply(group.group(), size), group.item());
      e_.openIf(i_.less(unit, emitted(units.count)));
      atUnit(units, unit, [&] {
        walk_.stages({number(0), 1, false}, units.lanes, {}, [](auto, SmallVector<Value> totals) { return totals; });
      });
      e_.closeIf();
      return;
    }
    const int64_t width = c_.target.subgroup_size, sharers = lanesThatShare(sharing), across = width / sharers;
    c_.launch.grain = across;
    c_.launch.schedule.add(choice::RowVectors{units.lanes, teams, elements, count, sharers});
    WorkGroup group(b_, c_.function, c_.launch, width * teams, width);
    // Lanes side by side have units side by side; those `across` apart the same one.
    Value slot = group.lane(), team = group.subgroupIndex();
    if (sharers > 1) {
      team = add(multiply(team, sharers), i_.divide(slot, across));
      slot = i_.modulo(slot, across);
    }
    // All work-items meet at the barriers: those past the end compute the last unit again.
    Value last = arith::SubIOp::create(b_, loc_, emitted(units.count), number(1));
    Value own = add(multiply(group.group(), across), slot), unit = i_.smaller(own, last);
    // Where the only reductions' results are stored and no more, one sub-group combines and stores them.
    bool alone = c_.columnOutputs(c_.domain.levels).empty() &&
                 instancesOf(c_.domain, 0, c_.domain.instances[0].axes).size() == c_.domain.instances.size();
    atUnit(units, unit, [&] {
      e_.toInnermost();
      Value first = arith::CmpIOp::create(b_, loc_, arith::CmpIPredicate::eq, group.subgroupIndex(), number(0));
      if (c_.in_place)
        first = i_.both(first, i_.less(own, emitted(units.count)));
      if (sharers > 1)
        first = i_.both(first, i_.less(group.lane(), number(across)));
      walk_.stages({team, teams * sharers, false}, units.lanes, alone ? Value() : first,
                   [&](ArrayRef<const Instance*> instances, SmallVector<Value> totals) {
                     for (auto [instance, total] : llvm::zip_equal(instances, totals))
                       for (int64_t mask = across; mask < width; mask *= 2)
                         total = c_.combine(*instance, total, exchanged(group, total, mask));
                     SmallVector<Value> arrays = shareTotals(c_, group, instances, totals);
                     if (alone)
                       e_.openIf(first);
                     return combineTotals(c_, group, instances, arrays, units.lanes);
                   });
      if (alone)
        e_.closeIf();
    });
  }

  // Lanes of a sub-group that share a row's reduction: where the rows beside each other in memory are fewer than those
  // of a sub-group's vectors, as codes of quantized weights are, its loads are one piece of memory then. Products of
  // one row with codes of 4 bits take 0.27 to 0.56 of the time so, of 8 bits 0.26 (H100). They exchange f32. 0: they
  // cannot.
  int64_t lanesThatMayShare(const Units& units) const {
    const bool exchange = c_.target.matrix.form == MatrixForm::fragments && c_.target.subgroup_size == 32 &&
                          llvm::all_of(c_.domain.instances, [](auto& each) {
                            return cast<RankedTensorType>(each.op->getResult(0).getType()).getElementType().isF32();
                          });
    if (!exchange)
      return 0;
    auto beside = constantOf(space_.size(c_.strategy.row_lanes)), elements = elementsOfRow(c_.domain);
    if (!beside || units.lines.empty() || units.lanes == 1 || *beside % units.lanes != 0)
      return 1;
    int64_t sharers = 1;
    while (sharers < 8 && *beside / units.lanes * sharers < c_.target.subgroup_size && elements &&
           *elements >= 32 * sharers)
      sharers *= 2;
    return sharers;
  }
  int64_t lanesThatShare(int64_t modelled) const {
    return modelled > 0 ? c_.decisions.take("lanes that share a reduction", modelled, {1, 2, 4, 8}) : 1;
  }

  Value exchanged(WorkGroup& group, Value value, int64_t mask) {
    auto type = dyn_cast<VectorType>(value.getType());
    if (!type)
      return group.exchanged(value, mask);
    SmallVector<Value> elements;
    for (int64_t lane = 0; lane < type.getNumElements(); ++lane)
      elements.push_back(group.exchanged(vector::ExtractOp::create(b_, loc_, value, lane), mask));
    return vector::FromElementsOp::create(b_, loc_, type, elements);
  }

  const ScheduleContext& c_;
  Evaluator& e_;
  IndexSpace& space_;
  OpBuilder& b_;
  Location loc_;
  IndexMath i_;
  AccessLanes access_;
  RowWalk walk_;
};

}  // namespace

void scheduleGpu(const ScheduleContext& context) { GpuSchedule(context).run(); }

}  // namespace zefuse
