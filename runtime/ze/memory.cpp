#include "runtime/ze/memory.h"

namespace zefuse::ze {

Result<Memory> Memory::allocate(const Context& context, Kind kind, size_t bytes, size_t alignment) {
  const Api& api = context.api();
  const Device& device = context.device();
  auto on_device = make<ze_device_mem_alloc_desc_t>();
  auto on_host = make<ze_host_mem_alloc_desc_t>();
  void* data = nullptr;
  ze_result_t result = ZE_RESULT_SUCCESS;
  const char* call = "";
  switch (kind) {
  case Kind::host:
    call = "zeMemAllocHost";
    result = api.zeMemAllocHost(context.handle(), &on_host, bytes, alignment, &data);
    break;
  case Kind::device:
    call = "zeMemAllocDevice";
    result = api.zeMemAllocDevice(context.handle(), &on_device, bytes, alignment, device.handle, &data);
    break;
  case Kind::shared:
    call = "zeMemAllocShared";
    result = api.zeMemAllocShared(context.handle(), &on_device, &on_host, bytes, alignment, device.handle, &data);
    break;
  }
  if (traceEnabled())
    traceCall(api, call, result);
  if (result != ZE_RESULT_SUCCESS) {
    const Status error = callError(api, call, result, device.name);
    // More than one allocation may have is too little memory, too.
    return Status{result == ZE_RESULT_ERROR_UNSUPPORTED_SIZE ? Code::out_of_memory : error.code(),
                  error.message() + ": " + std::to_string(bytes) + " bytes"};
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
