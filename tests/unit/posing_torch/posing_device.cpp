// Torch's device type "cuda" without CUDA, or "xpu" without SYCL, for tests/python (posing_cuda.py, posing_xpu.py): its
// memory is that of the GPU that the CPU's driver poses as, which the host cannot reach, its streams are what lanes.h
// says, and its operators run on the CPU and are copied there and back. There are two devices, in the memory of one.
#include <map>
#include <mutex>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/detail/XPUHooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include "runtime/ze/memory.h"
#include "tests/unit/posing_torch/lanes.h"

#ifdef POSING_cuda
#define POSING_DEVICE CUDA
#else
#define POSING_DEVICE XPU
#endif

namespace zefuse {
namespace {

using posing::handleOf;
using posing::Lane;
using posing::ok;

constexpr c10::DeviceType kind = c10::DeviceType::POSING_DEVICE;
constexpr c10::DeviceIndex devices = 2;

thread_local c10::DeviceIndex current_device = 0;
thread_local c10::StreamId current_stream[devices] = {};

// The context, and a lane for each stream, which are made at its first use and live as long as the process.
struct Driver {
  ze::Context context = posing::makeContext();
  std::mutex mutex;
  std::map<void*, std::unique_ptr<Lane>> lanes;

  static Driver& instance() {
    static auto* made = new Driver;
    return *made;
  }
  Lane& lane() {
    void* handle = handleOf(current_device, current_stream[current_device]);
    const std::lock_guard lock(mutex);
    std::unique_ptr<Lane>& lane = lanes[handle];
    if (!lane)
      lane = posing::makeLane(context, handle);
    return *lane;
  }
  void wait() {
    std::vector<Lane*> all;
    {
      const std::lock_guard lock(mutex);
      for (auto& [handle, lane] : lanes)
        all.push_back(lane.get());
    }
    for (Lane* lane : all)
      lane->wait();
  }
};

// Like torch's: a block that is freed serves the next tensor of its stream at once, since what uses both is in order,
// and of several the one with the lowest address does. So the steps of a training get the same addresses.
class Allocator final : public c10::DeviceAllocator {
public:
  c10::DataPtr allocate(size_t bytes) override {
    const c10::Device device(kind, current_device);
    if (bytes == 0)
      return {nullptr, nullptr, &nothing, device};
    auto* block = new Block{this, bytes, handleOf(current_device, current_stream[current_device]), {}};
    {
      const std::lock_guard lock(mutex_);
      const Key any{block->stream, bytes, nullptr};
      if (auto found = cache_.lower_bound(any);
          found != cache_.end() && found->first.bytes == bytes && found->first.stream == block->stream) {
        block->memory = std::move(found->second);
        cache_.erase(found);
      }
    }
    if (block->memory.bytes() == 0) {
      auto made = ze::Memory::allocate(Driver::instance().context, ze::Memory::Kind::device, bytes);
      if (!made.ok()) {
        emptyCache();
        made = ze::Memory::allocate(Driver::instance().context, ze::Memory::Kind::device, bytes);
      }
      if (!made.ok()) {
        delete block;
        TORCH_CHECK_WITH(OutOfMemoryError, false, "posing device out of memory: ", made.status().message());
      }
      block->memory = std::move(*made);
    }
    return {block->memory.data(), block, &freed, device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void*, const void*, std::size_t) const override { TORCH_CHECK(false, "not needed"); }
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override { emptyCache(); }
  void recordStream(const c10::DataPtr&, c10::Stream) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex) override { return {}; }
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex) override {}

  int emptied = 0;

private:
  struct Key {
    const void* stream;
    size_t bytes;
    const void* address;
    auto operator<=>(const Key&) const = default;
  };
  using Cache = std::map<Key, ze::Memory>;
  struct Block {
    Allocator* owner;
    size_t bytes;
    const void* stream;
    ze::Memory memory;
  };
  static void nothing(void*) {}
  static void freed(void* context) {
    auto* block = static_cast<Block*>(context);
    {
      const std::lock_guard lock(block->owner->mutex_);
      const void* address = block->memory.data();
      block->owner->cache_.emplace(Key{block->stream, block->bytes, address}, std::move(block->memory));
    }
    delete block;
  }
  void emptyCache() {
    Driver::instance().wait();
    Cache gone;
    const std::lock_guard lock(mutex_);
    gone.swap(cache_);
    ++emptied;
  }

