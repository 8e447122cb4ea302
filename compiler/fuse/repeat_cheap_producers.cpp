// Masks, aranges, broadcasts: what is had from an index alone is made where it is read.
#include "compiler/fuse/graph.h"
#include "compiler/fuse/passes.h"
#include "mlir/IR/IRMapping.h"

using namespace mlir;

namespace zefuse {

#define GEN_PASS_DEF_REPEATCHEAPPRODUCERS
#include "compiler/fuse/Passes.h.inc"

namespace {

/// Outputs that share memory in eager share it here: what they are views of stays one.
bool isReturned(Operation* reader) {
  return isa<func::ReturnOp>(reader) || (isa<ViewOp>(reader) && llvm::any_of(reader->getUsers(), isReturned));
}

/// Copies each cheap producer into each of its consumers, so that no memory holds what can be had from an index.
void repeatCheapProducers(func::FuncOp graph) {
  SmallVector<Operation*> cheap;
  for (Operation& op : graph.getBody().front())
    if (isCompute(&op) && isCheapToRepeat(&op))
      cheap.push_back(&op);
  for (Operation* op : llvm::reverse(cheap)) {
    // The producer itself serves the first consumer, unless a returned view keeps it: then each has a copy.
    bool first = llvm::none_of(op->getUsers(), [](Operation* user) { return isa<ViewOp>(user) && isReturned(user); });
    for (OpOperand& use : llvm::make_early_inc_range(op->getUses())) {
      Operation* user = graph.getBody().front().findAncestorOpInBlock(*use.getOwner());
      if ((!isCompute(user) && !isa<ViewOp>(user)) || isReturned(user))
        continue;
      if (std::exchange(first, false))
        continue;
      OpBuilder builder(user);
      use.set(builder.clone(*op)->getResult(0));
    }
  }
  // A view with several users would tie its consumers to one copy: give each its own.
  for (Operation& op : llvm::make_early_inc_range(llvm::reverse(graph.getBody().front()))) {
    auto view = dyn_cast<ViewOp>(&op);
    if (!view || view->hasOneUse())
      continue;
    Operation* source = throughViews(view.getResult()).getDefiningOp();
    if (!isCompute(source) || !isCheapToRepeat(source))
      continue;
    for (OpOperand& use : llvm::make_early_inc_range(llvm::drop_begin(view->getUses()))) {
      if (isReturned(use.getOwner()))
        continue;
      OpBuilder builder(use.getOwner());
      IRMapping mapping;
      SmallVector<Operation*> chain = {view};
      for (Value v = view.getSource(); v.getDefiningOp() != source; v = v.getDefiningOp<ViewOp>().getSource())
        chain.push_back(v.getDefiningOp());
      chain.push_back(source);
      for (Operation* link : llvm::reverse(chain))
        builder.clone(*link, mapping);
      use.set(mapping.lookup(view.getResult()));
    }
  }
}

class RepeatCheapProducers : public impl::RepeatCheapProducersBase<RepeatCheapProducers> {
  void runOnOperation() override {
    eraseDead(getOperation().getBody().front());
    repeatCheapProducers(getOperation());
  }
};

}  // namespace
}  // namespace zefuse
