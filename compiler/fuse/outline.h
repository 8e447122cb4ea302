// From a group of compute operations to a zefuse.kernel.
#pragma once

#include "compiler/dialect/Zefuse.h"
#include "mlir/Support/LLVM.h"

namespace zefuse {

// Makes a kernel of `ops` (compute operations of one block, in its order), where the last of them stands. Free
// operations they need are cloned inside; what others read becomes a result. `ops` are left without users outside.
// The block is no longer in order where a reader stands before the kernel: sort it when all groups are outlined.
KernelOp outline(llvm::ArrayRef<mlir::Operation*> ops, unsigned num_symbols);

}  // namespace zefuse
