#include "lowering/passes.h"
#include "lowering/spirv/emit.h"

using namespace mlir;

namespace zefuse {

#define GEN_PASS_DEF_CONVERTTOLLVM
#include "lowering/Passes.h.inc"

namespace {

class ConvertToLLVM : public impl::ConvertToLLVMBase<ConvertToLLVM> {
  void runOnOperation() override {
    if (failed(convertToLLVMDialect(getOperation())))
      signalPassFailure();
  }
};

}  // namespace
}  // namespace zefuse
