// What gathers and scatters share: the words for an index out of bounds.
#pragma once

#include <cstdint>
#include <string>

#include "mlir/IR/AffineExpr.h"

namespace zefuse {

// Eager's message for an index outside of dimension `dim`; names its size where that is known when compiling.
std::string outOfBounds(int64_t dim, mlir::AffineExpr size);

}  // namespace zefuse