  std::mutex mutex_;
  Cache cache_;
};
Allocator& allocator() {
  static auto* made = new Allocator;
  return *made;
}

struct Guard final : public c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kind; }
  c10::Device exchangeDevice(c10::Device device) const override {
    return {kind, std::exchange(current_device, device.index())};
  }
  c10::Device getDevice() const override { return {kind, current_device}; }
  void setDevice(c10::Device device) const override { current_device = device.index(); }
  void uncheckedSetDevice(c10::Device device) const noexcept override { current_device = device.index(); }
  c10::Stream getStream(c10::Device device) const override { return stream(device, current_stream[device.index()]); }
  c10::Stream getDefaultStream(c10::Device device) const override { return stream(device, 0); }
  c10::Stream exchangeStream(c10::Stream to) const override {
    return stream(to.device(), std::exchange(current_stream[to.device_index()], to.id()));
  }
  void* getStreamNativeHandle(const c10::Stream of) const override { return handleOf(of.device_index(), of.id()); }
  c10::DeviceIndex deviceCount() const noexcept override { return devices; }
  void record(void**, const c10::Stream&, const c10::DeviceIndex, const c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override { Driver::instance().wait(); }
  bool queryEvent(void*) const override { return true; }
  void destroyEvent(void*, const c10::DeviceIndex) const noexcept override {}
  void synchronizeDevice(const c10::DeviceIndex) const override { Driver::instance().wait(); }

  static c10::Stream stream(c10::Device device, c10::StreamId id) {
    return c10::Stream(c10::Stream::UNSAFE, device, id);
  }
};

// What torch asks whether there is such a device: it asks once, so this library has to be there before torch is
// imported.
#ifdef POSING_cuda
struct Hooks final : at::CUDAHooksInterface {
  explicit Hooks(at::CUDAHooksArgs) {}
  bool hasCUDA() const override { return true; }
  c10::DeviceIndex current_device() const override { return zefuse::current_device; }
#else
struct Hooks final : at::XPUHooksInterface {
  Hooks() = default;
  explicit Hooks(at::XPUHooksArgs) {}  // of earlier torches
  bool hasXPU() const override { return true; }
  c10::DeviceIndex getNumGPUs() const override { return devices; }
  int32_t getGlobalIdxFromDevice(const c10::Device& device) const override { return device.index(); }
  c10::Device getDeviceFromPtr(void*) const override { return {kind, 0}; }
  c10::DeviceIndex current_device() const override { return zefuse::current_device; }
#endif
  void init() const override {}
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return devices; }
  c10::DeviceIndex getCurrentDevice() const override { return zefuse::current_device; }
  void setCurrentDevice(c10::DeviceIndex device) const override { zefuse::current_device = device; }
};

int64_t extentOf(const at::Tensor& tensor) {
  int64_t extent = 1;
  for (int64_t d = 0; d < tensor.dim(); ++d)
    extent += (tensor.size(d) - 1) * tensor.stride(d);
  return tensor.numel() == 0 ? 0 : extent;
}

// The bytes that the elements of both cover, which lie alike.
void copyBytes(const at::Tensor& to, const at::Tensor& from) {
  const size_t bytes = size_t(extentOf(to)) * to.element_size();
  if (bytes == 0)
    return;
  Lane& lane = Driver::instance().lane();
  lane.copy(to.mutable_data_ptr(), from.const_data_ptr(), bytes);
  if (to.is_cpu() || from.is_cpu())
    lane.wait();
}

// The same on the CPU, with the memory around it, so that strides stay.
at::Tensor onCpu(const at::Tensor& tensor) {
  if (tensor.is_cpu())
    return tensor;
  at::Tensor copy = at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(at::kCPU));
  copyBytes(copy, tensor);
  return copy;
}

at::Tensor& copy_(at::Tensor& self, const at::Tensor& source, bool) {
  if (self.is_cpu())
    return self.copy_(onCpu(source));
  at::Tensor on_cpu = onCpu(self);  // what lies between its elements stays
  on_cpu.copy_(onCpu(source));
  copyBytes(self, on_cpu);
  return self;
}

