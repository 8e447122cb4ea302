#include "compiler/fuse/graph.h"
#include "compiler/fuse/output_place.h"
#include "compiler/fuse/passes.h"
#include "lowering/dialect/Zefuse.h"
#include "lowering/dialect/shape.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Dominance.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/CSE.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

using namespace mlir;

namespace zefuse {

#define GEN_PASS_DEF_PREPAREGRAPH
#include "compiler/fuse/Passes.h.inc"

namespace {

/// A copy is a view in all but identity, which ownMemory gives back to those outputs that have one.
void copiesToViews(func::FuncOp graph) {
  SmallVector<linalg::GenericOp> copies;
  graph.walk([&](linalg::GenericOp op) {
    if (isCopy(op) && !op->hasAttr(kept_copy))
      copies.push_back(op);
  });
  for (linalg::GenericOp copy : copies) {
    OpBuilder builder(copy);
    OpOperand* input = copy.getDpsInputOperand(0);
    auto type = cast<RankedTensorType>(copy.getResult(0).getType());
    Value view = ViewOp::create(builder, copy.getLoc(), type, input->get(), copy.getMatchingIndexingMap(input));
    copy.getResult(0).replaceAllUsesWith(view);
    copy.erase();
  }
}

/// In whose memory a value lies: that of a view which ATen makes (as another dtype, as_strided) is its operand's.
Value memoryOf(Value value) {
  for (;;) {
    value = throughViews(value);
    Operation* made = value.getDefiningOp();
    auto views = made ? made->getAttrOfType<IntegerAttr>("zefuse.views") : IntegerAttr();
    if (!views)
      return value;
    value = made->getOperand(unsigned(views.getInt()));
  }
}

/// The nearest value that all are views of and that can lie as eager's memory does; null: none is known.
Value baseFor(ArrayRef<OutputPlace> outputs) {
  Value base = outputs.front().use->get();
  for (const OutputPlace& output : outputs)
    base = commonBase(base, output.use->get());
  for (Value value : viewsBehind(base))
    if (stridesFor(value, outputs))
      return value;
  return {};
}

/// Says in zefuse.outputs where an output's elements lie, if there are any. Before views are composed: only then it is
/// seen what sizes lie between what was computed and the output.
void placeElements(func::FuncOp graph) {
  auto output = cast<func::ReturnOp>(graph.getBody().front().getTerminator());
  SmallVector<Attribute> outputs(outputsOf(graph));
  for (Attribute& each : outputs) {
    auto entry = dyn_cast<DictionaryAttr>(each);
    auto offset = entry ? entry.getAs<AffineMapAttr>("offset") : AffineMapAttr();
    if (!offset || !entry.get("result") || entry.get("argument"))
      continue;
    SmallVector<AffineExpr> sizes;
    for (Value value : viewsBehind(output->getOperand(entry.getAs<IntegerAttr>("result").getInt())))
      llvm::append_range(sizes, shapeOf(cast<RankedTensorType>(value.getType())));
    const AffineMap map = offset.getValue();
    NamedAttrList entries(entry);
    entries.set("offset", AffineMapAttr::get(AffineMap::get(
                              0, map.getNumSymbols(),
                              placeOfElements(map.getResult(0), sizes,
                                              graph->getAttrOfType<ArrayAttr>("zefuse.symbol_sources")))));
    each = entries.getDictionary(graph.getContext());
  }
  if (!outputs.empty())
    graph->setAttr("zefuse.outputs", ArrayAttr::get(graph.getContext(), outputs));
}

/// Outputs that share memory in eager, not an argument's, and that are views of one value here, placed alike.
struct Sharing {
  Attribute storage;
  Value source;
  SmallVector<OutputPlace> outputs;
  bool leaves = false;  // an argument's storage after all, beyond the argument
};

SmallVector<Sharing> sharingOutputs(func::FuncOp graph) {
  SmallVector<Sharing> found;
  auto output = cast<func::ReturnOp>(graph.getBody().front().getTerminator());
  for (Attribute attr : outputsOf(graph)) {
    auto entry = dyn_cast<DictionaryAttr>(attr);
    if (!entry || !entry.get("result") || entry.get("argument"))
      continue;
    auto offset = entry.getAs<AffineMapAttr>("offset");
    OpOperand* use = &output->getOpOperand(entry.getAs<IntegerAttr>("result").getInt());
    Value source = throughViews(use->get());
    const OutputPlace place{use, entry.getAs<AffineMapAttr>("strides").getValue(),
                            offset ? offset.getValue().getResult(0) : AffineExpr()};
    Attribute storage = entry.get("storage") ? entry.get("storage") : entry.get("result");
    auto it = llvm::find_if(found, [&](const Sharing& sharing) {
      if (sharing.storage != storage || sharing.source != source)
        return false;
      SmallVector<OutputPlace> all(sharing.outputs);
      all.push_back(place);
      return llvm::all_of(sharing.outputs,
                          [&](const OutputPlace& other) {
                            return overlapAsInEager(other, place, commonBase(other.use->get(), place.use->get()));
                          }) ||
             baseFor(all);
    });
    if (it == found.end()) {
      found.push_back({storage, source, {}, entry.contains("leaves")});
      it = std::prev(found.end());
    }
    it->outputs.push_back(place);
  }
  return found;
}

Value copyWith(AffineMap strides, Value value, OpBuilder& builder) {
  Location location = value.getLoc();
  Value copy = copyOf(builder, location, cutRepeats(builder, location, value, strides.getResults()));
  return repeatTo(builder, location, copy, cast<RankedTensorType>(value.getType()));
}

/// What all of these outputs are views of is what eager has in memory: they become views of one copy of it.
void giveMemory(const Sharing& sharing) {
  OpBuilder builder(sharing.outputs.front().use->getOwner());
  const Value known = baseFor(sharing.outputs);
  Value base = known ? known : sharing.outputs.front().use->get();
  for (const OutputPlace& output : sharing.outputs)
    base = commonBase(base, output.use->get());
  const auto* whole = llvm::find_if(sharing.outputs, [&](const OutputPlace& each) { return each.use->get() == base; });
  if (!known && isa<BlockArgument>(base) &&
      whole == sharing.outputs.end()) {  // eager had a copy whose place is not known
    for (const OutputPlace& output : sharing.outputs)
      output.use->set(copyWith(output.strides, output.use->get(), builder));
    return;
  }
  Value copy =
      whole != sharing.outputs.end() ? copyWith(whole->strides, base, builder) : copyOf(builder, base.getLoc(), base);
  for (const OutputPlace& output : sharing.outputs) {
    OpOperand* use = output.use;
    Value view = copy;
    SmallVector<Value> steps = viewsBehind(use->get());
    for (Value step : llvm::reverse(ArrayRef(steps.begin(), llvm::find(steps, base)))) {
      auto made = step.getDefiningOp<ViewOp>();
      view = ViewOp::create(builder, made.getLoc(), made.getType(), view, made.getMap());
    }
    use->set(view);
  }
}

/// Whether the outputs, as views of the value, overlap where eager's do, and no other value that they are views of
/// could lie as eager's memory where this one cannot: it need not be repeated for them.
bool liesIn(Value value, const Sharing& sharing) {
  if (sharing.outputs.size() > 1 && !stridesFor(value, sharing.outputs) && baseFor(sharing.outputs))
    return false;
  for (auto [number, output] : llvm::enumerate(sharing.outputs))
    for (const OutputPlace& other : ArrayRef(sharing.outputs).drop_front(number + 1))
      if (!overlapAsInEager(output, other, value))
        return false;
  return true;
}

/// Outputs that eager returned in memory of their own get a copy where they would share an argument's or another
/// output's, whatever op that is free here made it (a clone, cat of one tensor, padding by nothing, flip). Views are
/// not yet composed: which value they share is seen.
void ownMemory(func::FuncOp graph) {
  DenseSet<Value> owned;
  DenseMap<Value, Attribute> storages;  // which of eager's a value's memory is
  for (const Sharing& sharing : sharingOutputs(graph)) {
    // What is free is made again for each of its readers.
    const bool made_again = sharing.outputs.size() > 1 && isFree(sharing.source.getDefiningOp());
    const Value memory = memoryOf(sharing.source);
    const bool taken = isa<BlockArgument>(memory)
                           ? !sharing.leaves || memory == sharing.source
                           : storages.try_emplace(memory, sharing.storage).first->second != sharing.storage;
    if (taken || !owned.insert(sharing.source).second || made_again || !liesIn(sharing.source, sharing))
      giveMemory(sharing);
  }
}

/// Equal computations are distinct tensors to the caller when each is an output: the mark keeps CSE from merging them.
void markOutputs(func::FuncOp graph) {
  auto output = cast<func::ReturnOp>(graph.getBody().front().getTerminator());
  Builder builder(graph.getContext());
  for (auto [i, value] : llvm::enumerate(output.getOperands()))
    if (Operation* op = throughViews(value).getDefiningOp())
      op->setDiscardableAttr("zefuse.output", builder.getI64IntegerAttr(i));
}

/// A reduction over nothing is what it begins with. A kernel of it would take what does not change along that dimension
/// out of a loop that never runs: an element of an input that has none, maybe no address either.
struct ReductionOfNothing : OpInterfaceRewritePattern<linalg::LinalgOp> {
  using OpInterfaceRewritePattern::OpInterfaceRewritePattern;

