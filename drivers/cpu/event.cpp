#include "drivers/cpu/event.h"

#include <algorithm>

#include "drivers/cpu/clock.h"
#include "drivers/cpu/command.h"
#include "drivers/cpu/device.h"
#include "drivers/cpu/environment.h"
#include "drivers/level_zero/counted.h"

namespace zefuse::cpu {

Event::Event(EventPool& pool, const ze_event_desc_t& desc, SharedEvent* shared)
    : pool(&pool), signal_scope(desc.signal), wait_scope(desc.wait),
      // Bit 3 is KERNEL_MAPPED_TIMESTAMP, which headers have from 1.5 on.
      timestamped((pool.flags & (ZE_EVENT_POOL_FLAG_KERNEL_TIMESTAMP | ZE_BIT(3))) != 0),
      state_(shared ? Completion(shared->state) : Completion()), times_(shared ? shared->times : own_times_) {
  // An index that is used again begins unsignalled; what another process made, it may have signalled already.
  if (shared && !pool.shared.foreign())
    reset();
}

void Event::signal(uint64_t start_ns, uint64_t end_ns) {
  if (timestamped) {
    times_.start_ns.store(start_ns, std::memory_order_relaxed);
    times_.end_ns.store(end_ns, std::memory_order_relaxed);
  }
  state_.set();
}

void Event::reset() {
  state_.reset();
  times_.start_ns.store(0, std::memory_order_relaxed);
  times_.end_ns.store(0, std::memory_order_relaxed);
}

ze_kernel_timestamp_result_t Event::timestamps() const {
  // One clock, and nothing suspends a running command: context time is wall-clock time.
  ze_kernel_timestamp_data_t span = {times_.start_ns.load(std::memory_order_relaxed),
                                     times_.end_ns.load(std::memory_order_relaxed)};
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
  for (uint32_t i = 0; i < numDevices; ++i) {
    ZEFUSE_OBJECT(Device, device, phDevices[i]);
    if (ze_result_t result = checkInContext("zeEventPoolCreate", *context, *device))
      return result;
  }
  return guarded(__func__, [&]() -> ze_result_t {
    SharedEvents shared = desc->flags & ZE_EVENT_POOL_FLAG_IPC ? SharedEvents::create(desc->count) : SharedEvents();
    if ((desc->flags & ZE_EVENT_POOL_FLAG_IPC) && !shared)
      return refuse(ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY, "zeEventPoolCreate: no memory to share for %u events",
                    desc->count);
    *phEventPool =
        toHandle<ze_event_pool_handle_t>(new EventPool(*context, desc->flags, desc->count, std::move(shared)));
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
    *phEvent = toHandle<ze_event_handle_t>(new Event(*pool, *desc, pool->shared.at(desc->index)));
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
  Ref<Event> alive(event);  // a waiter may destroy the event as soon as it sees the signal
  uint64_t now = event->timestamped ? nowNs() : 0;
  event->signal(now, now);
  return ZE_RESULT_SUCCESS;
}

ze_result_t eventHostSynchronize(ze_event_handle_t hEvent, uint64_t timeout) {
  ZEFUSE_OBJECT(Event, event, hEvent);
  if (environment().fault != Fault::lost)
    return event->state().answer(__func__, event->wait(timeout));
  // A device that may go away while we wait: look now and then.
  constexpr uint64_t slice = 5'000'000;
  for (;; timeout -= timeout == UINT64_MAX ? 0 : std::min(slice, timeout)) {
    if (event->wait(std::min(slice, timeout)))
      return event->state().answer(__func__, true);
    if (deviceLost())
      return refuse(ZE_RESULT_ERROR_DEVICE_LOST, "zeEventHostSynchronize: the device is lost");
    if (timeout == 0)
      return ZE_RESULT_NOT_READY;
  }
}

ze_result_t eventQueryStatus(ze_event_handle_t hEvent) {
  ZEFUSE_OBJECT(Event, event, hEvent);
  return event->state().answer(__func__, event->isSignalled());
}

ze_result_t eventHostReset(ze_event_handle_t hEvent) {
  ZEFUSE_OBJECT(Event, event, hEvent);
  event->reset();
  return ZE_RESULT_SUCCESS;
}

ze_result_t eventQueryKernelTimestamp(ze_event_handle_t hEvent, ze_kernel_timestamp_result_t* dstptr) {
  ZEFUSE_OBJECT(Event, event, hEvent);
  ZEFUSE_NOT_NULL(dstptr);
  if (!event->timestamped)
    return refuse(ZE_RESULT_ERROR_INVALID_SYNCHRONIZATION_OBJECT,
                  "zeEventQueryKernelTimestamp: the event's pool was created without "
                  "ZE_EVENT_POOL_FLAG_KERNEL_TIMESTAMP");
  if (ze_result_t result = event->state().answer(__func__, event->isSignalled()))
    return result;
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

ze_result_t eventQueryKernelTimestampsExt(ze_event_handle_t hEvent, ze_device_handle_t hDevice, uint32_t* pCount,
                                          level_zero::QueryKernelTimestampsResults* pResults) {
  ZEFUSE_CHECK(Event, hEvent);
  ZEFUSE_CHECK(Device, hDevice);
  ZEFUSE_NOT_NULL(pCount);
  if (!settleCount(pCount, 1, pResults))
    return ZE_RESULT_SUCCESS;
  ze_kernel_timestamp_result_t times;
  if (ze_result_t result = eventQueryKernelTimestamp(hEvent, &times))
    return result;
  if (pResults->device)
    *pResults->device = times;
  if (pResults->host) {
    // The clocks run apart by less than a thousandth, so what lies between them now lay there then.
    const uint64_t ahead = hostNowNs() - nowNs(), start = times.global.kernelStart + ahead,
                   end = times.global.kernelEnd + ahead;
    *pResults->host = {{start, end}, {start, end}};
  }
  return ZE_RESULT_SUCCESS;
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

}  // namespace zefuse::cpu
