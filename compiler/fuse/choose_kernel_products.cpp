// Which products are nodes of kernels, and which stay calls.
#include "common/toolchain/target_description.h"
#include "compiler/fuse/passes.h"
#include "lowering/analysis/product_form.h"
#include "lowering/lower.h"

using namespace mlir;

namespace zefuse {

#define GEN_PASS_DEF_CHOOSEKERNELPRODUCTS
#include "compiler/fuse/Passes.h.inc"

namespace {

class ChooseKernelProducts : public impl::ChooseKernelProductsBase<ChooseKernelProducts> {
public:
  using ChooseKernelProductsBase::ChooseKernelProductsBase;

private:
  void runOnOperation() override {
    auto description = TargetDescription::named(target);
    if (!description) {
      getOperation()->emitError() << "no target is named '" << target << "'";
      return signalPassFailure();
    }
    getOperation().walk([&](MatmulOp op) {
      if (whyNoProductKernel(op, *description).empty())
        markInKernel(op, productLimits(*description));
    });
  }
};

}  // namespace
}  // namespace zefuse
