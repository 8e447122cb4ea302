#include "runtime/aten/lazy_values.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/_conj.h>
#include <ATen/ops/_neg_view.h>
#include <ATen/ops/as_strided.h>
#include <ATen/ops/conj_physical.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/neg.h>
#include <ATen/ops/zeros.h>

namespace zefuse::aten {

namespace {

// Elements from the first to the last that the tensor reaches; 0 for an empty one.
int64_t extentOf(const at::Tensor& tensor) {
  if (tensor.numel() == 0)
    return 0;
  int64_t extent = 1;
  for (int64_t d = 0; d < tensor.dim(); ++d)
    extent += (tensor.size(d) - 1) * tensor.stride(d);
  return extent;
}

at::Tensor computed(const at::Tensor& tensor) {
  const auto options = at::TensorOptions().dtype(tensor.dtype()).layout(tensor.layout()).device(tensor.device());
  const int64_t extent = extentOf(tensor);
  if (tensor._is_zerotensor())
    return at::as_strided(at::zeros({extent}, options), tensor.sizes(), tensor.strides(), 0);
  if (extent > 2 * tensor.numel() && at::has_internal_overlap(tensor) == at::MemOverlap::No) {
    at::Tensor copy = at::empty_strided(tensor.sizes(), tensor.strides(), options);
    return copy.copy_(tensor);
  }
  // The memory as one row: strides stay, and elements that share a place (an expanded tensor's) are computed once.
  at::Tensor memory = tensor;
  if (tensor.is_neg())
    memory = at::_neg_view(memory);
  if (tensor.is_conj())
    memory = at::_conj(memory);
  memory = at::as_strided(memory, {extent}, {1}, tensor.storage_offset());
  if (tensor.is_conj())
    memory = at::conj_physical(memory);
  if (tensor.is_neg())
    memory = at::neg(memory);
  return at::as_strided(memory, tensor.sizes(), tensor.strides(), 0);
}

}  // namespace

at::Tensor materialize(const at::Tensor& tensor) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  at::Tensor result = computed(tensor);
  // What is derived from a weight is kept while its version stays: this one changes when the original does.
  if (!tensor.is_inference() && !result.is_inference())
    result.unsafeGetTensorImpl()->set_version_counter(tensor.unsafeGetTensorImpl()->version_counter());
  return result;
}

}  // namespace zefuse::aten
