#include "compiler/fuse/graph.h"
#include "compiler/fuse/passes.h"
#include "lowering/dialect/Zefuse.h"
#include "lowering/dialect/shape.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Dominance.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/CSE.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

using namespace mlir;

namespace zefuse {
namespace {

/// A copy is a view in all but identity, which ownMemory gives back to those outputs that have one.
void copiesToViews(func::FuncOp graph) {
  SmallVector<linalg::GenericOp> copies;
  graph.walk([&](linalg::GenericOp op) {
    if (isCopy(op))
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

/// An output that eager returned in memory of its own gets a copy where it would share an argument's or another
/// output's, whatever op that is free here made it (a clone, cat of one tensor, padding by nothing).
void ownMemory(func::FuncOp graph) {
  auto output = cast<func::ReturnOp>(graph.getBody().front().getTerminator());
  DenseMap<Value, Attribute> owners;  // value behind views: the storage of the first output that shows it
  OpBuilder builder(output);
  for (Attribute attr : graph->getAttrOfType<ArrayAttr>("zefuse.outputs")) {
    auto entry = dyn_cast<DictionaryAttr>(attr);
    if (!entry || !entry.get("result") || entry.get("argument"))
      continue;
    OpOperand& use = output->getOpOperand(entry.getAs<IntegerAttr>("result").getInt());
    Value source = throughViews(use.get());
    Attribute storage = entry.get("storage") ? entry.get("storage") : entry.get("result");
    if (!isa<BlockArgument>(source) && owners.try_emplace(source, storage).first->second == storage)
      continue;
    Location location = use.get().getLoc();
    AffineMap strides = entry.getAs<AffineMapAttr>("strides").getValue();
    Value copy = copyOf(builder, location, cutRepeats(builder, location, use.get(), strides.getResults()));
    use.set(repeatTo(builder, location, copy, cast<RankedTensorType>(use.get().getType())));
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

}  // namespace

LogicalResult prepare(func::FuncOp graph) {
  copiesToViews(graph);
  RewritePatternSet patterns(graph.getContext());
  ViewOp::getCanonicalizationPatterns(patterns, graph.getContext());
  // Folding and dead code only besides the view patterns: linalg's own canonicalizations would undo our copies.
  if (failed(applyPatternsGreedily(graph, std::move(patterns))))
    return graph.emitError("views do not reach a fixed point");
  ownMemory(graph);
  markOutputs(graph);
  IRRewriter rewriter(graph.getContext());
  DominanceInfo dominance(graph);
  eliminateCommonSubExpressions(rewriter, dominance, graph);
  return success();
}

}  // namespace zefuse
