#include "runtime/executor/device_memory.h"

#include <algorithm>
#include <utility>

#include "runtime/executor/binding.h"
#include "runtime/executor/host_memory.h"
#include "runtime/executor/strided_copy.h"

namespace zefuse::executor {
namespace {

constexpr std::chrono::milliseconds copy_deadline = std::chrono::minutes(1);

// Of a device that has ended what calls have queued.
Status copyNow(DeviceContext& device, void* to, const void* from, size_t bytes) {
  auto list = ze::CommandList::createImmediate(device.context(), ze::Execution::synchronous);
  return list.ok() ? list->copy(to, from, bytes) : list.status();
}

Status copyInStream(DeviceContext& device, ze::Stream stream, void* to, const void* from, size_t bytes) {
  auto queue = device.takeQueue(nullptr, stream);
  if (!queue.ok())
    return queue.status();
  const Status status = [&]() -> Status {
    ZEFUSE_RETURN_IF_ERROR((*queue)->enter());
    ZEFUSE_RETURN_IF_ERROR((*queue)->immediate.copy(to, from, bytes));
    return (*queue)->leave();
  }();
  (*queue)->busy = true;
  device.giveBack(std::move(*queue));
  return status;
}

// Where a dimension has one element, its stride moves nothing.
bool alike(std::span<const int64_t> sizes, std::span<const int64_t> a, std::span<const int64_t> b) {
  for (size_t d = 0; d < sizes.size(); ++d)
    if (sizes[d] != 1 && a[d] != b[d])
      return false;
  return true;
}

}  // namespace

Result<std::shared_ptr<std::byte>> allocateOnDevice(const std::shared_ptr<DeviceContext>& device, size_t bytes) {
  ZEFUSE_RETURN_IF_ERROR(device->lost());
  auto made = device->allocate(ze::Memory::Kind::device, std::max<size_t>(bytes, 1), "a tensor");
  if (!made.ok())
    return made.status();
  // The context must live as long as its memory, which what is queued may still use.
  struct Held {
    std::shared_ptr<DeviceContext> device;
    ze::Memory memory;
    ~Held() {
      if (!device->lost().ok() || !device->awaitStreams(copy_deadline).ok())
        (void)new ze::Memory(std::move(memory));  // never freed
    }
  };
  auto held = std::make_shared<Held>(device, std::move(*made));
  auto* data = static_cast<std::byte*>(held->memory.data());
  return std::shared_ptr<std::byte>(std::move(held), data);
}

Status copyTensor(DeviceContext* device, ze::Stream stream, const CopyEnd& to, const CopyEnd& from,
                  std::span<const int64_t> sizes, size_t element_size) {
  if (std::ranges::find(sizes, 0) != sizes.end())
    return {};
  const bool to_device = to.place == Place::device, from_device = from.place == Place::device;
  if (!to_device && !from_device) {
    stridedCopy(to.data, to.strides, from.data, from.strides, sizes, element_size);
    return {};
  }
  ZEFUSE_RETURN_IF_ERROR(device->lost());
  const auto to_reach = reach(sizes, to.strides), from_reach = reach(sizes, from.strides);
  if (!to_reach || !from_reach)
    return {Code::invalid_argument, "a tensor's strides are none that memory could have"};
  const size_t to_bytes = size_t(*to_reach) * element_size, from_bytes = size_t(*from_reach) * element_size;
  size_t elements = 1;
  for (int64_t size : sizes)
    elements *= size_t(size);
  const bool dense = to_bytes == elements * element_size, whole = dense && alike(sizes, to.strides, from.strides);
  if (whole && to_device && from_device && stream)
    return copyInStream(*device, stream, to.data, from.data, to_bytes);
  ZEFUSE_RETURN_IF_ERROR(device->awaitStreams(copy_deadline));
  if (whole)
    return copyNow(*device, to.data, from.data, to_bytes);
  // By way of the host.
  HostMemory to_host, from_host;
  ZEFUSE_RETURN_IF_ERROR(to_host.reserve(to_device ? to_bytes : 0));
  ZEFUSE_RETURN_IF_ERROR(from_host.reserve(from_device ? from_bytes : 0));
  if (from_device)
    ZEFUSE_RETURN_IF_ERROR(copyNow(*device, from_host.data(), from.data, from_bytes));
  if (to_device && !dense)
    ZEFUSE_RETURN_IF_ERROR(copyNow(*device, to_host.data(), to.data, to_bytes));
  void* destination = to_device ? to_host.data() : to.data;
  const void* source = from_device ? from_host.data() : from.data;
  stridedCopy(destination, to.strides, source, from.strides, sizes, element_size);
  return to_device ? copyNow(*device, to.data, to_host.data(), to_bytes) : Status();
}

}  // namespace zefuse::executor
