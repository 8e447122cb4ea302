// Reductions with few results: x.sum(), a loss's mean, the bias gradient of a narrow layer. One row of the schedule
// makes one result, so few results mean few threads, or few of a device's work-groups. Such a reduction becomes two:
// partial results over a number of slices, and their combination. The number depends on sizes and the target alone, so
// every run gives the same bits; the second reduction takes what follows (a mean's division) as any other.
//
// The CPU cuts one loop into equal slices, where its size has such a divisor; of a group norm's sums over large images
// also where there are some rows, but too few units of them. A GPU needs hundreds: outer loops may be
// slices as a whole, and what equal slices leave over is a third, short reduction:
//
//   sum(x[8193, 4096]) = sum over 512 of (sum of x[16 * slice + i, :]) + sum of x[8192, :]
#include "common/toolchain/target_description.h"
#include "compiler/builder/tensor_builder.h"
#include "compiler/fuse/channels_last.h"
#include "compiler/fuse/graph.h"
#include "compiler/fuse/passes.h"
#include "compiler/fuse/slices.h"
#include "lowering/analysis/dataflow.h"
#include "lowering/analysis/element_types.h"
#include "lowering/dialect/Zefuse.h"
#include "lowering/dialect/shape.h"
#include "lowering/dialect/simplify.h"
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
constexpr int64_t many_elements = 512 << 10;  // of an image, whose groups are cut: two more launches, and one read less
constexpr int64_t slices_of_places = 16;

// Of a GPU. One group reads some 70 GB/s, and an eighth of those that are resident saturates the memory (H100).
constexpr double group_items = 512;         // of a long row's group (schedule/gpu)
constexpr double saturating_share = 8;      // of the resident groups
constexpr double long_row = 128 << 10;      // elements of a group: below, a second launch costs more than groups save
constexpr double shortest_slice = 8 << 10;  // elements
constexpr double shortest_symbolic_slice = 1 << 10;  // of the usual size
constexpr double longest_rest = 16 << 10;            // elements, which one group adds to the partial results
constexpr double short_outer_row = 64;   // elements inside a symbolic loop, from which on each of its rounds is a slice
constexpr int64_t aligned_elements = 8;  // an innermost loop's slices begin at multiples of an access's elements

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

/// How many units of work threads can share of a group norm's sums, whose loops are images, groups, channels of a group
/// and places. Rows of images with channels innermost are walked together, as many as have full vectors.
int64_t unitsOfGroups(linalg::GenericOp op, ArrayRef<int64_t> sizes, func::FuncOp graph) {
  const int64_t rows = sizes[0] * sizes[1];
  if (!ChannelsLastForecast(graph)(throughViews(op.getDpsInputs()[0])))
    return rows;
  for (int64_t together = 1; together < sizes[1]; ++together)
    if (sizes[1] % together == 0 && together * sizes[2] % lanes == 0)
      return rows / together;
  return sizes[0];
}

/// Mean and deviations of few groups of large images: slices of their places, each with a mean of its own. A slice is
/// still in a second-level cache when its deviations are added up, so that memory is read twice and not three times.
std::optional<Split> splitPlacesOfGroups(linalg::GenericOp op, ArrayRef<AffineExpr> exprs, func::FuncOp graph) {
  SmallVector<int64_t> sizes;
  int64_t elements = 1;
  for (AffineExpr expr : exprs) {
    auto size = dyn_cast<AffineConstantExpr>(expr);
    if (!size)
      return std::nullopt;
    sizes.push_back(size.getValue());
    elements *= size.getValue();
  }
  // What makes the elements would be stored for what reads them behind the sums.
  Value image = op.getDpsInputs()[0];
  if (elements < many_elements || sizes.size() < 4 || isCompute(throughViews(image).getDefiningOp()))
    return std::nullopt;
  for (unsigned loop = 0; loop < sizes.size(); ++loop)
    if (isReduced(op, loop) != (loop >= 2))
      return std::nullopt;
  if (unitsOfGroups(op, sizes, graph) >= enough_units)
    return std::nullopt;
  for (unsigned loop = 3; loop < sizes.size(); ++loop)
    for (int64_t slices = slices_of_places; slices >= slices_of_places / 2; --slices)
      if (sizes[loop] % slices == 0)
        return Split{{},
                     loop,
                     slices,
                     getAffineConstantExpr(sizes[loop] / slices, op.getContext()),
                     getAffineConstantExpr(0, op.getContext()),
                     false};
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
    const unsigned symbols = graphSymbolsOf(getOperation());
    auto reductions =
        llvm::to_vector(llvm::make_filter_range(getOperation().getBody().front().getOps<linalg::GenericOp>(),
                                                [](auto op) { return loopSizes(op).has_value(); }));
    llvm::DenseSet<Operation*> done;
    for (linalg::GenericOp op : reductions) {
      if (done.contains(op))
        continue;
      auto sizes = loopSizes(op);
      auto plan = groups ? splitForGroups(op, *sizes, *description, getOperation()) : splitForThreads(op, *sizes);
      auto deviations = groups || !plan ? deviationsFromMeanOf(op) : std::nullopt;
      if (!plan && !groups && deviations)
        plan = splitPlacesOfGroups(op, *sizes, getOperation());
      if (!plan)
        continue;
      if (deviations && (!plan->loop || isConstant(plan->rest, 0))) {
        done.insert(deviations->sum);
        splitDeviations(op, *deviations, *plan, symbols);
      } else {
        splitReduction(op, *plan, symbols, groups);
      }
    }
  }
};

}  // namespace
}  // namespace zefuse
