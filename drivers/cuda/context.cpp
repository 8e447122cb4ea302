#include "drivers/cuda/context.h"

#include <algorithm>

#include "drivers/cuda/device.h"
#include "drivers/cuda/memory.h"

namespace zefuse::cuda {

Context::~Context() { AllocationTable::instance().freeAll(*this); }

ze_result_t contextGetStatus(ze_context_handle_t hContext) {
  ZEFUSE_OBJECT(Context, context, hContext);
  const auto& listed = context->devices;
  for (Device* device : Device::all())
    if (listed.empty() || std::ranges::find(listed, device) != listed.end())
      if (ze_result_t result = device->probe("zeContextGetStatus"))
        return result;
  return ZE_RESULT_SUCCESS;
}

}  // namespace zefuse::cuda
