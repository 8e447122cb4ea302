// From a group of compute operations to a zefuse.kernel.
#pragma once

#include "lowering/dialect/Zefuse.h"
#include "mlir/Support/LLVM.h"
#include "llvm/ADT/SetVector.h"

namespace zefuse {

// What a kernel of some compute operations holds.
struct KernelBody {
  llvm::SetVector<mlir::Operation*> ops;  // they, and the free operations they need, each before its readers
  llvm::SetVector<mlir::Value> inputs;
};

// `ops`: compute operations of one block, in its order. Also what their bodies read from outside (tensor.extract of a
// view) is needed: the schedule is asked about this set (whyNotOneKernel), and this set is what outline makes a kernel.
KernelBody bodyOf(llvm::ArrayRef<mlir::Operation*> ops);

// Makes a kernel of `ops` (compute operations of one block, in its order), where the last of them stands. Free
// operations they need are cloned inside; what others read becomes a result. `ops` are left without users outside.
// The block is no longer in order where a reader stands before the kernel: sort it when all groups are outlined.
KernelOp outline(llvm::ArrayRef<mlir::Operation*> ops, unsigned num_symbols);

}  // namespace zefuse
