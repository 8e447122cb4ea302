// Reductions with few results: x.sum(), a loss's mean, the bias gradient of a narrow layer. One row of the schedule
// makes one result, so few results mean few threads. Such a reduction becomes two: partial results over a fixed number
// of slices, and their combination. The number depends on sizes alone, so every host and every number of threads
// gives the same bits; the second reduction takes what follows (a mean's division) as any other.
#include "compiler/fuse/graph.h"
#include "compiler/fuse/passes.h"
#include "lowering/analysis/dataflow.h"
#include "lowering/analysis/element_types.h"
#include "lowering/dialect/Zefuse.h"
#include "lowering/dialect/shape.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"

using namespace mlir;

namespace zefuse {

#define GEN_PASS_DEF_SPLITREDUCTIONS
#include "compiler/fuse/Passes.h.inc"

namespace {

constexpr int64_t enough_units = 16;        // units of work that keep threads busy
constexpr int64_t lanes = 16;               // results of one unit when the reduced dimensions are outer ones
constexpr int64_t enough_work = 128 << 10;  // elements: below, a second launch costs more than threads save
constexpr int64_t fewest_slices = 8, most_slices = 64;

struct Split {
  unsigned loop;  // a reduction loop
  int64_t slices, length;
};

/// The largest number of equal slices.
std::optional<int64_t> slicesOf(int64_t size) {
  for (int64_t slices = most_slices; slices >= fewest_slices; --slices)
    if (size % slices == 0)
      return slices;
  return std::nullopt;
}

std::optional<Split> splitOf(linalg::GenericOp op) {
  if (!isReduction(op) || op.getNumResults() != 1 || !combinerOf(op).op || !initOf(op))
    return std::nullopt;
  // Partial results start from the combiner's neutral element, as the whole does.
  TypedAttr init;
  if (!matchPattern(initOf(op), m_Constant(&init)) || init != neutralElement(combinerOf(op).op))
    return std::nullopt;
  auto indexed = op.getBody()->walk([](linalg::IndexOp) { return WalkResult::interrupt(); });
  if (indexed.wasInterrupted())
    return std::nullopt;
  SmallVector<int64_t> sizes(op.getStaticLoopRanges());
  int64_t results = 1, reduced = 1;
  for (auto [size, kind] : llvm::zip(sizes, op.getIteratorTypesArray())) {
    if (ShapedType::isDynamic(size))
      return std::nullopt;
    (kind == utils::IteratorType::reduction ? reduced : results) *= size;
  }
  bool inner = op.getIteratorTypesArray().back() == utils::IteratorType::reduction;
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
  for (auto [loop, kind] : llvm::enumerate(op.getIteratorTypesArray()))
    if (kind == utils::IteratorType::reduction)
      if (auto slices = slicesOf(sizes[loop]))
        return Split{unsigned(loop), *slices, sizes[loop] / *slices};
  return std::nullopt;
}

/// The same indices with a dimension `loop` put in: those behind it move by one.
AffineExpr withLoop(AffineExpr expr, unsigned loop) {
  auto dim = cast<AffineDimExpr>(expr);
  return getAffineDimExpr(dim.getPosition() < loop ? dim.getPosition() : dim.getPosition() + 1, expr.getContext());
}

void split(linalg::GenericOp op, const Split& plan) {
  OpBuilder builder(op);
  Location loc = op.getLoc();
  MLIRContext* context = op.getContext();
  unsigned loops = op.getNumLoops(), slice = plan.loop, within = plan.loop + 1;
  SmallVector<Value> inputs;
  SmallVector<AffineMap> maps;
  for (OpOperand* input : op.getDpsInputOperands()) {
    AffineMap map = op.getMatchingIndexingMap(input);
    auto type = cast<RankedTensorType>(input->get().getType());
    unsigned symbols = numSymbols(type);
    SmallVector<AffineExpr> indices, source;
    SmallVector<int64_t> shape;
    for (auto [expr, size] : llvm::zip(map.getResults(), type.getShape())) {
      auto dim = dyn_cast<AffineDimExpr>(expr);
      if (dim && dim.getPosition() == plan.loop) {
        AffineExpr first = getAffineDimExpr(shape.size(), context),
                   second = getAffineDimExpr(shape.size() + 1, context);
        source.push_back(first * plan.length + second);
        shape.append({plan.slices, plan.length});
        indices.append({getAffineDimExpr(slice, context), getAffineDimExpr(within, context)});
      } else {
        source.push_back(getAffineDimExpr(shape.size(), context));
        shape.push_back(size);
        indices.push_back(dim ? withLoop(expr, plan.loop) : expr);
      }
    }
    Value value = input->get();
    if (shape.size() != type.getShape().size())
      value = ViewOp::create(builder, loc, RankedTensorType::get(shape, type.getElementType()), value,
                             AffineMap::get(shape.size(), symbols, source, context));
    inputs.push_back(value);
    maps.push_back(AffineMap::get(loops + 1, 0, indices, context));
  }
  auto type = cast<RankedTensorType>(op.getResult(0).getType());
  SmallVector<int64_t> shape = {plan.slices};
  llvm::append_range(shape, type.getShape());
  SmallVector<AffineExpr> kept = {getAffineDimExpr(slice, context)};
  for (AffineExpr expr : op.getIndexingMapsArray().back().getResults())
    kept.push_back(withLoop(expr, plan.loop));
  maps.push_back(AffineMap::get(loops + 1, 0, kept, context));
  SmallVector<utils::IteratorType> iterators(op.getIteratorTypesArray());
  iterators.insert(iterators.begin() + slice, utils::IteratorType::parallel);
  auto empty = tensor::EmptyOp::create(builder, loc, shape, type.getElementType());
  auto init = linalg::FillOp::create(builder, loc, initOf(op), empty.getResult());
  auto partial =
      linalg::GenericOp::create(builder, loc, TypeRange{empty.getType()}, inputs, init.getResults(), maps, iterators);
  IRMapping mapping;
  op.getRegion().cloneInto(&partial.getRegion(), mapping);

  unsigned rank = type.getRank();
  SmallVector<AffineExpr> result;
  for (unsigned dim = 0; dim < rank; ++dim)
    result.push_back(getAffineDimExpr(dim + 1, context));
  SmallVector<utils::IteratorType> outer(rank + 1, utils::IteratorType::parallel);
  outer[0] = utils::IteratorType::reduction;
  Operation* combiner = combinerOf(op).op;
  auto whole = linalg::GenericOp::create(
      builder, loc, TypeRange{type}, partial.getResults(), op.getOutputs(),
      ArrayRef<AffineMap>{builder.getMultiDimIdentityMap(rank + 1), AffineMap::get(rank + 1, 0, result, context)},
      outer, [&](OpBuilder& inner, Location at, ValueRange arguments) {
        Operation* combined = inner.clone(*combiner);
        combined->setOperands(arguments);
        linalg::YieldOp::create(inner, at, combined->getResults());
      });
  op.getResult(0).replaceAllUsesWith(whole.getResult(0));
  whole->setDiscardableAttrs(op->getDiscardableAttrDictionary());
  op.erase();
}

class SplitReductions : public impl::SplitReductionsBase<SplitReductions> {
  void runOnOperation() override {
    for (Operation& op : llvm::make_early_inc_range(getOperation().getBody().front()))
      if (auto generic = dyn_cast<linalg::GenericOp>(op))
        if (auto plan = splitOf(generic))
          split(generic, *plan);
  }
};

}  // namespace
}  // namespace zefuse
