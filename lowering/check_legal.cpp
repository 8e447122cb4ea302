#include "lowering/analysis/legality.h"
#include "lowering/dialect/Zefuse.h"
#include "lowering/passes.h"

using namespace mlir;

namespace zefuse {

#define GEN_PASS_DEF_CHECKLEGAL
#include "lowering/Passes.h.inc"

namespace {

class CheckLegal : public impl::CheckLegalBase<CheckLegal> {
  void runOnOperation() override {
    auto first = getOperation()->walk([](KernelOp kernel) {
      for (Operation& op : kernel.getBody().front())
        if (auto illegal = findIllegal(&op)) {
          illegal->op->emitError() << "in kernel " << kernel.getName() << ": " << illegal->reason;
          return WalkResult::interrupt();
        }
      return WalkResult::skip();
    });
    if (first.wasInterrupted())
      signalPassFailure();
    markAllAnalysesPreserved();
  }
};

}  // namespace
}  // namespace zefuse
