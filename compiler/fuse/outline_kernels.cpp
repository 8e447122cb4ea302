// Every compute operation (graph.h) ends in exactly one zefuse.kernel: a group of grouping.h is one.
#include "compiler/fuse/graph.h"
#include "compiler/fuse/grouping.h"
#include "compiler/fuse/outline.h"
#include "compiler/fuse/passes.h"

using namespace mlir;

namespace zefuse {

#define GEN_PASS_DEF_OUTLINEKERNELS
#include "compiler/fuse/Passes.h.inc"

namespace {

LogicalResult outlineAll(func::FuncOp graph, const Grouping& grouping) {
  Block& block = graph.getBody().front();
  Builder builder(graph.getContext());
  SmallVector<Attribute> refusals;
  for (const auto& [first, second, reason] : grouping.refusals())
    refusals.push_back(builder.getDictionaryAttr({builder.getNamedAttr("first", builder.getI64IntegerAttr(first)),
                                                  builder.getNamedAttr("second", builder.getI64IntegerAttr(second)),
                                                  builder.getNamedAttr("reason", builder.getStringAttr(reason))}));
  graph->setAttr("zefuse.not_joined", builder.getArrayAttr(refusals));
  const unsigned num_symbols = graphSymbolsOf(graph);
  for (auto [number, group] : llvm::enumerate(grouping.groups()))
    outline(group, num_symbols).setGroups({int64_t(number)});
  // Kernels stand where their last operation stood, so a reader of an earlier one may now come first.
  if (!sortKeepingOrder(block))
    return graph.emitError("internal: kernels wait for each other in a circle");
  eraseDead(block);
  return success();
}

class OutlineKernels : public impl::OutlineKernelsBase<OutlineKernels> {
public:
  using OutlineKernelsBase::OutlineKernelsBase;

private:
  void runOnOperation() override {
    func::FuncOp graph = getOperation();
    const LogicalResult done =
        merge ? outlineAll(graph, getAnalysis<Grouping>()) : outlineAll(graph, Grouping(graph, /*merge=*/false));
    if (failed(done))
      signalPassFailure();
  }
};

}  // namespace
}  // namespace zefuse
