// What gathers, scatters and views share: the words for an index out of bounds, a selected position, and the sizes of a
// part that is replaced.
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

// The position of select and select_scatter along `dim` of these sizes, counted from the beginning; required to lie
// there.
mlir::AffineExpr selectedPosition(Op& op, llvm::ArrayRef<mlir::AffineExpr> sizes, int64_t dim);

// Requires a dimension of size `bound`, which may be a symbol, to have an element where `count` indices (several
// together, as they broadcast) are not none: a kernel that has nothing to write looks at no index.
void requirePlaces(Op& op, mlir::AffineExpr count, mlir::AffineExpr bound, llvm::StringRef error,
                   llvm::StringRef message);

// "[{}, {}]", a place for each size in the message of a requirement.
std::string placesOf(llvm::ArrayRef<mlir::AffineExpr> sizes);

}  // namespace zefuse
