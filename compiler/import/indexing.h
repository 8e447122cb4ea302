// What gathers and scatters share: the words for an index out of bounds, and the sizes of a part that is replaced.
#pragma once

#include <cstdint>
#include <string>

#include "compiler/import/op.h"

namespace zefuse {

// Eager's message for an index outside of dimension `dim`; names its size where that is known when compiling.
std::string outOfBounds(int64_t dim, mlir::AffineExpr size);

// Refuses a source that is not known to have the sizes of the part of a tensor that it replaces: eager raises where it
// has others, torch's shape rule lets it pass, and a kernel would write outside of the result. A null size is not
// known.
void requireSizesOfPart(Op& op, mlir::Value source, llvm::ArrayRef<mlir::AffineExpr> part);

}  // namespace zefuse
