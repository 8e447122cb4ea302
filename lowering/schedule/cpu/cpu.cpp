// The CPU schedule: a work-group has one work-item and owns a range of units.
//
// - Lanes in rows (pointwise; reductions over outer dims): a unit is a vector of rows, reduced dims are scalar loops.
// - Lanes in axes (reductions over inner dims): a unit is a row; each stage walks the row with vector accumulators, and
//   lanes are combined at the end, always in the same order.
//
// Vectors are explicit and full: a static size that lanes do not divide ends with a vector that overlaps the one before
// (same values stored twice; masked in reductions), a dynamic size with one whose lanes repeat the last element. So
// each element goes through the same instructions wherever it lies.
#include "lowering/schedule/cpu/cpu.h"
#include "lowering/schedule/core/long_sums.h"
#include "lowering/schedule/core/scalar_ops.h"
#include "lowering/schedule/core/short_pieces.h"
#include "lowering/schedule/core/stages.h"
#include "lowering/schedule/cpu/lane_values.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;

namespace zefuse {
namespace {

constexpr int64_t tile = 16;  // elements of a cache line of f32

class CpuSchedule {
public:
  explicit CpuSchedule(const ScheduleContext& context)
      : c_(context), e_(context.evaluator), space_(context.domain.space), b_(context.builder()),
        loc_(context.builder().getUnknownLoc()) {
    for (unsigned dim : context.domain.rows)
      rows_.set(dim);
  }

  void run() {
    Domain& domain = c_.domain;
    AffineExpr blocks = space_.constant(1);
    unsigned lanes = 1;
    SmallVector<unsigned> line_dims;
    for (unsigned dim : domain.parallelRows())
      if (dim != c_.strategy.tile_dim && (!c_.strategy.lanes_in_rows || dim != c_.strategy.row_lanes))
        line_dims.push_back(dim);
    AffineExpr lines = space_.product(line_dims);
    if (c_.strategy.tile_dim != Strategy::none)
      return tiles(line_dims, lines);
    if (c_.strategy.lanes_in_rows) {
      lanes = lanesFor(space_, c_.strategy.row_lanes, c_.target);
      blocks = space_.size(c_.strategy.row_lanes).ceilDiv(lanes);
    }
    if (const auto& rows = c_.strategy.interleaved) {  // what is joined of a line's vectors is one unit's
      vectors_ = llvm::divideCeil(rows->unit, int64_t(lanes));
      lanes = unsigned(rows->unit);
      blocks = space_.constant(rows->size / rows->unit);
    }
    AffineExpr units = space_.simplify(lines * blocks);
    auto [begin, end] = share(units, lanes);
    overSets(c_.batch, e_, units, begin, end, c_.outputs,
             [&](Value first, Value last) { overUnits(first, last, line_dims, blocks); });
  }

private:
  // Units are rows, or one or more vectors of rows: `blocks` of them in each line.
  void overUnits(Value begin, Value end, ArrayRef<unsigned> line_dims, AffineExpr blocks) {
    if (!c_.strategy.lanes_in_rows) {
      auto loop = e_.openLoop(begin, end, constantIndex(b_, loc_, 1));
      c_.bindPosition(line_dims, loop.index());
      row();
      e_.closeLoop(loop);
    } else if (lane_values_) {
      overLinesThatShare(begin, end, line_dims, blocks);
    } else {
      overLines(begin, end, line_dims, blocks);
    }
  }

  void overLines(Value begin, Value end, ArrayRef<unsigned> line_dims, AffineExpr blocks) {
    if (line_dims.empty())
      return rowBlocks(begin, end);
    overParts(begin, end, line_dims, atLeastOne(c_, blocks), [&](Value low, Value high) { rowBlocks(low, high); });
  }

  // What lanes would load one by one is loaded for all vectors where lines begin that share it.
  void overLinesThatShare(Value begin, Value end, ArrayRef<unsigned> line_dims, AffineExpr blocks) {
    ArrayRef<unsigned> outer = line_dims.take_front(c_.strategy.lane_values_outer);
    ArrayRef<unsigned> inner = line_dims.drop_front(outer.size());
    Value units = atLeastOne(c_, space_.simplify(space_.product(inner) * blocks));
    overParts(begin, end, outer, units, [&](Value low, Value high) {
      lane_values_->load();
      overLines(low, high, inner, blocks);
    });
  }

