#include "drivers/cuda/event.h"

#include <chrono>
#include <cstring>

#include "drivers/cuda/deferred_releases.h"
#include "drivers/cuda/device.h"
#include "drivers/cuda/host_wait.h"
#include "drivers/level_zero/counted.h"

namespace zefuse::cuda {

EventPool::~EventPool() {
  DeferredReleases::instance().release(*device, [slots = slots] { cuda().cuMemFreeHost(slots); });
}

Event::Event(EventPool& owner, const ze_event_desc_t& desc)
    : pool(&owner), slot(owner.slots[desc.index]), signal_scope(desc.signal), wait_scope(desc.wait),
      // Bit 3 is KERNEL_MAPPED_TIMESTAMP, which headers have from 1.5 on.
      timestamped((owner.flags & (ZE_EVENT_POOL_FLAG_KERNEL_TIMESTAMP | ZE_BIT(3))) != 0) {
  slot.start = slot.end = 0;
  __atomic_store_n(&slot.word, 0u, __ATOMIC_RELEASE);
}

ze_kernel_timestamp_result_t Event::timestamps() const {
  // One clock, and nothing suspends a running command: context time is wall-clock time.
  const ze_kernel_timestamp_data_t span = {slot.start, slot.end};
  return {span, span};
}

ze_result_t eventPoolCreate(ze_context_handle_t hContext, const ze_event_pool_desc_t* desc, uint32_t numDevices,
                            ze_device_handle_t* phDevices, ze_event_pool_handle_t* phEventPool) {
  ZEFUSE_OBJECT(Context, context, hContext);
  ZEFUSE_NOT_NULL(desc);
  ZEFUSE_NOT_NULL(phEventPool);
  *phEventPool = nullptr;
  if (desc->count == 0)
    return refuse(ZE_RESULT_ERROR_INVALID_SIZE, "zeEventPoolCreate: a pool of 0 events");
  if (numDevices != 0 && !phDevices)
    return refuse(ZE_RESULT_ERROR_INVALID_SIZE, "zeEventPoolCreate: numDevices is %u but phDevices is NULL",
                  numDevices);
  for (uint32_t i = 0; i < numDevices; ++i)
    ZEFUSE_CHECK(Device, phDevices[i]);
  if (desc->flags & ZE_EVENT_POOL_FLAG_IPC)
    return refuse(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE, "zeEventPoolCreate: events are private to the process: no IPC");
  return guarded("zeEventPoolCreate", [&]() -> ze_result_t {
    Device* device = numDevices ? fromHandle<Device>(phDevices[0]) : Device::all().front();
    if (ze_result_t result = device->open("zeEventPoolCreate"))
      return result;
    void* slots = nullptr;
    const size_t bytes = sizeof(EventSlot) * desc->count;
    {
      const Current current(*device);
      ZEFUSE_CUDA(*device, "zeEventPoolCreate", cuMemHostAlloc, &slots, bytes,
                  CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
    }
    std::memset(slots, 0, bytes);
    *phEventPool = toHandle<ze_event_pool_handle_t>(
        new EventPool(*context, desc->flags, desc->count, device, static_cast<EventSlot*>(slots)));
    return ZE_RESULT_SUCCESS;
  });
}

ze_result_t eventPoolDestroy(ze_event_pool_handle_t hEventPool) {
  ZEFUSE_OBJECT(EventPool, pool, hEventPool);
  pool->destroy();
  return ZE_RESULT_SUCCESS;
}

ze_result_t eventPoolGetContextHandle(ze_event_pool_handle_t hEventPool, ze_context_handle_t* phContext) {
  ZEFUSE_OBJECT(EventPool, pool, hEventPool);
  ZEFUSE_NOT_NULL(phContext);
  *phContext = toHandle<ze_context_handle_t>(pool->context.get());
  return ZE_RESULT_SUCCESS;
}

ze_result_t eventPoolGetFlags(ze_event_pool_handle_t hEventPool, ze_event_pool_flags_t* pFlags) {
  ZEFUSE_OBJECT(EventPool, pool, hEventPool);
  ZEFUSE_NOT_NULL(pFlags);
  *pFlags = pool->flags;
  return ZE_RESULT_SUCCESS;
}

ze_result_t eventCreate(ze_event_pool_handle_t hEventPool, const ze_event_desc_t* desc, ze_event_handle_t* phEvent) {
  ZEFUSE_OBJECT(EventPool, pool, hEventPool);
  ZEFUSE_NOT_NULL(desc);
  ZEFUSE_NOT_NULL(phEvent);
  *phEvent = nullptr;
  if (desc->index >= pool->count)
    return refuse(ZE_RESULT_ERROR_INVALID_ARGUMENT, "zeEventCreate: index %u in a pool of %u events", desc->index,
                  pool->count);
  return guarded(__func__, [&] {
    *phEvent = toHandle<ze_event_handle_t>(new Event(*pool, *desc));
    return ZE_RESULT_SUCCESS;
  });
}

ze_result_t eventDestroy(ze_event_handle_t hEvent) {
  ZEFUSE_OBJECT(Event, event, hEvent);
  event->destroy();
  return ZE_RESULT_SUCCESS;
}

ze_result_t eventHostSignal(ze_event_handle_t hEvent) {
  ZEFUSE_OBJECT(Event, event, hEvent);
  if (event->timestamped) {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    event->slot.start = event->slot.end =
        event->pool->device->deviceTime(uint64_t(std::chrono::nanoseconds(now).count()));
  }
  __atomic_store_n(&event->slot.word, 1u, __ATOMIC_SEQ_CST);
  return ZE_RESULT_SUCCESS;
}

// Whoever should signal it may be gone: a lost device ends the wait.
ze_result_t eventHostSynchronize(ze_event_handle_t hEvent, uint64_t timeout) {
  ZEFUSE_OBJECT(Event, event, hEvent);
  unsigned looks = 0;
  return hostWait(timeout, [&]() -> ze_result_t {
    if (event->isSignalled())
      return ZE_RESULT_SUCCESS;
    if (++looks % 64 == 0 || timeout == 0)
      for (Device* device : Device::all())
        if (ze_result_t result = device->probe("zeEventHostSynchronize"))
          return result;
    return event->isSignalled() ? ZE_RESULT_SUCCESS : ZE_RESULT_NOT_READY;
  });
}

ze_result_t eventQueryStatus(ze_event_handle_t hEvent) {
  ZEFUSE_OBJECT(Event, event, hEvent);
  return event->isSignalled() ? ZE_RESULT_SUCCESS : ZE_RESULT_NOT_READY;
}

ze_result_t eventHostReset(ze_event_handle_t hEvent) {
  ZEFUSE_OBJECT(Event, event, hEvent);
  __atomic_store_n(&event->slot.word, 0u, __ATOMIC_SEQ_CST);
  return ZE_RESULT_SUCCESS;
}

ze_result_t eventQueryKernelTimestamp(ze_event_handle_t hEvent, ze_kernel_timestamp_result_t* dstptr) {
  ZEFUSE_OBJECT(Event, event, hEvent);
  ZEFUSE_NOT_NULL(dstptr);
  if (!event->timestamped)
    return refuse(ZE_RESULT_ERROR_INVALID_SYNCHRONIZATION_OBJECT,
                  "zeEventQueryKernelTimestamp: the event's pool was created without "
                  "ZE_EVENT_POOL_FLAG_KERNEL_TIMESTAMP");
  if (!event->isSignalled())
    return ZE_RESULT_NOT_READY;
  *dstptr = event->timestamps();
  return ZE_RESULT_SUCCESS;
}

ze_result_t eventQueryTimestampsExp(ze_event_handle_t hEvent, ze_device_handle_t hDevice, uint32_t* pCount,
                                    ze_kernel_timestamp_result_t* pTimestamps) {
  ZEFUSE_CHECK(Event, hEvent);
  ZEFUSE_CHECK(Device, hDevice);
  ZEFUSE_NOT_NULL(pCount);
  return settleCount(pCount, 1, pTimestamps) ? eventQueryKernelTimestamp(hEvent, pTimestamps) : ZE_RESULT_SUCCESS;
}

ze_result_t eventGetEventPool(ze_event_handle_t hEvent, ze_event_pool_handle_t* phEventPool) {
  ZEFUSE_OBJECT(Event, event, hEvent);
  ZEFUSE_NOT_NULL(phEventPool);
  *phEventPool = toHandle<ze_event_pool_handle_t>(event->pool.get());
  return ZE_RESULT_SUCCESS;
}

ze_result_t eventGetSignalScope(ze_event_handle_t hEvent, ze_event_scope_flags_t* pSignalScope) {
  ZEFUSE_OBJECT(Event, event, hEvent);
  ZEFUSE_NOT_NULL(pSignalScope);
  *pSignalScope = event->signal_scope;
  return ZE_RESULT_SUCCESS;
}

ze_result_t eventGetWaitScope(ze_event_handle_t hEvent, ze_event_scope_flags_t* pWaitScope) {
  ZEFUSE_OBJECT(Event, event, hEvent);
  ZEFUSE_NOT_NULL(pWaitScope);
  *pWaitScope = event->wait_scope;
  return ZE_RESULT_SUCCESS;
}

}  // namespace zefuse::cuda
