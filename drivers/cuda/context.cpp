#include "drivers/cuda/context.h"

#include "drivers/cuda/device.h"
#include "drivers/cuda/memory.h"

namespace zefuse::cuda {

Context::~Context() { AllocationTable::instance().freeAll(*this); }

ze_result_t contextGetStatus(ze_context_handle_t hContext) {
  ZEFUSE_CHECK(Context, hContext);
  for (Device* device : Device::all())
    if (ze_result_t result = device->probe(__func__))
      return result;
  return ZE_RESULT_SUCCESS;
}

}  // namespace zefuse::cuda