  // Units begin..end, of which each position of `dims` has `units`: calls `body` with those of each position.
  template <typename Body> void overParts(Value begin, Value end, ArrayRef<unsigned> dims, Value units, Body body) {
    e_.toInnermost();
    Value one = constantIndex(b_, loc_, 1), zero = constantIndex(b_, loc_, 0);
    Value first = arith::DivUIOp::create(b_, loc_, begin, units);
    Value up = arith::AddIOp::create(b_, loc_, end, arith::SubIOp::create(b_, loc_, units, one));
    Value last = arith::DivUIOp::create(b_, loc_, up, units);
    auto loop = e_.openLoop(first, last, one);
    c_.bindPosition(dims, loop.index());
    e_.toInnermost();
    Value start = arith::MulIOp::create(b_, loc_, loop.index(), units);
    Value low = arith::MaxSIOp::create(b_, loc_, arith::SubIOp::create(b_, loc_, begin, start), zero);
    Value high = smaller(arith::SubIOp::create(b_, loc_, end, start), units);
    body(low, high);
    e_.closeLoop(loop);
  }

  // This group's part of all sets' units.
  std::pair<Value, Value> share(AffineExpr units_of_set, double rows_per_unit) {
    Value group = c_.workItem("_Z12get_group_idj");
    makeBuffers(group);
    return shareOfGroup(c_, group, c_.batch.unitsOfAll(space_, units_of_set), c_.strategy.unit_cost * rows_per_unit);
  }

  // Units are strips of `tile` indices of the tiled dim, all lanes' blocks long.
  void tiles(ArrayRef<unsigned> line_dims, AffineExpr lines) {
    unsigned tiled = c_.strategy.tile_dim, laned = c_.strategy.row_lanes;
    AffineExpr strips = space_.size(tiled).ceilDiv(tile);
    auto size = constantOf(space_.size(laned));
    AffineExpr of_set = space_.simplify(lines * strips);
    auto [begin, end] = share(of_set, double(tile * size.value_or(256)));
    overSets(c_.batch, e_, of_set, begin, end, c_.outputs,
             [&](Value first, Value last) { overStrips(first, last, line_dims, strips); });
  }

  void overStrips(Value begin, Value end, ArrayRef<unsigned> line_dims, AffineExpr strips) {
    unsigned tiled = c_.strategy.tile_dim, laned = c_.strategy.row_lanes;
    Value one = constantIndex(b_, loc_, 1);
    auto units = e_.openLoop(begin, end, one);
    Value strip_count = e_.index(strips), tiled_size = e_.index(space_.size(tiled));
    Value blocks = e_.index(space_.size(laned).ceilDiv(lanesFor(space_, laned, c_.target)));
    e_.toInnermost();
    Value line = arith::DivUIOp::create(b_, loc_, units.index(), strip_count);
    Value strip = arith::RemUIOp::create(b_, loc_, units.index(), strip_count);
    c_.bindPosition(line_dims, line);
    e_.toInnermost();
    Value first = times(strip, tile);
    Value last = smaller(arith::AddIOp::create(b_, loc_, first, constantIndex(b_, loc_, tile)), tiled_size);
    overBlocks(c_, laned, constantIndex(b_, loc_, 0), blocks, [&](Value) {
      e_.toInnermost();
      auto loop = e_.openLoop(first, last, constantIndex(b_, loc_, 1));
      e_.bind(tiled, loop.index());
      row();
      e_.closeLoop(loop);
    });
    e_.closeLoop(units);
  }

  Value smaller(Value a, Value b) { return arith::MinSIOp::create(b_, loc_, a, b); }
  Value plus(Value a, int64_t b) { return arith::AddIOp::create(b_, loc_, a, constantIndex(b_, loc_, b)); }
  Value times(Value a, int64_t b) {
    return b == 1 ? a : arith::MulIOp::create(b_, loc_, a, constantIndex(b_, loc_, b));
  }

