// Numbers of 16 bits that become the upper halves of 32: bf16 in f32.
#pragma once

#include "llvm/IR/PassManager.h"

namespace zefuse::cuda {

// A vector that is widened element by element and shifted, `shl (zext <2n x i16>), 16` (sext is the same), is of words
// instead: one shift and one mask for each two elements, where ptxas makes three instructions of extracting and
// shifting. For where LLVM's own passes, which would write it the other way, are done.
struct WidenedPairs : llvm::PassInfoMixin<WidenedPairs> {
  static llvm::PreservedAnalyses run(llvm::Function& function, llvm::FunctionAnalysisManager&);
};

}  // namespace zefuse::cuda
