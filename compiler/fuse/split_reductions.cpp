// Reductions with few results: x.sum(), a loss's mean, the bias gradient of a narrow layer. One row of the schedule
// makes one result, so few results mean few threads, or few of a device's work-groups. Such a reduction becomes two:
// partial results over a number of slices, and their combination. The number depends on sizes and the target alone, so
// every run gives the same bits; the second reduction takes what follows (a mean's division) as any other.
//
// The CPU cuts one loop into equal slices, where its size has such a divisor. A GPU needs hundreds: outer loops may be
// slices as a whole, and what equal slices leave over is a third, short reduction:
//
//   sum(x[8193, 4096]) = sum over 512 of (sum of x[16 * slice + i, :]) + sum of x[8192, :]
#include "common/toolchain/target_description.h"
#include "compiler/builder/tensor_builder.h"
#include "compiler/fuse/channels_last.h"
#include "compiler/fuse/graph.h"
#include "compiler/fuse/passes.h"
#include "lowering/analysis/dataflow.h"
#include "lowering/analysis/element_types.h"
#include "lowering/dialect/Zefuse.h"
#include "lowering/dialect/shape.h"
#include "lowering/dialect/simplify.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/bit.h"
#include <cmath>

using namespace mlir;

namespace zefuse {

#define GEN_PASS_DEF_SPLITREDUCTIONS
#include "compiler/fuse/Passes.h.inc"

namespace {

// Of the CPU.
constexpr int64_t enough_units = 16;        // units of work that keep threads busy
constexpr int64_t lanes = 16;               // results of one unit when the reduced dimensions are outer ones
constexpr int64_t enough_work = 128 << 10;  // elements: below, a second launch costs more than threads save
constexpr int64_t fewest_slices = 8, most_slices = 64;

// Of a GPU. One group reads some 70 GB/s, and an eighth of those that are resident saturates the memory (H100).
constexpr double group_items = 512;         // of a long row's group (schedule/gpu)
constexpr double saturating_share = 8;      // of the resident groups
constexpr double long_row = 128 << 10;      // elements of a group: below, a second launch costs more than groups save
constexpr double shortest_slice = 8 << 10;  // elements
constexpr double shortest_symbolic_slice = 1 << 10;  // of the usual size
constexpr double longest_rest = 16 << 10;            // elements, which one group adds to the partial results
constexpr double short_outer_row = 64;   // elements inside a symbolic loop, from which on each of its rounds is a slice
constexpr int64_t aligned_elements = 8;  // an innermost loop's slices begin at multiples of an access's elements

struct Split {
  SmallVector<unsigned> whole;   // reduction loops each round of which is a slice
  std::optional<unsigned> loop;  // and one that is cut into so many,
  int64_t slices = 1;            // each this long,
  AffineExpr length, rest;       // which leaves this many over
  bool partials_innermost = false;

