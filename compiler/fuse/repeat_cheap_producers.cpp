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

/// What reads `user`'s result, if `user` is a view that one operation reads; else `user`.
Operation* readerOf(Operation* user) {
  while (isa<ViewOp>(user) && !user->use_empty() && llvm::all_equal(user->getUsers()))
    user = *user->getUsers().begin();
  return user;
}

/// Copies each cheap producer into each of its consumers, so that no memory holds what can be had from an index. A
/// consumer of many views of one (a stack of zeros, and of few gradients among them) has one copy: else it would read
/// as many tensors, more than a kernel may.
void repeatCheapProducers(func::FuncOp graph) {
  SmallVector<Operation*> cheap;
  for (Operation& op : graph.getBody().front())
    if (isCompute(&op) && isCheapToRepeat(&op))
      cheap.push_back(&op);
  for (Operation* op : llvm::reverse(cheap)) {
    // The producer itself serves the first consumer, unless a returned view keeps it: then each has a copy.
    bool first = llvm::none_of(op->getUsers(), [](Operation* user) { return isa<ViewOp>(user) && isReturned(user); });
    llvm::DenseMap<Operation*, Operation*> copies;  // by reader
    for (OpOperand& use : llvm::make_early_inc_range(op->getUses())) {
      Operation* user = graph.getBody().front().findAncestorOpInBlock(*use.getOwner());
      if ((!isCompute(user) && !isa<ViewOp>(user)) || isReturned(user))
        continue;
      Operation*& copy = copies[readerOf(user)];
      if (!copy) {
        copy = std::exchange(first, false) ? op : OpBuilder(user).clone(*op);
      } else if (user->isBeforeInBlock(copy)) {
        copy->moveBefore(user);
      }
      use.set(copy->getResult(0));
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
    llvm::DenseMap<Operation*, Value> made;  // by user
    made[*view->getUsers().begin()] = view.getResult();
    for (OpOperand& use : llvm::make_early_inc_range(view->getUses())) {
      Operation* user = use.getOwner();
      if (isReturned(user))
        continue;
      Value& mine = made[user];
      if (!mine) {
        OpBuilder builder(user);
        IRMapping mapping;
        SmallVector<Operation*> chain = {view};
        for (Value v = view.getSource(); v.getDefiningOp() != source; v = v.getDefiningOp<ViewOp>().getSource())
          chain.push_back(v.getDefiningOp());
        chain.push_back(source);
        for (Operation* link : llvm::reverse(chain))
          builder.clone(*link, mapping);
        mine = mapping.lookup(view.getResult());
      }
      use.set(mine);
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
