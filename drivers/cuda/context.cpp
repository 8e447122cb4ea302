#include "drivers/cuda/context.h"

#include <atomic>

#include "drivers/cuda/device.h"
#include "drivers/cuda/memory.h"
#include "drivers/level_zero/driver.h"

namespace zefuse::cuda {

Context::~Context() { AllocationTable::instance().freeAll(*this); }

ze_result_t contextCreate(ze_driver_handle_t hDriver, const ze_context_desc_t* desc, ze_context_handle_t* phContext) {
  return contextCreateEx(hDriver, desc, 0, nullptr, phContext);
}

ze_result_t contextCreateEx(ze_driver_handle_t hDriver, const ze_context_desc_t* desc, uint32_t numDevices,
                            ze_device_handle_t* phDevices, ze_context_handle_t* phContext) {
  ZEFUSE_CHECK(Driver, hDriver);
  ZEFUSE_NOT_NULL(desc);
  ZEFUSE_NOT_NULL(phContext);
  *phContext = nullptr;
  if (numDevices != 0)
    ZEFUSE_NOT_NULL(phDevices);
  for (uint32_t i = 0; i < numDevices; ++i)
    ZEFUSE_CHECK(Device, phDevices[i]);
  return guarded(__func__, [&] {
    *phContext = toHandle<ze_context_handle_t>(new Context);
    return ZE_RESULT_SUCCESS;
  });
}

ze_result_t contextDestroy(ze_context_handle_t hContext) {
  ZEFUSE_OBJECT(Context, context, hContext);
  context->destroy();
  return ZE_RESULT_SUCCESS;
}

ze_result_t contextGetStatus(ze_context_handle_t hContext) {
  ZEFUSE_CHECK(Context, hContext);
  for (Device* device : Device::all())
    if (ze_result_t result = device->probe(__func__))
      return result;
  return ZE_RESULT_SUCCESS;
}

ze_result_t contextSystemBarrier(ze_context_handle_t hContext, ze_device_handle_t hDevice) {
  ZEFUSE_CHECK(Context, hContext);
  ZEFUSE_CHECK(Device, hDevice);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return ZE_RESULT_SUCCESS;
}

// All of CUDA's allocations are resident: the two calls only check what they are given.
ze_result_t contextMakeMemoryResident(ze_context_handle_t hContext, ze_device_handle_t hDevice, void* ptr,
                                      size_t size) {
  ZEFUSE_CHECK(Context, hContext);
  ZEFUSE_CHECK(Device, hDevice);
  ZEFUSE_NOT_NULL(ptr);
  if (size == 0)
    return refuse(ZE_RESULT_ERROR_INVALID_SIZE, "zeContextMakeMemoryResident: size is 0");
  return ZE_RESULT_SUCCESS;
}

ze_result_t contextEvictMemory(ze_context_handle_t hContext, ze_device_handle_t hDevice, void* ptr, size_t size) {
  ZEFUSE_CHECK(Context, hContext);
  ZEFUSE_CHECK(Device, hDevice);
  ZEFUSE_NOT_NULL(ptr);
  if (size == 0)
    return refuse(ZE_RESULT_ERROR_INVALID_SIZE, "zeContextEvictMemory: size is 0");
  return ZE_RESULT_SUCCESS;
}

}  // namespace zefuse::cuda
