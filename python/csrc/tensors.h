// torch tensors at the boundary of the executor. No Python object is touched here: the GIL need not be held.
#pragma once

#include <optional>

#include <ATen/core/Tensor.h>

#include "runtime/executor/executable.h"

namespace zefuse::python {

// The plan's name of a torch dtype; invalid_argument for one that no plan holds.
Result<plan::DType> planDtype(c10::ScalarType type);
c10::ScalarType torchDtype(plan::DType type);

// Where the tensors of a graph lie that is for a GPU of torch's; nothing: on the CPU.
using TorchPlace = std::optional<c10::Device>;

// Points into `tensor`, which must outlive the result and must not be lazy (runtime/aten/lazy_values.h). One that lies
// neither on the CPU nor at `place` is an error that names both.
Result<TensorRef> tensorRef(const at::Tensor& tensor, const TorchPlace& place);

// The handle of torch's current stream on a GPU of torch's: what CallPlace::stream is given.
void* currentStream(c10::Device place);
// Makes a GPU of torch's known to the runtime by `name`, where that does not find it by itself: torch.xpu's, by a queue
// of its SYCL. The status names what is missing.
Status makeKnown(c10::Device place, const std::string& name);

// From now on, what torch's allocator of that kind of device keeps and does not use is given back before a GPU is out
// of memory for the executor.
void giveBackTorchsCache(c10::DeviceType type);

// The memory of one call's outputs: allocated by torch (large ones on the CPU: now, or for an earlier call), handed to
// the executor, then wrapped into tensors.
struct SavedBlock;
class OutputStorage {
public:
  // `saved`: buffers that are parts of one tensor; null: none.
  OutputStorage(size_t buffers, const TorchPlace& place, const SavedBlock* saved = nullptr)
      : storages_(buffers), versions_(buffers), place_(place), saved_(saved) {}
  // On a device by torch's allocator there, which throws its own error. That device must be the thread's current one.
  Result<void*> allocate(const OutputRequest& request);
  // The tensor that an output describes. `inputs`: the tensors of the call, by input number, lazy ones as they came.
  at::Tensor wrap(CallOutput& output, const std::vector<at::Tensor>& inputs);
  at::Tensor block();  // of what is saved, as bytes

private:
  void* allocateOnDevice(c10::Storage& storage, size_t bytes);

  std::vector<c10::Storage> storages_;                         // by output buffer number
  std::vector<std::optional<c10::VariableVersion>> versions_;  // likewise, of the first tensor on it
  TorchPlace place_;
  const SavedBlock* saved_;
  c10::Storage block_;
  bool large_ = false;  // some of them are
};

}  // namespace zefuse::python