  // Memory for kept values: private when small and constant, else this group's part of the scratch buffer.
  void makeBuffers(Value group) {
    AffineExpr offset = space_.constant(0);
    for (Kept& kept : c_.strategy.kept) {
      Type element = memoryType(kept.type);
      AffineExpr bytes = (kept.elements * bytesInMemory(kept.type) + 63).floorDiv(64) * 64;
      e_.toInnermost();
      if (c_.strategy.kept_static) {
        Value count = arith::ConstantOp::create(b_, loc_, b_.getI32IntegerAttr(1));
        Type array = LLVM::LLVMArrayType::get(element, *constantOf(kept.elements));
        kept.buffer = LLVM::AllocaOp::create(b_, loc_, LLVM::LLVMPointerType::get(b_.getContext()), array, count,
                                             /*alignment=*/64);
      } else {
        Value whole = e_.index(c_.strategy.kept_bytes), mine = e_.index(offset);
        e_.toInnermost();
        Value at = arith::AddIOp::create(b_, loc_, arith::MulIOp::create(b_, loc_, group, whole), mine);
        Value at64 = arith::IndexCastOp::create(b_, loc_, b_.getI64Type(), at);
        kept.buffer = LLVM::GEPOp::create(b_, loc_, c_.scratch.getType(), b_.getI8Type(), c_.scratch,
                                          ArrayRef<LLVM::GEPArg>{at64}, LLVM::GEPNoWrapFlags::inbounds);
        offset = space_.simplify(offset + bytes);
      }
    }
    if (c_.strategy.strip)
      strip_memory_ = makeStripMemory(c_);
    if (!c_.strategy.lane_values.empty())
      lane_values_.emplace(c_).makeMemory();
  }

  //===-- units that are vectors of rows -------------------------------------------------------===//

  // Of units.
  void rowBlocks(Value first, Value last) {
    e_.toInnermost();
    if (c_.strategy.strip)
      return scheduleStrips(c_, strip_memory_, times(first, vectors_), times(last, vectors_));
    overBlocks(c_, c_.strategy.row_lanes, first, last, [&](Value block) {
      if (lane_values_)
        lane_values_->bind(block);
      row();
    });
  }

  //===-- one unit -----------------------------------------------------------------------------===//

  void row() {
    Domain& domain = c_.domain;
    if (domain.scan_dim) {
      unsigned lanes = c_.strategy.lanes_in_rows ? lanesFor(space_, c_.strategy.row_lanes, c_.target) : 1;
      return c_.scanRow(lanes);
    }
    if (domain.instances.empty()) {
      return c_.storeAllOutputs();
    }
    auto end = [&](unsigned) {
      for (Kept& kept : c_.strategy.kept)
        kept.written |= kept.stored;
    };
    emitStages(c_, {.reduce = [&](unsigned, unsigned axes, auto instances) { reduce(axes, instances); },
                    .storeRows = [&](auto outputs) { c_.storeOutputs(outputs); },
                    .storeColumns = [&](auto outputs) { columnLoops(0, outputs); },
                    .end = end});
    // The tail of a dynamic row dim emits the stages once more.
    for (Kept& kept : c_.strategy.kept)
      kept.written = kept.stored = false;
  }

  SmallVector<unsigned> outerDims(unsigned axes) const {
    SmallVector<unsigned> dims;
    for (unsigned dim : c_.domain.axis_sets[axes].dims)
      if (c_.strategy.lanes_in_rows || dim != c_.strategy.axis_lanes[axes])
        dims.push_back(dim);
    return dims;
  }

