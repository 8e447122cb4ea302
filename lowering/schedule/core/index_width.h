// How wide the indices of a kernel have to be.
#pragma once

#include "lowering/dialect/Zefuse.h"

namespace zefuse {

// 32 where no index that a schedule computes for this kernel can pass 2^31, else 64: all sizes are known, no tensor has
// 2^30 elements or more, none lies so far apart in its buffer, and no index comes of data. A schedule's own numbers
// (work-items, tiles past the end, padding in front) stay within twice that.
unsigned indexBits(KernelOp kernel, llvm::ArrayRef<mlir::AffineMap> layouts);

}  // namespace zefuse
