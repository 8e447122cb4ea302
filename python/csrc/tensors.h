// torch tensors at the boundary of the executor. No Python object is touched here: the GIL need not be held.
#pragma once

#include <ATen/core/Tensor.h>

#include "runtime/executor/executable.h"

namespace zefuse::python {

// The plan's name of a torch dtype; invalid_argument for one that no plan holds.
Result<plan::DType> planDtype(c10::ScalarType type);
c10::ScalarType torchDtype(plan::DType type);

// Points into `tensor`, which must outlive the result and must not be lazy (runtime/aten/lazy_values.h).
Result<TensorRef> tensorRef(const at::Tensor& tensor);

// The memory of one call's outputs: allocated by torch, handed to the executor, then wrapped into tensors.
class OutputStorage {
public:
  explicit OutputStorage(size_t buffers) : storages_(buffers) {}
  Result<void*> allocate(const OutputRequest& request);
  // The tensor that an output describes. `inputs`: the tensors of the call, by input number, lazy ones as they came.
  at::Tensor wrap(CallOutput& output, const std::vector<at::Tensor>& inputs);

private:
  std::vector<c10::Storage> storages_;  // by output buffer number
};

}  // namespace zefuse::python
