// For strict mode: an operator without a lowering is an error.
#include "compiler/fuse/passes.h"

using namespace mlir;

namespace zefuse {

#define GEN_PASS_DEF_REFUSEFALLBACKS
#include "compiler/fuse/Passes.h.inc"

namespace {

class RefuseFallbacks : public impl::RefuseFallbacksBase<RefuseFallbacks> {
  void runOnOperation() override {
    auto first = getOperation().walk([](AtenOp op) {
      if (op.getDraw())
        return WalkResult::advance();
      op.emitError() << op.getOp() << " runs in ATen (" << op.getReason() << "): options={'strict': False} allows it";
      return WalkResult::interrupt();
    });
    if (first.wasInterrupted())
      signalPassFailure();
    markAllAnalysesPreserved();
  }
};

}  // namespace
}  // namespace zefuse