  void columnLoops(unsigned number, ArrayRef<const DomainOutput*> outputs) {
    SmallVector<unsigned> outer = outerDims(0);
    if (number < outer.size()) {
      Value size = e_.index(space_.size(outer[number]));
      e_.toInnermost();
      auto loop = e_.openLoop(constantIndex(b_, loc_, 0), size, constantIndex(b_, loc_, 1));
      e_.bind(outer[number], loop.index());
      columnLoops(number + 1, outputs);
      e_.closeLoop(loop);
      return;
    }
    if (c_.strategy.lanes_in_rows)
      return c_.storeOutputs(outputs);
    unsigned dim = c_.strategy.axis_lanes[0];
    Value count = e_.index(space_.size(dim).ceilDiv(lanesFor(space_, dim, c_.target)));
    e_.toInnermost();
    overBlocks(c_, dim, constantIndex(b_, loc_, 0), count, [&](Value) { c_.storeOutputs(outputs); });
  }

  //===-- reductions ---------------------------------------------------------------------------===//

  Type elementType(const Instance& instance) const {
    return registerType(combinerOf(instance.op).op->getResult(0).getType());
  }

  // Long cheap rows get independent accumulators, so that additions overlap.
  unsigned accumulators(unsigned axes, ArrayRef<const Instance*> instances) const {
    if (c_.strategy.lanes_in_rows || c_.strategy.axis_lanes[axes] == Strategy::none)
      return 1;
    llvm::DenseSet<std::pair<Value, AffineMap>> seen;
    bool cheap = true;
    for (const Instance* instance : instances)
      walkNodes(space_, instance->element(), seen, c_.graph, [&](Node node) {
        Operation* op = c_.graph.is_input(node.value) ? nullptr : node.value.getDefiningOp();
        cheap &= !op || !isa<math::MathDialect>(op->getDialect()) || isa<math::AbsFOp>(op);
        return cheap && !(op && isReduction(op));
      });
    if (!cheap)
      return 1;
    unsigned dim = c_.strategy.axis_lanes[axes];
    auto size = constantOf(space_.size(dim));
    return !size || *size >= 8 * lanesFor(space_, dim, c_.target) ? 4 : 1;
  }

  // The loops over an axis set, from number 0 (outermost) on; the last may be the one with lanes.
  struct Nest {
    unsigned axes;
    ArrayRef<const Instance*> instances;
    LongTotals totals;
    unsigned lanes, copies;
    SmallVector<unsigned> outer;
    std::optional<SumBlocks> blocks;
    SmallVector<Value> block() const { return totals.block(lanes, copies); }
  };

  void reduce(unsigned axes, ArrayRef<const Instance*> instances) {
    bool laned = !c_.strategy.lanes_in_rows && c_.strategy.axis_lanes[axes] != Strategy::none;
    unsigned lanes = c_.strategy.lanes_in_rows ? lanesFor(space_, c_.strategy.row_lanes, c_.target)
                     : laned                   ? lanesFor(space_, c_.strategy.axis_lanes[axes], c_.target)
                                               : 1;
    Nest nest{axes, instances, LongTotals(c_, instances), lanes, accumulators(axes, instances), outerDims(axes), {}};
    auto rounds = llvm::map_to_vector(nest.outer, [&](unsigned dim) { return constantOf(space_.size(dim)); });
    if (laned) {
      auto size = constantOf(space_.size(c_.strategy.axis_lanes[axes]));
      rounds.push_back(size ? std::optional(llvm::divideCeil(*size, lanes * nest.copies)) : std::nullopt);
    }
    nest.blocks = sumBlocks(rounds, instances);
    e_.toInnermost();
    SmallVector<Value> totals;
    if (nest.blocks)
      totals = blocks(nest, 0, nest.totals.start(lanes));
    else
      totals = reduceLoops(nest, 0, nest.block());
    if (e_.failed())
      return;
    e_.toInnermost();
    totals = nest.blocks ? nest.totals.values(totals) : nest.totals.joined(totals);
    for (auto [instance, total] : llvm::zip(instances, totals)) {
      if (laned)
        total = c_.combineLanes(*instance, total);
      e_.bindValue(instance->result(), c_.finish(*instance, total));
    }
  }

