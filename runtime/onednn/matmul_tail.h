// What follows a product that oneDNN does not compute: bias and post-ops by oneDNN's primitives, in place on the
// result.
#pragma once

#include "runtime/onednn/matmul.h"
#include "runtime/onednn/sequence.h"

namespace zefuse::onednn {

// One number for each column of the result, one behind the other: a product of ours begins with it.
bool isColumnBias(const MatmulDesc& desc);

// Whether the product is of f32 alone, of rows of the result that are contiguous, and what follows it can be done in
// place.
bool endsInPlace(const MatmulDesc& desc);

// Appends it to the sequence; false with a reason in `why` where oneDNN has no primitive for it. May throw dnnl::error.
bool appendTail(Sequence& sequence, const MatmulDesc& desc, std::string& why);

}  // namespace zefuse::onednn
