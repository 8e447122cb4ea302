// The larger or smaller of two values, which SPIR-V says as comparisons and selects, as the device's instructions.
#pragma once

#include "llvm/IR/PassManager.h"

namespace zefuse::cuda {

// Of f32, scalars and vectors: `a > b ? a : b` with a NaN that wins becomes `max.NaN`, with a NaN that loses `max`.
// Equal zeros of both signs give either; all else is as it was. For where LLVM's own passes have simplified a function.
struct ExtremumInstructions : llvm::PassInfoMixin<ExtremumInstructions> {
  static llvm::PreservedAnalyses run(llvm::Function& function, llvm::FunctionAnalysisManager&);
};

}  // namespace zefuse::cuda
