// Copies between strided tensors with conversion between f32 and bf16: how operands that oneDNN
// cannot take as they are (strides it cannot describe, bf16 on a CPU without bf16 instructions) get
// into scratch, and results out of it.
#pragma once

#include "runtime/primitives/core/tensor_desc.h"

namespace zefuse::primitives {

// `from` and `to` have equal sizes; `source` is `from`'s element of index 0, and its strides may be negative. Uses the
// calling thread's OpenMP team for large tensors. A NaN stays a NaN; bf16 rounds to nearest even.
void stridedCopy(const TensorDesc& from, const void* source, const TensorDesc& to, void* target);

// Writes zeros to every element.
void stridedZero(const TensorDesc& desc, void* target);

}  // namespace zefuse::primitives
