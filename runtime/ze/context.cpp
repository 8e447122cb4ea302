#include "runtime/ze/context.h"

namespace zefuse::ze {

Result<Context> Context::create(const Device& device) {
  auto desc = make<ze_context_desc_t>();
  ze_context_handle_t handle = nullptr;
  ZEFUSE_ZE(*device.api, device.name, zeContextCreate, device.driver.handle, &desc, &handle);
  Context context;
  context.device_ = device;
  context.handle_ = {device.api, handle};
  return context;
}

}  // namespace zefuse::ze
