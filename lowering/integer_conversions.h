// Floats as integers, where C leaves open what they become.
#pragma once

#include "mlir/IR/BuiltinOps.h"

namespace zefuse {

// In place, before the LLVM dialect: NaN, infinities and what is beyond the integer's range become the least integer,
// as by x86's instructions and so in eager. LLVM makes poison of such a constant: `where(m, x, inf)` as an integer
// would be x's everywhere.
void defineIntegersOfFloats(mlir::ModuleOp module);

}  // namespace zefuse
