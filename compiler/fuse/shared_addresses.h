// Addresses that many elements of a gather share: positions of a grid, the same for each channel.
#pragma once

#include "mlir/IR/Block.h"
#include "llvm/ADT/DenseSet.h"

namespace zefuse {

// So many elements and more share an address that is worth memory.
constexpr double many_share = 8;

// Elementwise operations whose results are stored rather than computed for each element that a gather makes: the
// gather's indices where much work leads to them, and what else is made of that work (weights, masks) and read by as
// many elements.
llvm::DenseSet<mlir::Operation*> sharedAddresses(mlir::Block& block);

}  // namespace zefuse