  bool isSlice(unsigned number) const { return loop == number || llvm::is_contained(whole, number); }
};

/// What a reduction must be to have partial results; the sizes of its loops, none: it is not.
std::optional<SmallVector<AffineExpr>> loopSizes(linalg::GenericOp op) {
  if (!isReduction(op) || op.getNumResults() != 1 || !combinerOf(op).op || !initOf(op))
    return std::nullopt;
  // Partial results start from the combiner's neutral element, as the whole does.
  TypedAttr init;
  if (!matchPattern(initOf(op), m_Constant(&init)) || init != neutralElement(combinerOf(op).op))
    return std::nullopt;
  auto indexed = op.getBody()->walk([](linalg::IndexOp) { return WalkResult::interrupt(); });
  if (indexed.wasInterrupted())
    return std::nullopt;
  SmallVector<AffineExpr> sizes(op.getNumLoops());
  for (OpOperand* input : op.getDpsInputOperands()) {
    AffineMap map = op.getMatchingIndexingMap(input);
    for (auto [expr, size] : llvm::zip_equal(map.getResults(), shapeOf(cast<RankedTensorType>(input->get().getType()))))
      if (auto dim = dyn_cast<AffineDimExpr>(expr))
        sizes[dim.getPosition()] = size;
      else if (!isa<AffineConstantExpr>(expr))
        return std::nullopt;
  }
  if (llvm::is_contained(sizes, AffineExpr()))
    return std::nullopt;
  return sizes;
}

bool isReduced(linalg::GenericOp op, unsigned loop) {
  return op.getIteratorTypesArray()[loop] == utils::IteratorType::reduction;
}

/// The largest number of equal slices.
std::optional<int64_t> slicesOf(int64_t size) {
  for (int64_t slices = most_slices; slices >= fewest_slices; --slices)
    if (size % slices == 0)
      return slices;
  return std::nullopt;
}

std::optional<Split> splitForThreads(linalg::GenericOp op, ArrayRef<AffineExpr> sizes) {
  int64_t results = 1, reduced = 1;
  for (auto [loop, expr] : llvm::enumerate(sizes)) {
    auto size = dyn_cast<AffineConstantExpr>(expr);
    if (!size)
      return std::nullopt;
    (isReduced(op, loop) ? reduced : results) *= size.getValue();
  }
  bool inner = isReduced(op, sizes.size() - 1);
  int64_t units = inner ? results : (results + lanes - 1) / lanes;
  if (units >= enough_units || results * reduced < enough_work)
    return std::nullopt;
  // What else reads the elements is computed beside this reduction, which slices would take apart.
  for (OpOperand* input : op.getDpsInputOperands()) {
    Operation* producer = throughViews(input->get()).getDefiningOp();
    if (isCompute(producer) && !producer->hasOneUse())
      return std::nullopt;
  }
  // The outermost loop that divides well: slices are long pieces of memory then.
  for (auto [loop, expr] : llvm::enumerate(sizes))
    if (isReduced(op, loop)) {
      int64_t size = cast<AffineConstantExpr>(expr).getValue();
      if (auto slices = slicesOf(size))
        return Split{{},
                     unsigned(loop),
                     *slices,
                     getAffineConstantExpr(size / *slices, op.getContext()),
                     getAffineConstantExpr(0, op.getContext()),
                     false};
    }
  return std::nullopt;
}

/// With symbols counted as a usual size.
double estimated(AffineExpr size) {
  constexpr int64_t usual = 256;
  DenseMap<AffineExpr, AffineExpr> numbers;
  size.walk([&](AffineExpr part) {
    if (isa<AffineSymbolExpr>(part))
      numbers[part] = getAffineConstantExpr(usual, part.getContext());
  });
  auto constant = dyn_cast<AffineConstantExpr>(simplifyAffine(size.replace(numbers), 0, 0));
  return constant ? double(constant.getValue()) : double(usual);
}

/// Cuts a loop of this size into about `wanted` slices (wanted / 2 to wanted) of whole `unit`s, so that the least is
/// left over.
void cut(Split& split, AffineExpr size, int64_t wanted, int64_t unit) {
  split.slices = wanted;
  if (auto constant = dyn_cast<AffineConstantExpr>(size)) {
    int64_t units = constant.getValue() / unit;
    for (int64_t slices = wanted; slices * 2 >= wanted && units % split.slices != 0; --slices)
      if (units % slices < units % split.slices)
        split.slices = slices;
  }
  split.length = size.floorDiv(split.slices * unit) * unit;
  split.rest = size % (split.slices * unit);
}

/// Bytes of the widest element that a value is computed from, through what fusion joins to its reader.
int64_t bytesRead(Value value) {
  value = throughViews(value);
  auto op = value.getDefiningOp<linalg::GenericOp>();
  if (!op || isReduction(op) || !op->hasOneUse())
    return bytesInMemory(cast<RankedTensorType>(value.getType()).getElementType());
  int64_t bytes = 1;
  for (OpOperand* input : op.getDpsInputOperands())
    bytes = std::max(bytes, bytesRead(input->get()));
  return bytes;
}

/// Results of one group when the reduced dimensions are outer ones: an access of each of a sub-group's work-items.
int64_t columnsOfGroup(linalg::GenericOp op, const TargetDescription& target) {
  int64_t bytes = 1;
  for (OpOperand* input : op.getDpsInputOperands())
    bytes = std::max(bytes, bytesRead(input->get()));
  return target.subgroup_size * std::min<int64_t>(target.vector_width, target.access_bytes / bytes);
}

/// Whether each result is of a channel of images that lie channels last: rows of the schedule lie side by side in
/// memory then, although the innermost loop is a reduction.
bool reducesPlacesOfChannels(linalg::GenericOp op, func::FuncOp graph) {
  ChannelsLastForecast channels_last(graph);
  SmallVector<utils::IteratorType> iterators = op.getIteratorTypesArray();
  for (auto [loop, iterator] : llvm::enumerate(iterators))
    if ((iterator == utils::IteratorType::reduction) != (loop != 1))
      return false;
  bool found = false;
  for (OpOperand* input : op.getDpsInputOperands())
    if (op.getMatchingIndexingMap(input).isIdentity()) {
      if (!channels_last(input->get()))
        return false;
      found = true;
    }
  return found;
}

std::optional<Split> splitForGroups(linalg::GenericOp op, ArrayRef<AffineExpr> sizes, const TargetDescription& target,
                                    func::FuncOp graph) {
  double results = 1, reduced = 1;
  unsigned last = 0;  // the innermost reduction loop
  for (auto [loop, size] : llvm::enumerate(sizes)) {
    bool mine = isReduced(op, loop);
    (mine ? reduced : results) *= estimated(size);
    last = mine ? loop : last;
  }
  bool inner = last + 1 == sizes.size() && !reducesPlacesOfChannels(op, graph);
  double groups = inner ? results : std::ceil(results / double(columnsOfGroup(op, target)));
  double resident = double(target.resident_items) / group_items;
  double work = results * reduced / groups;  // elements of a group
  if (results < 1 || groups * saturating_share >= resident || work < long_row)
    return std::nullopt;
  // Twice the groups that run at a time, so that none waits long for the last. What is symbolic may be larger by far.
  bool known = llvm::all_of(sizes, [](AffineExpr size) { return isa<AffineConstantExpr>(size); });
  double most = std::min(2 * resident / groups, work / (known ? shortest_slice : shortest_symbolic_slice));
  auto wanted = int64_t(llvm::bit_floor(uint64_t(most)));
  Split split;
  split.partials_innermost = inner;
  double inside = reduced, outside = 1;
  for (unsigned loop = 0; loop <= last && wanted > 1; ++loop) {
    if (!isReduced(op, loop))
      continue;
    auto constant = dyn_cast<AffineConstantExpr>(sizes[loop]);
    double size = estimated(sizes[loop]);
    inside /= size;
    auto takeWhole = [&] {
      split.whole.push_back(loop);
      outside *= size;
      wanted = int64_t(double(wanted) / size);
    };
    if (loop != last && (constant ? constant.getValue() <= wanted : inside >= short_outer_row)) {
      takeWhole();
      continue;
    }
    int64_t unit = loop + 1 == sizes.size() ? aligned_elements : 1;
    Split candidate = split;
    candidate.loop = loop;
    cut(candidate, sizes[loop], wanted, unit);
    auto rest = dyn_cast<AffineConstantExpr>(candidate.rest);
    if (loop != last && rest && double(rest.getValue()) * inside * outside > longest_rest) {
      takeWhole();
      break;
    }
    auto length = dyn_cast<AffineConstantExpr>(candidate.length);
    if (!length || length.getValue() > 0)
      split = candidate;
    break;
  }
  if (!split.loop && split.whole.empty())
    return std::nullopt;
  return split;
}

/// Elements start to start + size along a dimension. What is elementwise is computed anew for them, so that the part
/// and the rest of a tensor that is read nowhere else are not one in memory.
Value sliceOf(TensorBuilder& build, Value value, unsigned dim, AffineExpr start, AffineExpr size) {
  auto type = cast<RankedTensorType>(value.getType());
  SmallVector<AffineExpr> sizes = shapeOf(type);
  sizes[dim] = size;
  auto op = value.getDefiningOp<linalg::GenericOp>();
  // Along which dimension of an operand; none: it does not vary.
  auto dimOf = [&](OpOperand* input) -> std::optional<unsigned> {
    for (auto [position, expr] : llvm::enumerate(op.getMatchingIndexingMap(input).getResults()))
      if (expr == build.dim(dim))
        return position;
    return std::nullopt;
  };
  bool elementwise = op && !isReduction(op) && op.getNumResults() == 1 && op.getIndexingMapsArray().back().isIdentity();
  if (elementwise)
    for (OpOperand* input : op.getDpsInputOperands())
      elementwise &= llvm::count_if(op.getMatchingIndexingMap(input).getResults(), [&](AffineExpr expr) {
                       return expr.isFunctionOfDim(dim);
                     }) == (dimOf(input) ? 1 : 0);
  if (!elementwise) {
    SmallVector<AffineExpr> source;
    for (unsigned position = 0; position < sizes.size(); ++position)
      source.push_back(position == dim ? start + build.dim(position) : build.dim(position));
    return build.view(value, source, sizes);
  }
  SmallVector<Value> inputs;
  for (OpOperand* input : op.getDpsInputOperands()) {
    auto position = dimOf(input);
    inputs.push_back(position ? sliceOf(build, input->get(), *position, start, size) : input->get());
  }
  RankedTensorType sliced = build.type(sizes, type.getElementType());
  auto copy = linalg::GenericOp::create(build.b, op.getLoc(), TypeRange{sliced}, inputs, build.empty(sliced),
                                        op.getIndexingMapsArray(), op.getIteratorTypesArray());
  IRMapping mapping;
  op.getRegion().cloneInto(&copy.getRegion(), mapping);
  SmallVector<linalg::IndexOp> positions;
  copy.walk([&](linalg::IndexOp index) {
    if (index.getDim() == dim)
      positions.push_back(index);
  });
  for (linalg::IndexOp index : positions) {
    OpBuilder inner(index->getContext());
    inner.setInsertionPointAfter(index);
    TensorBuilder inside(index.getLoc(), inner, build.num_symbols);
    Value first = isa<AffineConstantExpr>(start)
                      ? Value(arith::ConstantIndexOp::create(inside.b, cast<AffineConstantExpr>(start).getValue()))
                      : inside.size(start);
    auto moved = arith::AddIOp::create(inside.b, index, first);
    index.getResult().replaceAllUsesExcept(moved, moved);
  }
  return copy.getResult(0);
}

/// The reduction's inputs with a loop cut into `count` pieces of `length` rounds: the piece is a loop of its own,
/// before that loop.
void readPieces(TensorBuilder& build, linalg::GenericOp op, const Split& plan, SmallVector<Value>& inputs,
                SmallVector<AffineMap>& maps) {
  auto moved = [&](unsigned loop) { return build.dim(loop <= *plan.loop ? loop : loop + 1); };
  for (OpOperand* input : op.getDpsInputOperands()) {
    SmallVector<AffineExpr> indices, source, sizes;
    auto next = [&](AffineExpr size, AffineExpr index) {
      sizes.push_back(size);
      indices.push_back(index);
      return build.dim(sizes.size() - 1);
    };
    auto shape = shapeOf(typeOf(input->get()));
    for (auto [expr, size] : llvm::zip_equal(op.getMatchingIndexingMap(input).getResults(), shape)) {
      auto dim = dyn_cast<AffineDimExpr>(expr);
      if (!dim || dim.getPosition() != *plan.loop) {
        source.push_back(next(size, dim ? moved(dim.getPosition()) : expr));
        continue;
      }
      AffineExpr piece = next(build.constant(plan.slices), build.dim(*plan.loop));
      source.push_back(piece * plan.length + next(plan.length, build.dim(*plan.loop + 1)));
    }
    inputs.push_back(build.view(input->get(), source, sizes));
    maps.push_back(AffineMap::get(op.getNumLoops() + 1, 0, indices, op.getContext()));
  }
}

/// The inputs past all pieces.
SmallVector<Value> readRest(TensorBuilder& build, linalg::GenericOp op, const Split& plan) {
  SmallVector<Value> inputs;
  for (OpOperand* input : op.getDpsInputOperands()) {
    Value value = input->get();
    for (auto [position, expr] : llvm::enumerate(op.getMatchingIndexingMap(input).getResults()))
      if (expr == build.dim(*plan.loop))
        value = sliceOf(build, value, position, plan.length * plan.slices, plan.rest);
    inputs.push_back(value);
  }
  return inputs;
}

Value reduceTo(TensorBuilder& build, linalg::GenericOp like, RankedTensorType type, ArrayRef<Value> inputs,
               ArrayRef<AffineMap> maps, ArrayRef<utils::IteratorType> iterators) {
  auto init = linalg::FillOp::create(build.b, initOf(like), build.empty(type));
  auto reduction = linalg::GenericOp::create(build.b, TypeRange{type}, inputs, init.getResults(), maps, iterators);
  IRMapping mapping;
  like.getRegion().cloneInto(&reduction.getRegion(), mapping);
  return reduction.getResult(0);
}

/// The values' combination: over the loops that `iterators` reduce, or element by element.
Value combined(TensorBuilder& build, Operation* combiner, TypeRange type, ValueRange inputs, Value init,
               ArrayRef<AffineMap> maps, ArrayRef<utils::IteratorType> iterators) {
  return linalg::GenericOp::create(build.b, type, inputs, init, maps, iterators,
                                   [&](OpBuilder& inner, Location at, ValueRange arguments) {
                                     Operation* combined = inner.clone(*combiner);
                                     combined->setOperands(arguments.take_front(2));
                                     linalg::YieldOp::create(inner, at, combined->getResults());
                                   })
      .getResult(0);
}

void split(linalg::GenericOp op, const Split& plan, unsigned num_symbols, bool for_groups) {
  OpBuilder builder(op);
  TensorBuilder build(op.getLoc(), builder, num_symbols);
  MLIRContext* context = op.getContext();
  auto type = cast<RankedTensorType>(op.getResult(0).getType());
  SmallVector<AffineExpr> sizes = *loopSizes(op);
  const unsigned loops = op.getNumLoops(), added = plan.loop ? 1 : 0;

  SmallVector<Value> inputs;
  SmallVector<AffineMap> maps;
  if (plan.loop) {
    readPieces(build, op, plan, inputs, maps);
  } else {
    inputs.assign(op.getInputs().begin(), op.getInputs().end());
    maps.assign(op.getIndexingMapsArray());
    maps.pop_back();
  }
  auto moved = [&](unsigned loop) { return plan.loop && loop > *plan.loop ? loop + 1 : loop; };
  SmallVector<utils::IteratorType> iterators(op.getIteratorTypesArray());
  SmallVector<AffineExpr> partial_sizes, partial_loops, kept_loops;
  for (unsigned loop = 0; loop < loops; ++loop)
    if (plan.isSlice(loop)) {
      bool cut = plan.loop == loop;
      partial_sizes.push_back(cut ? build.constant(plan.slices) : sizes[loop]);
      partial_loops.push_back(build.dim(moved(loop)));
      if (!cut)
        iterators[loop] = utils::IteratorType::parallel;
    }
  if (plan.loop)
    iterators.insert(iterators.begin() + *plan.loop, utils::IteratorType::parallel);
  for (AffineExpr expr : op.getIndexingMapsArray().back().getResults())
    kept_loops.push_back(build.dim(moved(cast<AffineDimExpr>(expr).getPosition())));
  const unsigned parts = partial_sizes.size(), rank = type.getRank();
  SmallVector<AffineExpr> shape = shapeOf(type), indices = kept_loops;
  shape.insert(plan.partials_innermost ? shape.end() : shape.begin(), partial_sizes.begin(), partial_sizes.end());
  indices.insert(plan.partials_innermost ? indices.end() : indices.begin(), partial_loops.begin(), partial_loops.end());
  maps.push_back(AffineMap::get(loops + added, 0, indices, context));
  Value partial = reduceTo(build, op, build.type(shape, type.getElementType()), inputs, maps, iterators);
  if (for_groups)
    partial.getDefiningOp()->setAttr(
        "zefuse.note", builder.getStringAttr("partial results of slices, which the next kernel combines: too few "
                                             "results to fill the device"));

  Operation* combiner = combinerOf(op).op;
  const unsigned first_kept = plan.partials_innermost ? 0 : parts, first_part = plan.partials_innermost ? rank : 0;
  SmallVector<utils::IteratorType> outer(rank + parts, utils::IteratorType::parallel);
  std::fill_n(outer.begin() + first_part, parts, utils::IteratorType::reduction);
  SmallVector<AffineExpr> result;
  for (unsigned dim = 0; dim < rank; ++dim)
    result.push_back(build.dim(first_kept + dim));
  Value whole =
      combined(build, combiner, type, partial, op.getOutputs()[0],
               {build.b.getMultiDimIdentityMap(rank + parts), AffineMap::get(rank + parts, 0, result, context)}, outer);
  if (plan.loop && !isConstant(plan.rest, 0)) {
    Value rest =
        reduceTo(build, op, type, readRest(build, op, plan), op.getIndexingMapsArray(), op.getIteratorTypesArray());
    AffineMap same = build.b.getMultiDimIdentityMap(rank);
    whole = combined(build, combiner, type, {whole, rest}, build.empty(type), {same, same, same},
                     SmallVector<utils::IteratorType>(rank, utils::IteratorType::parallel));
  }
  op.getResult(0).replaceAllUsesWith(whole);
  whole.getDefiningOp()->setDiscardableAttrs(op->getDiscardableAttrDictionary());
  if (for_groups)
    whole.getDefiningOp()->setAttr(few_results, builder.getUnitAttr());
  op.erase();
}

class SplitReductions : public impl::SplitReductionsBase<SplitReductions> {
public:
  using SplitReductionsBase::SplitReductionsBase;

private:
  void runOnOperation() override {
    const std::optional<TargetDescription> description = TargetDescription::named(target);
    if (!description) {
      getOperation()->emitError() << "'" << target << "' is no target";
      return signalPassFailure();
    }
    const bool groups = description->hasWorkGroups();
    for (auto op : llvm::make_early_inc_range(getOperation().getBody().front().getOps<linalg::GenericOp>())) {
      auto sizes = loopSizes(op);
      if (!sizes)
        continue;
      if (auto plan = groups ? splitForGroups(op, *sizes, *description, getOperation()) : splitForThreads(op, *sizes))
        split(op, *plan, graphSymbolsOf(getOperation()), groups);
    }
  }
};

}  // namespace
}  // namespace zefuse
