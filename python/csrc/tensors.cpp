#include "python/csrc/tensors.h"

#include <atomic>
#include <utility>

#include <ATen/ops/as_strided.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/TensorOptions.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "common/plan/plan_generated.h"
#include "python/csrc/kept_memory.h"
#include "python/csrc/saved_block.h"
#include "runtime/aten/lazy_values.h"
#include "runtime/ze/sycl.h"

namespace zefuse::python {
namespace {

struct Pair {
  plan::DType plan;
  c10::ScalarType torch;
};
constexpr Pair kDtypes[] = {
    {plan::DType::f32, c10::ScalarType::Float}, {plan::DType::f64, c10::ScalarType::Double},
    {plan::DType::f16, c10::ScalarType::Half},  {plan::DType::bf16, c10::ScalarType::BFloat16},
    {plan::DType::i64, c10::ScalarType::Long},  {plan::DType::i32, c10::ScalarType::Int},
    {plan::DType::i16, c10::ScalarType::Short}, {plan::DType::i8, c10::ScalarType::Char},
    {plan::DType::u8, c10::ScalarType::Byte},   {plan::DType::b8, c10::ScalarType::Bool},
};

}  // namespace

Result<plan::DType> planDtype(c10::ScalarType type) {
  for (const Pair& pair : kDtypes)
    if (pair.torch == type)
      return pair.plan;
  return Status(Code::invalid_argument, std::string("dtype ") + c10::toString(type) + " has no form in a plan");
}

c10::ScalarType torchDtype(plan::DType type) {
  for (const Pair& pair : kDtypes)
    if (pair.plan == type)
      return pair.torch;
  return c10::ScalarType::Undefined;
}

// Where the first element lies, or would: ATen has no address for a tensor without elements, but what one repeats along
// a size of 0 a kernel reads once, ahead of its loop over that size.
static void* addressOf(const at::Tensor& tensor) {
  if (tensor.numel() > 0)
    return tensor.data_ptr();
  auto* storage = static_cast<std::byte*>(const_cast<void*>(tensor.storage().data()));
  return storage ? storage + tensor.storage_offset() * static_cast<int64_t>(tensor.itemsize()) : nullptr;
}

Result<TensorRef> tensorRef(const at::Tensor& tensor, const TorchPlace& place) {
  c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  const c10::Device device = tensor.device();
  const bool on_device = place && device == *place;
  if (!impl->has_storage() || !(device.is_cpu() || on_device)) {
    if (place && impl->has_storage())  // in torch's words
      return Status(Code::invalid_argument,
                    "Expected all tensors to be on the same device, but found at least two devices, " + place->str() +
                        " (the graph's) and " + device.str() + "!");
    return Status(Code::invalid_argument,
                  "a " + device.str() + " tensor without plain CPU memory: move it to the CPU first");
  }
  auto dtype = planDtype(tensor.scalar_type());
  if (!dtype.ok())
    return dtype.status();
  TensorRef ref;
  ref.data = addressOf(tensor);
  ref.dtype = *dtype;
  ref.sizes = {tensor.sizes().data(), tensor.sizes().size()};
  ref.strides = {tensor.strides().data(), tensor.strides().size()};
  // Inference tensors have no counter: then the address and the fingerprint alone tell of a change.
  ref.version = impl->is_inference() ? 0 : impl->version_counter().current_version();
  ref.owner = const_cast<at::Tensor*>(&tensor);
  ref.place = on_device ? Place::device : Place::host;
  return ref;
}

void* currentStream(c10::Device place) {
  const c10::impl::VirtualGuardImpl device(place.type());
  return device.getStreamNativeHandle(device.getStream(place));
}

Status makeKnown(c10::Device place, const std::string& name) {
  return place.is_xpu() ? ze::adoptSyclQueue(name, currentStream(place)) : Status();
}

void giveBackTorchsCache(c10::DeviceType type) {
  static std::atomic<c10::DeviceType> kind{c10::DeviceType::CPU};
  if (kind.exchange(type) == type)
    return;
  setLastResort([] {
    auto* allocator = dynamic_cast<c10::DeviceAllocator*>(c10::GetAllocator(kind));
    if (!allocator || !allocator->initialized())
      return false;
    allocator->emptyCache();
    return true;
  });
}

Result<void*> OutputStorage::allocate(const OutputRequest& request) {
  if (place_ && request.place == Place::device) {
    const int64_t place = saved_ && request.index < saved_->of_buffers.size() ? saved_->of_buffers[request.index] : -1;
    if (place < 0)
      return allocateOnDevice(storages_.at(request.index), request.bytes);
    if (size_t(place) + request.bytes > saved_->bytes)
      return Status(Code::internal, "output buffer " + std::to_string(request.index) + " reaches beyond its block");
    void* block = block_ ? block_.mutable_data() : allocateOnDevice(block_, saved_->bytes);
    return static_cast<std::byte*>(block) + place;
  }
  try {
    auto* allocator = c10::GetCPUAllocator();
    c10::Storage& storage = storages_.at(request.index);
    if (request.bytes < kept_memory::least_bytes) {
      storage = c10::Storage(c10::Storage::use_byte_size_t(), request.bytes, allocator, /*resizable=*/true);
    } else {
      if (!std::exchange(large_, true))
        kept_memory::beginCall();
      storage = c10::Storage(c10::Storage::use_byte_size_t(), request.bytes, kept_memory::allocate(request.bytes),
                             allocator, /*resizable=*/true);
    }
    return storages_[request.index].mutable_data();
  } catch (const std::exception& error) {
    return Status(Code::out_of_memory, "output of " + std::to_string(request.bytes) + " bytes: " + error.what());
  }
}

namespace {

/// A tensor of `output`'s dtype, sizes and strides on `storage`, from element `offset` of that dtype on.
at::Tensor on(c10::Storage storage, const CallOutput& output, int64_t offset) {
  const c10::DispatchKey key =
      storage.device().is_cpu()
          ? c10::DispatchKey::CPU
          : c10::computeDispatchKey(torchDtype(output.dtype), c10::Layout::Strided, storage.device());
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(key),
                                                               c10::scalarTypeToTypeMeta(torchDtype(output.dtype)));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(output.sizes, output.strides, offset);
  return tensor;
}

}  // namespace

