// Contexts. Context: `devices`, those that it is for, none: all; made of such a vector. Device: `name`.
#pragma once

#include <algorithm>
#include <atomic>
#include <utility>
#include <vector>

#include "drivers/level_zero/calls.h"
#include "drivers/level_zero/driver.h"

namespace zefuse::level_zero {

// Whether the context is for the device; refuses with INVALID_ARGUMENT.
template <typename Context, typename Device>
ze_result_t checkInContext(const char* call, const Context& context, const Device& device) {
  if (context.devices.empty() ||
      std::find(context.devices.begin(), context.devices.end(), &device) != context.devices.end())
    return ZE_RESULT_SUCCESS;
  return refuse(ZE_RESULT_ERROR_INVALID_ARGUMENT, "%s: the context is not for the device '%s' (zeContextCreateEx)",
                call, device.name);
}

template <typename D> struct ContextCalls {
  using Context = typename D::Context;
  using Device = typename D::Device;

  static ze_result_t contextCreate(ze_driver_handle_t hDriver, const ze_context_desc_t* desc,
                                   ze_context_handle_t* phContext) {
    return contextCreateEx(hDriver, desc, 0, nullptr, phContext);
  }

  static ze_result_t contextCreateEx(ze_driver_handle_t hDriver, const ze_context_desc_t* desc, uint32_t numDevices,
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
      std::vector<const Device*> devices;
      for (uint32_t i = 0; i < numDevices; ++i)
        devices.push_back(fromHandle<Device>(phDevices[i]));
      *phContext = toHandle<ze_context_handle_t>(new Context(std::move(devices)));
      return ZE_RESULT_SUCCESS;
    });
  }

  static ze_result_t contextDestroy(ze_context_handle_t hContext) {
    ZEFUSE_OBJECT(Context, context, hContext);
    context->destroy();
    return ZE_RESULT_SUCCESS;
  }

  static ze_result_t contextSystemBarrier(ze_context_handle_t hContext, ze_device_handle_t hDevice) {
    ZEFUSE_CHECK(Context, hContext);
    ZEFUSE_CHECK(Device, hDevice);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    return ZE_RESULT_SUCCESS;
  }

  // All memory of the drivers here is resident always: the two calls only check what they are given.
  static ze_result_t contextMakeMemoryResident(ze_context_handle_t hContext, ze_device_handle_t hDevice, void* ptr,
                                               size_t) {
    ZEFUSE_CHECK(Context, hContext);
    ZEFUSE_CHECK(Device, hDevice);
    ZEFUSE_NOT_NULL(ptr);
    return ZE_RESULT_SUCCESS;
  }

  static ze_result_t contextEvictMemory(ze_context_handle_t hContext, ze_device_handle_t hDevice, void* ptr, size_t) {
    ZEFUSE_CHECK(Context, hContext);
    ZEFUSE_CHECK(Device, hDevice);
    ZEFUSE_NOT_NULL(ptr);
    return ZE_RESULT_SUCCESS;
  }

  static void fill(Entries& made) {
    made.context.pfnCreate = contextCreate;
    made.context.pfnCreateEx = contextCreateEx;
    made.context.pfnDestroy = contextDestroy;
    made.context.pfnSystemBarrier = contextSystemBarrier;
    made.context.pfnMakeMemoryResident = contextMakeMemoryResident;
    made.context.pfnEvictMemory = contextEvictMemory;
  }
};

}  // namespace zefuse::level_zero