at::Tensor empty(c10::IntArrayRef sizes, std::optional<at::ScalarType> type, std::optional<at::Layout>,
                 std::optional<at::Device> device, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  const c10::OptionalDeviceGuard guard(device);
  const auto dtype = c10::scalarTypeToTypeMeta(type.value_or(at::kFloat));
  int64_t count = 1;
  for (int64_t size : sizes)
    count *= size;
  c10::Storage storage(c10::Storage::use_byte_size_t(), size_t(count) * dtype.itemsize(), &allocator(), true);
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(std::move(storage),
                                                         c10::DispatchKeySet(c10::DispatchKey::POSING_DEVICE), dtype);
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  if (format && *format != at::MemoryFormat::Preserve)
    tensor.unsafeGetTensorImpl()->empty_tensor_restride(*format);
  return tensor;
}

at::Tensor emptyStrided(c10::IntArrayRef sizes, c10::IntArrayRef strides, std::optional<at::ScalarType> type,
                        std::optional<at::Layout> layout, std::optional<at::Device> device, std::optional<bool> pin) {
  int64_t extent = 1;
  for (size_t d = 0; d < sizes.size(); ++d)
    extent = sizes[d] == 0 ? 0 : extent == 0 ? 0 : extent + (sizes[d] - 1) * strides[d];
  at::Tensor tensor = empty({extent}, type, layout, device, pin, std::nullopt);
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return tensor;
}

const at::Tensor& resize_(const at::Tensor& self, c10::IntArrayRef sizes, std::optional<at::MemoryFormat>) {
  const at::Tensor fresh = empty(sizes, self.scalar_type(), {}, self.device(), {}, {});
  self.unsafeGetTensorImpl()->set_storage_and_dtype(fresh.storage(), fresh.dtype());
  self.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  return self;
}

at::Tensor copyFromAndResize(const at::Tensor& from, const at::Tensor& to) {
  if (to.sizes() != from.sizes())
    to.resize_(from.sizes());
  at::Tensor writable = to;
  copy_(writable, from, false);
  return to;
}

at::Scalar localScalarDense(const at::Tensor& self) { return onCpu(self).item(); }

void onTheCpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) { at::native::cpu_fallback(op, stack); }

}  // namespace
}  // namespace zefuse

using namespace zefuse;

#ifdef POSING_cuda
C10_REGISTER_GUARD_IMPL(CUDA, Guard)
namespace at {
using zefuse::Hooks;
C10_REGISTER_CLASS(CUDAHooksRegistry, CUDAHooks, Hooks)
}  // namespace at
#else
C10_REGISTER_GUARD_IMPL(XPU, Guard)
namespace at {
using zefuse::Hooks;
C10_REGISTER_CLASS(XPUHooksRegistry, XPUHooks, Hooks)
}  // namespace at
#endif

// Expanded before TORCH_LIBRARY_IMPL makes names of it.
#define POSING_LIBRARY(library, device) TORCH_LIBRARY_IMPL(library, device, m)

POSING_LIBRARY(_, POSING_DEVICE) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&onTheCpu>()); }

POSING_LIBRARY(aten, POSING_DEVICE) {
  m.impl("empty.memory_format", &empty);
  m.impl("empty_strided", &emptyStrided);
  m.impl("resize_", &resize_);
  m.impl("copy_", &copy_);
  m.impl("_copy_from_and_resize", &copyFromAndResize);
  m.impl("_local_scalar_dense", &localScalarDense);
  m.impl("as_strided", &at::native::as_strided_tensorimpl);
  m.impl("view", &at::native::view);
}

// For posing_cuda.py and posing_xpu.py, by ctypes.
#define POSING_SHOWN extern "C" __attribute__((visibility("default")))
POSING_SHOWN void posing_start() { c10::SetAllocator(kind, &allocator(), 1); }
POSING_SHOWN int posing_emptied() { return allocator().emptied; }
POSING_SHOWN void posing_wait() { Driver::instance().wait(); }
POSING_SHOWN void posing_use_stream(int stream) { current_stream[current_device] = stream; }
