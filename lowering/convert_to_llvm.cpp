#include "lowering/passes.h"
#include "lowering/spirv/emit.h"

using namespace mlir;

namespace zefuse {

#define GEN_PASS_DEF_CONVERTTOLLVM
#include "lowering/Passes.h.inc"

namespace {

class ConvertToLLVM : public impl::ConvertToLLVMBase<ConvertToLLVM> {
public:
  using ConvertToLLVMBase::ConvertToLLVMBase;

private:
  void runOnOperation() override {
    if (failed(convertToLLVMDialect(getOperation(), index_bits)))
      signalPassFailure();
  }
};

}  // namespace
}  // namespace zefuse
