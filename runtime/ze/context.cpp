#include "runtime/ze/context.h"

namespace zefuse::ze {

Context Context::adopt(const Device& device, ze_context_handle_t handle) {
  Context context;
  context.device_ = device;
  context.adopted_ = handle;
  return context;
}

Result<Context> Context::create(const Device& device) {
  if (device.context)
    return adopt(device, device.context);
  auto desc = make<ze_context_desc_t>();
  ze_context_handle_t handle = nullptr;
  ZEFUSE_ZE(*device.api, device.name, zeContextCreate, device.driver.handle, &desc, &handle);
  Context context;
  context.device_ = device;
  context.handle_ = {device.api, handle};
  return context;
}

Result<Context> Context::of(const std::string& device) {
  Result<Device> found = Device::find(device);
  if (!found.ok())
    return found.status();
  return create(*found);
}

bool isCapturing(const Context& context, void* stream) {
  bool capturing = false;
  return context.api().streamIsCapturing && context.api().streamIsCapturing(stream, &capturing) == ZE_RESULT_SUCCESS &&
         capturing;
}

Status waited(const Context& context, const char* call, ze_result_t result, const char* what, uint64_t nanoseconds) {
  if (traceEnabled())
    traceCall(context.api(), call, result);
  if (result == ZE_RESULT_NOT_READY)
    return {Code::deadline, "device '" + context.device().name + "': " + what + " within " +
                                std::to_string(nanoseconds / 1000000) + " ms"};
  return result == ZE_RESULT_SUCCESS ? Status() : callError(context.api(), call, result, context.device().name);
}

}  // namespace zefuse::ze
