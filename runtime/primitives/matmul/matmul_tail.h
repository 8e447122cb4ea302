// What follows a product that oneDNN does not compute: bias and post-ops by oneDNN's primitives, in place on the
// result.
#pragma once

#include "runtime/primitives/core/sequence.h"
#include "runtime/primitives/matmul/matmul.h"

namespace zefuse::primitives {

// One number for each column of the result, one behind the other: a product of ours begins with it.
bool isColumnBias(const MatmulDesc& desc);

// Whether the product is of f32 alone, of rows of the result that are contiguous, and what follows it can be done in
// place.
bool endsInPlace(const MatmulDesc& desc);

// A bias that is not of columns, and the post-ops.
std::vector<TailOp> tailOf(const MatmulDesc& desc);

// Prepares it, from `first` on, as the sequence's steps, and the sequence's scratch memory; false where oneDNN has no
// primitive for it.
bool prepareTail(Sequence& sequence, const MatmulDesc& desc, const std::vector<TailOp>& tail, size_t first);
bool prepareTail(Sequence& sequence, const MatmulDesc& desc);

}  // namespace zefuse::primitives