void* OutputStorage::allocateOnDevice(c10::Storage& storage, size_t bytes) {
  storage = c10::Storage(c10::Storage::use_byte_size_t(), bytes, c10::GetAllocator(place_->type()), /*resizable=*/true);
  return storage.mutable_data();
}

at::Tensor OutputStorage::block() {
  CallOutput bytes;
  bytes.dtype = plan::DType::u8;
  bytes.sizes = {int64_t(saved_->bytes)};
  bytes.strides = {1};
  return on(block_, bytes, 0);
}

at::Tensor OutputStorage::wrap(CallOutput& output, const std::vector<at::Tensor>& inputs) {
  switch (output.kind) {
  case CallOutput::Kind::output_buffer: {
    at::Tensor tensor = on(storages_.at(output.index), output, output.offset);
    // Tensors that share memory share the count of writes, as views do: autograd sees that what it saved was changed.
    if (!tensor.is_inference()) {
      if (std::optional<c10::VariableVersion>& first = versions_.at(output.index))
        tensor.unsafeGetTensorImpl()->set_version_counter(*first);
      else
        first = tensor.unsafeGetTensorImpl()->version_counter();
    }
    return tensor;
  }
  case CallOutput::Kind::input: {
    at::Tensor input = inputs.at(output.index);
    // A view of it carries the mark on; memory read as another dtype, or none, cannot.
    if (aten::isLazy(input) && (input._is_zerotensor() || torchDtype(output.dtype) != input.scalar_type()))
      input = aten::materialize(input);
    if (const c10::ScalarType dtype = torchDtype(output.dtype); dtype != input.scalar_type()) {
      const auto bytes = int64_t(input.storage_offset() * input.element_size());
      at::Tensor view = on(input.storage(), output, bytes / int64_t(c10::elementSize(dtype)) + output.offset);
      if (!input.is_inference())
        view.unsafeGetTensorImpl()->set_version_counter(input.unsafeGetTensorImpl()->version_counter());
      return view;
    }
    if (output.offset == 0 && input.sizes().equals(output.sizes) && input.strides().equals(output.strides))
      return input;
    return at::as_strided(input, output.sizes, output.strides, input.storage_offset() + output.offset);
  }
  case CallOutput::Kind::external: {
    auto* owner = static_cast<at::Tensor*>(output.owner);
    at::Tensor tensor = std::move(*owner);
    delete owner;
    output.owner = nullptr;
    if (tensor.sizes().equals(output.sizes) && tensor.strides().equals(output.strides) && output.offset == 0)
      return tensor;
    return at::as_strided(tensor, output.sizes, output.strides, tensor.storage_offset() + output.offset);
  }
  case CallOutput::Kind::integer:
  case CallOutput::Kind::none: break;
  }
  return {};
}

}  // namespace zefuse::python
