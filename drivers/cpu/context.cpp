#include "drivers/cpu/context.h"

#include <algorithm>

#include "drivers/cpu/device.h"
#include "drivers/cpu/memory.h"
#include "drivers/cpu/worker.h"
#include "drivers/level_zero/driver.h"

namespace zefuse::cpu {

Context::~Context() { AllocationTable::instance().freeAll(*this); }

void Context::add(std::shared_ptr<Backlog> backlog) {
  std::lock_guard lock(mutex_);
  backlogs_.push_back(std::move(backlog));
}

void Context::remove(const Backlog& backlog) {
  std::lock_guard lock(mutex_);
  std::erase_if(backlogs_, [&](const auto& each) { return each.get() == &backlog; });
}

void Context::waitForWorkers() {
  // Waits without the lock: the work may need what another thread does meanwhile, an allocation or the end of a queue.
  std::vector<std::shared_ptr<Backlog>> backlogs;
  {
    std::lock_guard lock(mutex_);
    backlogs = backlogs_;
  }
  for (const auto& backlog : backlogs)
    waitFor(*backlog);
}

void Context::deferFree(void* pointer) {
  std::lock_guard lock(mutex_);
  deferred_.push_back(pointer);
  any_deferred_.store(true, std::memory_order_relaxed);
}

void Context::freeDeferred() {
  if (!any_deferred_.load(std::memory_order_relaxed))
    return;
  std::vector<void*> ready;
  {
    std::lock_guard lock(mutex_);
    if (!std::all_of(backlogs_.begin(), backlogs_.end(), [](const auto& backlog) { return idle(*backlog); }))
      return;
    ready.swap(deferred_);
    any_deferred_.store(false, std::memory_order_relaxed);
  }
  for (void* pointer : ready)
    AllocationTable::instance().free(*this, pointer);
}

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
    std::vector<const Device*> devices;
    for (uint32_t i = 0; i < numDevices; ++i)
      devices.push_back(fromHandle<Device>(phDevices[i]));
    *phContext = toHandle<ze_context_handle_t>(new Context(std::move(devices)));
    return ZE_RESULT_SUCCESS;
  });
}

ze_result_t checkInContext(const char* call, const Context& context, const Device& device) {
  if (context.devices.empty() ||
      std::find(context.devices.begin(), context.devices.end(), &device) != context.devices.end())
    return ZE_RESULT_SUCCESS;
  return refuse(ZE_RESULT_ERROR_INVALID_ARGUMENT, "%s: the context is not for the device '%s' (zeContextCreateEx)",
                call, device.name);
}

ze_result_t contextDestroy(ze_context_handle_t hContext) {
  ZEFUSE_OBJECT(Context, context, hContext);
  context->destroy();
  return ZE_RESULT_SUCCESS;
}

ze_result_t contextGetStatus(ze_context_handle_t hContext) {
  ZEFUSE_CHECK(Context, hContext);
  return ZE_RESULT_SUCCESS;
}

ze_result_t contextSystemBarrier(ze_context_handle_t hContext, ze_device_handle_t hDevice) {
  ZEFUSE_CHECK(Context, hContext);
  ZEFUSE_CHECK(Device, hDevice);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return ZE_RESULT_SUCCESS;
}

// Host memory is always resident: the two calls only check what they are given.
ze_result_t contextMakeMemoryResident(ze_context_handle_t hContext, ze_device_handle_t hDevice, void* ptr,
                                      size_t size) {
  ZEFUSE_CHECK(Context, hContext);
  ZEFUSE_CHECK(Device, hDevice);
  ZEFUSE_NOT_NULL(ptr);
  return ZE_RESULT_SUCCESS;
}

ze_result_t contextEvictMemory(ze_context_handle_t hContext, ze_device_handle_t hDevice, void* ptr, size_t size) {
  ZEFUSE_CHECK(Context, hContext);
  ZEFUSE_CHECK(Device, hDevice);
  ZEFUSE_NOT_NULL(ptr);
  return ZE_RESULT_SUCCESS;
}

}  // namespace zefuse::cpu