  // The loops around blocks; they carry long totals.
  SmallVector<Value> blocks(const Nest& nest, unsigned number, SmallVector<Value> carried) {
    bool here = number == nest.blocks->loop;
    auto close = [&](Evaluator::Loop& loop, SmallVector<Value> next) {
      return e_.failed() ? SmallVector<Value>() : SmallVector<Value>(e_.closeLoop(loop, next));
    };
    auto add = [&](ValueRange totals, SmallVector<Value> block) {
      if (e_.failed())
        return SmallVector<Value>();
      e_.toInnermost();
      return nest.totals.add(totals, block);
    };
    Value zero = constantIndex(b_, loc_, 0);
    if (here && !nest.blocks->rounds)
      return add(carried, reduceLoops(nest, number, nest.block()));
    if (here && number == nest.outer.size())
      return blocksOfLanes(nest, carried);
    unsigned dim = nest.outer[number];
    Value size = e_.index(space_.size(dim));
    e_.toInnermost();
    int64_t step = here ? *nest.blocks->rounds : 1;
    auto loop = e_.openLoop(zero, size, constantIndex(b_, loc_, step), carried);
    if (!here) {
      e_.bind(dim, loop.index());
      return close(loop, blocks(nest, number + 1, SmallVector<Value>(loop.carried())));
    }
    e_.toInnermost();
    Value last = smaller(plus(loop.index(), step), size);
    SmallVector<Value> block = reduceLoop(nest, number, loop.index(), last, nest.block());
    return close(loop, add(loop.carried(), block));
  }

  SmallVector<Value> reduceLoops(const Nest& nest, unsigned number, SmallVector<Value> totals) {
    if (number < nest.outer.size()) {
      Value size = e_.index(space_.size(nest.outer[number]));
      e_.toInnermost();
      return reduceLoop(nest, number, constantIndex(b_, loc_, 0), size, totals);
    }
    if (c_.strategy.lanes_in_rows || c_.strategy.axis_lanes[nest.axes] == Strategy::none) {
      if (c_.strategy.lanes_in_rows && nest.instances.front()->level == 0 && !nest.outer.empty())
        e_.fetchStepsAhead(rows_, nest.outer.back());
      accumulate(nest.instances, nest.lanes, totals, Value());
      e_.fetchAhead({});
      return totals;
    }
    if (LaneLoop lanes = laneLoop(nest); lanes.whole) {
      e_.toInnermost();
      totals = wholeVectors(nest, constantIndex(b_, loc_, 0), lanes.end, totals);
    }
    return restOfLanes(nest, totals);
  }

  SmallVector<Value> reduceLoop(const Nest& nest, unsigned number, Value first, Value last, SmallVector<Value> totals) {
    auto loop = e_.openLoop(first, last, constantIndex(b_, loc_, 1), totals);
    e_.bind(nest.outer[number], loop.index());
    SmallVector<Value> inner = reduceLoops(nest, number + 1, SmallVector<Value>(loop.carried()));
    return e_.failed() ? SmallVector<Value>() : SmallVector<Value>(e_.closeLoop(loop, inner));
  }

  // totals[i] = combine(totals[i], element of instance i), where `mask` is set.
  void accumulate(ArrayRef<const Instance*> instances, unsigned lanes, MutableArrayRef<Value> totals, Value mask) {
    for (auto [i, instance] : llvm::enumerate(instances)) {
      Value element = e_.evaluate(instance->element());
      if (!element)
        return;
      e_.toInnermost();
      Value next = c_.combine(*instance, totals[i], splat(b_, element, lanes));
      totals[i] = mask ? arith::SelectOp::create(b_, loc_, mask, next, totals[i]) : next;
    }
    if (instances.front()->axes == 0)
      c_.storeOutputs(c_.columnOutputs(instances.front()->level));
  }

  // The loop with lanes: whole groups of vectors, one per accumulator, up to `end`; then the rest.
  struct LaneLoop {
    std::optional<int64_t> size;
    Value count, end;  // `count`: of a symbolic size
    bool whole;        // there may be whole groups
  };
  LaneLoop laneLoop(const Nest& nest) {
    AffineExpr of_dim = space_.size(c_.strategy.axis_lanes[nest.axes]);
    LaneLoop lanes{constantOf(of_dim), {}, {}, true};
    int64_t wide = int64_t(nest.lanes) * nest.copies;
    if (!lanes.size)
      lanes.count = e_.index(of_dim);
    e_.toInnermost();
    lanes.end = lanes.size ? constantIndex(b_, loc_, *lanes.size / wide * wide)
                           : times(arith::DivUIOp::create(b_, loc_, lanes.count, constantIndex(b_, loc_, wide)), wide);
    lanes.whole = !lanes.size || *lanes.size >= wide;
    return lanes;
  }

