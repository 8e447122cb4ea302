#include "runtime/ze/memory.h"

namespace zefuse::ze {

Result<Memory> Memory::allocate(const Context& context, Kind kind, size_t bytes, size_t alignment) {
  const Api& api = context.api();
  const Device& device = context.device();
  auto on_device = make<ze_device_mem_alloc_desc_t>();
  auto on_host = make<ze_host_mem_alloc_desc_t>();
  void* data = nullptr;
  switch (kind) {
  case Kind::host:
    ZEFUSE_ZE(api, device.name, zeMemAllocHost, context.handle(), &on_host, bytes, alignment, &data);
    break;
  case Kind::device:
    ZEFUSE_ZE(api, device.name, zeMemAllocDevice, context.handle(), &on_device, bytes, alignment, device.handle, &data);
    break;
  case Kind::shared:
    ZEFUSE_ZE(api, device.name, zeMemAllocShared, context.handle(), &on_device, &on_host, bytes, alignment,
              device.handle, &data);
    break;
  }
  Memory memory;
  memory.context_ = &context;
  memory.data_ = data;
  memory.bytes_ = bytes;
  return memory;
}

Memory::~Memory() {
  if (!data_)
    return;
  const ze_result_t result = context_->api().zeMemFree(context_->handle(), data_);
  if (traceEnabled())
    traceCall(context_->api(), "zeMemFree", result);
}

}  // namespace zefuse::ze
