// The larger or smaller of two values, which SPIR-V says as comparisons and selects, as the device's instructions.
#pragma once

#include "llvm/IR/Function.h"

namespace zefuse::cuda {

// Of f32, scalars and vectors: `a > b ? a : b` with a NaN that wins becomes `max.NaN`, with a NaN that loses `max`.
// Equal zeros of both signs give either; all else is as it was. False: there were none.
bool useExtremumInstructions(llvm::Function& function);

}  // namespace zefuse::cuda