  SmallVector<Value> blocksOfLanes(const Nest& nest, SmallVector<Value> carried) {
    if (LaneLoop lanes = laneLoop(nest); lanes.whole) {
      int64_t step = *nest.blocks->rounds * nest.lanes * nest.copies;
      auto loop = e_.openLoop(constantIndex(b_, loc_, 0), lanes.end, constantIndex(b_, loc_, step), carried);
      e_.toInnermost();
      Value last = smaller(plus(loop.index(), step), lanes.end);
      SmallVector<Value> block = wholeVectors(nest, loop.index(), last, nest.block());
      if (e_.failed())
        return {};
      e_.toInnermost();
      carried = SmallVector<Value>(e_.closeLoop(loop, nest.totals.add(loop.carried(), block)));
    }
    if (auto size = constantOf(space_.size(c_.strategy.axis_lanes[nest.axes]));
        size && *size % (int64_t(nest.lanes) * nest.copies) == 0)
      return carried;
    e_.toInnermost();
    SmallVector<Value> rest = restOfLanes(nest, nest.block());
    if (e_.failed())
      return {};
    e_.toInnermost();
    return nest.totals.add(carried, rest);
  }

  // One vector, of accumulator number `copy`.
  void oneVector(const Nest& nest, Value base, unsigned copy, bool aligned, Value limit, Value mask,
                 MutableArrayRef<Value> totals) {
    unsigned per_copy = nest.instances.size();
    e_.enter(b_.getInsertionBlock());
    e_.bindLanes(c_.strategy.axis_lanes[nest.axes], base, nest.lanes, aligned, limit);
    if (nest.instances.front()->level == 0)  // later stages find the row in a cache
      e_.fetchAhead(rows_, copy);
    accumulate(nest.instances, nest.lanes, totals.slice(copy * per_copy, per_copy), mask);
    e_.fetchAhead({});
    e_.leave();
  }

  SmallVector<Value> wholeVectors(const Nest& nest, Value first, Value last, SmallVector<Value> totals) {
    auto loop = e_.openLoop(first, last, constantIndex(b_, loc_, int64_t(nest.lanes) * nest.copies), totals);
    totals = SmallVector<Value>(loop.carried());
    for (unsigned copy = 0; copy < nest.copies && !e_.failed(); ++copy) {
      e_.toInnermost();
      Value base = copy == 0 ? loop.index() : plus(loop.index(), int64_t(copy) * nest.lanes);
      oneVector(nest, base, copy, true, nullptr, nullptr, totals);
    }
    return e_.failed() ? SmallVector<Value>() : SmallVector<Value>(e_.closeLoop(loop, totals));
  }

