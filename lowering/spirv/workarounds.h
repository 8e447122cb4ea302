// LLVM IR that the SPIR-V back end takes but writes as a module that no device may build, rewritten to the same values.
#pragma once

#include "llvm/IR/Function.h"

namespace zefuse {

// After the last pass that makes such IR (SimplifyCFG turns a branch between two vectors into a select by one bit):
// - select by a scalar between vectors: SPIR-V below 1.4 wants a condition per component, so the condition is splat;
// - zext of a trunc between three widths: LLVM 22's combiner masks the wide value in the result's type without
//   converting it, so the conversion and the mask are written out;
// - freeze, of which SPIR-V has none: its operand, or where that is a constant that LLVM leaves open (NaN or infinity
//   as an integer) the number that x86 gives, which is the least;
// - another value that LLVM leaves open is zero: a store of it would be left out, and the result what lies in memory.
void rewriteForBackEnd(llvm::Function& function);

}  // namespace zefuse
