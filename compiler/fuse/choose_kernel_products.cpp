// Which products are nodes of kernels, and which stay calls.
#include "compiler/fuse/graph.h"
#include "compiler/fuse/passes.h"
#include "lowering/analysis/library_products.h"
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
    const std::optional<TargetDescription> description = targetNamed(getOperation(), target);
    if (!description)
      return signalPassFailure();
    const auto which = libraryProductsNamed(library).value_or(LibraryProducts::never);
    const auto of_convolutions = libraryProductsNamed(convolutions).value_or(LibraryProducts::never);
    getOperation().walk([&](Operation* op) {
      if (!isProduct(op) || !whyNoProductKernel(op, *description).empty())
        return;
      markInKernel(op, productLimits(op, *description));
      std::optional<int64_t> work;
      if (auto matmul = dyn_cast<MatmulOp>(op))
        work = libraryWork(matmul, *description, which);
      else if (auto convolution = dyn_cast<ConvolutionOp>(op))
        work = libraryWork(convolution, *description, of_convolutions, isOfParameters(convolution.getWeight()));
      if (work)
        op->setAttr(in_library, IntegerAttr::get(IntegerType::get(op->getContext(), 64), *work));
    });
  }
};

}  // namespace
}  // namespace zefuse
