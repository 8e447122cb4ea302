#include "lowering/lower.h"
#include "lowering/passes.h"
#include "lowering/schedule/schedule.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;

namespace zefuse {

#define GEN_PASS_DEF_SCHEDULEKERNELS
#include "lowering/Passes.h.inc"

namespace {

class ScheduleKernels : public impl::ScheduleKernelsBase<ScheduleKernels> {
public:
  using ScheduleKernelsBase::ScheduleKernelsBase;

private:
  void runOnOperation() override {
    ModuleOp module = getOperation();
    const std::optional<TargetDescription> description = targetNamed(module, target);
    if (!description)
      return signalPassFailure();
    SmallVector<OwningOpRef<ModuleOp>> scheduled;
    auto all = module.walk([&](KernelOp kernel) {
      FailureOr<ScheduledKernel> made = scheduleKernel(kernel, *description);
      if (failed(made))
        return WalkResult::interrupt();
      scheduled.push_back(std::move(made->module));
      return WalkResult::skip();
    });
    if (all.wasInterrupted())
      return signalPassFailure();
    for (Operation& op : llvm::make_early_inc_range(*module.getBody()))
      op.erase();
    llvm::StringSet<> known;  // kernels of one name are one; so are the builtins that several call
    for (OwningOpRef<ModuleOp>& kernel : scheduled)
      for (Operation& op : llvm::make_early_inc_range(*kernel->getBody()))
        if (known.insert(SymbolTable::getSymbolName(&op)).second)
          op.moveBefore(module.getBody(), module.getBody()->end());
  }
};

}  // namespace
}  // namespace zefuse
