// Tensors whose memory does not hold their elements: torch marks a negative (`_neg_view`, `z.conj().imag`) or a
// conjugate and computes it when an operator reads it, and a tensor of zeros may have no memory at all. Kernels read
// memory.
#pragma once

#include <ATen/core/Tensor.h>

namespace zefuse::aten {

inline bool isLazy(const at::Tensor& tensor) {
  constexpr c10::DispatchKeySet lazy(
      {c10::DispatchKey::Negative, c10::DispatchKey::Conjugate, c10::DispatchKey::ZeroTensor});
  return tensor.unsafeGetTensorImpl()->key_set().has_any(lazy);
}

// A tensor of the same sizes, strides and version whose memory holds the elements; it shares nothing with `tensor`.
at::Tensor materialize(const at::Tensor& tensor);

}  // namespace zefuse::aten