  SmallVector<Value> restOfLanes(const Nest& nest, SmallVector<Value> totals) {
    if (e_.failed())
      return {};
    int64_t lanes = nest.lanes, copies = nest.copies, wide = lanes * copies;
    auto [size, count, wide_end, whole] = laneLoop(nest);
    auto step = [&](Value base, unsigned copy, bool aligned, Value limit, Value mask) {
      oneVector(nest, base, copy, aligned, limit, mask, totals);
    };
    if (size) {
      int64_t done = *size / wide * wide;
      for (unsigned copy = 0; done + lanes <= *size && !e_.failed(); done += lanes, ++copy) {
        e_.toInnermost();
        step(constantIndex(b_, loc_, done), copy % copies, true, nullptr, nullptr);
      }
      if (done < *size && !e_.failed()) {  // overlaps what is done: those lanes do not count again
        e_.toInnermost();
        SmallVector<bool> counts(lanes);
        for (int64_t lane = 0; lane < lanes; ++lane)
          counts[lane] = lane >= lanes - (*size - done);
        auto type = VectorType::get({lanes}, b_.getI1Type());
        Value mask = arith::ConstantOp::create(b_, loc_, DenseElementsAttr::get(type, ArrayRef<bool>(counts)));
        step(constantIndex(b_, loc_, *size - lanes), 0, false, nullptr, mask);
      }
      return totals;
    }
    Value full_end = times(arith::DivUIOp::create(b_, loc_, count, constantIndex(b_, loc_, lanes)), lanes);
    auto single = [&](Value lower, Value upper, bool last) {
      if (e_.failed())
        return;
      auto loop = e_.openLoop(lower, upper, constantIndex(b_, loc_, lanes), totals);
      totals = SmallVector<Value>(loop.carried());
      Value mask;
      if (last) {
        SmallVector<int64_t> steps = llvm::to_vector(llvm::seq<int64_t>(0, lanes));
        auto type = VectorType::get({lanes}, b_.getIndexType());
        Value offsets = arith::ConstantOp::create(
            b_, loc_, cast<TypedAttr>(Attribute(DenseIntElementsAttr::get(type, ArrayRef(steps)))));
        Value left = arith::SubIOp::create(b_, loc_, count, loop.index());
        mask = arith::CmpIOp::create(b_, loc_, arith::CmpIPredicate::slt, offsets, splat(b_, left, lanes));
      }
      step(loop.index(), 0, true, last ? count : Value(), mask);
      if (!e_.failed())
        totals = SmallVector<Value>(e_.closeLoop(loop, totals));
    };
    if (copies > 1)
      single(wide_end, full_end, false);
    single(full_end, count, true);
    return totals;
  }

  const ScheduleContext& c_;
  Evaluator& e_;
  IndexSpace& space_;
  OpBuilder& b_;
  Location loc_;
  Value strip_memory_;
  std::optional<LaneValues> lane_values_;
  int64_t vectors_ = 1;  // of a unit
  Dims rows_;
};

}  // namespace

void overBlocks(const ScheduleContext& context, unsigned dim, Value first, Value last,
                llvm::function_ref<void(Value)> body) {
  IndexSpace& space = context.domain.space;
  Evaluator& e = context.evaluator;
  OpBuilder& b = context.builder();
  Location loc = b.getUnknownLoc();
  int64_t lanes = lanesFor(space, dim, context.target);
  auto times = [&](Value a, int64_t by) -> Value {
    return arith::MulIOp::create(b, loc, a, constantIndex(b, loc, by));
  };
  Value one = constantIndex(b, loc, 1);
  // In place a vector that overlaps the one before would read what that has written. Vectors of one piece of a
  // concatenation each are so while they lie at multiples of the lanes.
  auto mayOverlap = [&] {
    return !context.in_place && !hasVectorsOfOnePiece(context.domain, context.graph, dim, unsigned(lanes));
  };
  if (auto size = constantOf(space.size(dim)); size && (*size % lanes == 0 || mayOverlap())) {
    auto loop = e.openLoop(first, last, one);
    Value base = times(loop.index(), lanes);
    bool aligned = *size % lanes == 0;
    if (!aligned)
      base = arith::MinSIOp::create(b, loc, base, constantIndex(b, loc, *size - lanes));
    e.bindLanes(dim, base, lanes, aligned);
    body(loop.index());
    e.closeLoop(loop);
    return;
  }
  Value size = e.index(space.size(dim)), full = e.index(space.size(dim).floorDiv(lanes));
  e.toInnermost();
  auto loop = e.openLoop(first, arith::MinSIOp::create(b, loc, last, full), one);
  e.bindLanes(dim, times(loop.index(), lanes), lanes, true);
  body(loop.index());
  e.closeLoop(loop);
  e.toInnermost();
  Value rest = arith::MaxSIOp::create(b, loc, first, full);
  auto tail = e.openLoop(rest, last, one);
  e.bindLanes(dim, times(tail.index(), lanes), lanes, true, size);
  body(tail.index());
  e.closeLoop(tail);
}

void scheduleCpu(const ScheduleContext& context) { CpuSchedule(context).run(); }

}  // namespace zefuse