  LogicalResult matchAndRewrite(linalg::LinalgOp op, PatternRewriter& rewriter) const override {
    SmallVector<int64_t, 4> ranges = op.getStaticLoopRanges();
    for (auto [range, iterator] : llvm::zip(ranges, op.getIteratorTypesArray()))
      if (range == 0 && iterator == utils::IteratorType::reduction) {
        rewriter.replaceOp(op, llvm::map_to_vector(op.getDpsInits(), [&](Value init) { return made(init, rewriter); }));
        return success();
      }
    return failure();
  }

  // What the reduction begins with, as an operation that may be a kernel's result, which a fill may not.
  static Value made(Value init, PatternRewriter& rewriter) {
    auto fill = init.getDefiningOp<linalg::FillOp>();
    Operation* number = fill ? fill.value().getDefiningOp<arith::ConstantOp>() : nullptr;
    if (!number)
      return init;
    const int64_t rank = cast<RankedTensorType>(init.getType()).getRank();
    auto filled = linalg::GenericOp::create(
        rewriter, fill.getLoc(), TypeRange{init.getType()}, ValueRange(), fill.output(),
        {rewriter.getMultiDimIdentityMap(rank)}, SmallVector<utils::IteratorType>(rank, utils::IteratorType::parallel),
        [&](OpBuilder& b, Location l, ValueRange) { linalg::YieldOp::create(b, l, b.clone(*number)->getResult(0)); });
    return filled.getResult(0);
  }
};

LogicalResult prepare(func::FuncOp graph) {
  copiesToViews(graph);
  placeElements(graph);
  ownMemory(graph);
  RewritePatternSet patterns(graph.getContext());
  ViewOp::getCanonicalizationPatterns(patterns, graph.getContext());
  patterns.add<ReductionOfNothing>(graph.getContext());
  // Folding and dead code only besides the view patterns: linalg's own canonicalizations would undo our copies.
  if (failed(applyPatternsGreedily(graph, std::move(patterns))))
    return graph.emitError("views do not reach a fixed point");
  markOutputs(graph);
  IRRewriter rewriter(graph.getContext());
  DominanceInfo dominance(graph);
  eliminateCommonSubExpressions(rewriter, dominance, graph);
  return success();
}

class PrepareGraph : public impl::PrepareGraphBase<PrepareGraph> {
  void runOnOperation() override {
    if (failed(prepare(getOperation())))
      signalPassFailure();
  }
};

}  // namespace
}  // namespace zefuse
