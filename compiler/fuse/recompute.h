// A value that one kernel makes and a reduction of another reads: stored, or computed again.
#pragma once

#include "mlir/IR/Operation.h"
#include "mlir/Support/LLVM.h"
#include "llvm/ADT/DenseSet.h"

namespace zefuse {

// `groups`: what fusion would make of the block (compute operations, each group in the block's order). A few
// elementwise operations whose result only a reduction of another group reads (a layer norm's weight gradient: the sum
// over the rows of what the row kernel happens to make) are cloned before that reduction where less memory is moved so:
// storing counts twice, since a line is read before it is written. Returns the clones; nothing then reads what they
// replace. The caller groups anew and keeps the clones from joining their producers before their reduction has them.
llvm::DenseSet<mlir::Operation*> recomputeForReductions(llvm::ArrayRef<llvm::SmallVector<mlir::Operation*>> groups);

}  // namespace zefuse
