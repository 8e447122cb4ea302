#include "compiler/dialect/Zefuse.h"
#include "compiler/dialect/shape.h"
#include "compiler/fuse/graph.h"
#include "compiler/fuse/passes.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Dominance.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/CSE.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

using namespace mlir;

namespace zefuse {
namespace {

/// The value behind views and copies: what an output would share memory with if all copies went away.
Value throughCopies(Value value) {
  while (Operation* op = value.getDefiningOp()) {
    if (auto view = dyn_cast<ViewOp>(op))
      value = view.getSource();
    else if (isCopy(op))
      value = op->getOperand(0);
    else
      break;
  }
  return value;
}

bool reachesReturn(Value value) {
  for (Operation* user : value.getUsers()) {
    if (isa<func::ReturnOp>(user))
      return true;
    if ((isa<ViewOp>(user) || isCopy(user)) && reachesReturn(user->getResult(0)))
      return true;
  }
  return false;
}

/// A copy is a view in all but identity. It must stay where an output would otherwise share memory with an input or
/// with another output: eager returned a fresh tensor there.
bool mustStay(linalg::GenericOp copy, func::ReturnOp output) {
  if (!reachesReturn(copy.getResult(0)))
    return false;
  Value source = throughCopies(copy.getResult(0));
  if (isa<BlockArgument>(source))
    return true;
  int shared = 0;
  for (Value value : output.getOperands())
    shared += throughCopies(value) == source;
  return shared > 1;
}

void copiesToViews(func::FuncOp graph) {
  auto output = cast<func::ReturnOp>(graph.getBody().front().getTerminator());
  SmallVector<linalg::GenericOp> copies;
  graph.walk([&](linalg::GenericOp op) {
    if (isCopy(op) && !mustStay(op, output))
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
  markOutputs(graph);
  IRRewriter rewriter(graph.getContext());
  DominanceInfo dominance(graph);
  eliminateCommonSubExpressions(rewriter, dominance, graph);
  return success();
}

}  // namespace zefuse
