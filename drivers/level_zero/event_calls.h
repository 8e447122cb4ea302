// Event pools and events. EventPool: `context`, `flags`, `count`. Event, made of its pool and a descriptor: `pool`,
// `signal_scope`, `wait_scope`, `timestamped`, timestamps(), monotonicTime(device_ns), which is nowNs() of that moment,
// and status(call): SUCCESS, NOT_READY, or why what should signal it failed. The driver's own:
//   ze_result_t makeEventPool(Context&, const ze_event_pool_desc_t&, Device* first_listed, EventPool*& out)
#pragma once

#include "drivers/level_zero/calls.h"
#include "drivers/level_zero/clock.h"
#include "drivers/level_zero/context_calls.h"

namespace zefuse::level_zero {

// KERNEL_MAPPED_TIMESTAMP is a name that headers have from 1.5 on.
constexpr ze_event_pool_flags_t kMappedTimestamp = ZE_BIT(3);
constexpr ze_event_pool_flags_t kPoolFlags =
    ZE_EVENT_POOL_FLAG_HOST_VISIBLE | ZE_EVENT_POOL_FLAG_IPC | ZE_EVENT_POOL_FLAG_KERNEL_TIMESTAMP | kMappedTimestamp;

// Whether events of a pool with the flags have timestamps.
inline bool hasTimestamps(ze_event_pool_flags_t flags) {
  return (flags & (ZE_EVENT_POOL_FLAG_KERNEL_TIMESTAMP | kMappedTimestamp)) != 0;
}

template <typename D> struct EventCalls {
  using Context = typename D::Context;
  using Device = typename D::Device;
  using EventPool = typename D::EventPool;
  using Event = typename D::Event;

  static ze_result_t eventPoolCreate(ze_context_handle_t hContext, const ze_event_pool_desc_t* desc,
                                     uint32_t numDevices, ze_device_handle_t* phDevices,
                                     ze_event_pool_handle_t* phEventPool) {
    ZEFUSE_OBJECT(Context, context, hContext);
    ZEFUSE_NOT_NULL(desc);
    ZEFUSE_NOT_NULL(phEventPool);
    *phEventPool = nullptr;
    if (desc->count == 0)
      return refuse(ZE_RESULT_ERROR_INVALID_SIZE, "zeEventPoolCreate: a pool of 0 events");
    if (desc->flags & ~kPoolFlags)
      return refuse(ZE_RESULT_ERROR_INVALID_ENUMERATION, "zeEventPoolCreate: flags 0x%x, of which 0x%x are known",
                    desc->flags, kPoolFlags);
    if (asksForCounters(*desc))
      return refuse(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE,
                    "zeEventPoolCreate: counter-based events are not supported: an event is a word that stays as it is "
                    "until it is signalled or reset");
    if (numDevices != 0 && !phDevices)
      return refuse(ZE_RESULT_ERROR_INVALID_SIZE, "zeEventPoolCreate: numDevices is %u but phDevices is NULL",
                    numDevices);
    for (uint32_t i = 0; i < numDevices; ++i) {
      ZEFUSE_OBJECT(Device, device, phDevices[i]);
      if (ze_result_t result = checkInContext("zeEventPoolCreate", *context, *device))
        return result;
    }
    Device* first = numDevices ? fromHandle<Device>(phDevices[0]) : nullptr;
    return createAs<EventPool>(__func__, phEventPool,
                               [&](EventPool*& out) { return makeEventPool(*context, *desc, first, out); });
  }

  static ze_result_t eventPoolDestroy(ze_event_pool_handle_t hEventPool) {
    ZEFUSE_OBJECT(EventPool, pool, hEventPool);
    pool->destroy();
    return ZE_RESULT_SUCCESS;
  }

  static ze_result_t eventPoolGetContextHandle(ze_event_pool_handle_t hEventPool, ze_context_handle_t* phContext) {
    ZEFUSE_OBJECT(EventPool, pool, hEventPool);
    ZEFUSE_NOT_NULL(phContext);
    *phContext = toHandle<ze_context_handle_t>(pool->context.get());
    return ZE_RESULT_SUCCESS;
  }

  static ze_result_t eventPoolGetFlags(ze_event_pool_handle_t hEventPool, ze_event_pool_flags_t* pFlags) {
    ZEFUSE_OBJECT(EventPool, pool, hEventPool);
    ZEFUSE_NOT_NULL(pFlags);
    *pFlags = pool->flags;
    return ZE_RESULT_SUCCESS;
  }

  static ze_result_t eventCreate(ze_event_pool_handle_t hEventPool, const ze_event_desc_t* desc,
                                 ze_event_handle_t* phEvent) {
    ZEFUSE_OBJECT(EventPool, pool, hEventPool);
    ZEFUSE_NOT_NULL(desc);
    ZEFUSE_NOT_NULL(phEvent);
    *phEvent = nullptr;
    if (desc->index >= pool->count)
      return refuse(ZE_RESULT_ERROR_INVALID_ARGUMENT, "zeEventCreate: index %u in a pool of %u events", desc->index,
                    pool->count);
    constexpr ze_event_scope_flags_t scopes =
        ZE_EVENT_SCOPE_FLAG_SUBDEVICE | ZE_EVENT_SCOPE_FLAG_DEVICE | ZE_EVENT_SCOPE_FLAG_HOST;
    if ((desc->signal | desc->wait) & ~scopes)
      return refuse(ZE_RESULT_ERROR_INVALID_ENUMERATION, "zeEventCreate: scopes 0x%x and 0x%x", desc->signal,
                    desc->wait);
    return guarded(__func__, [&] {
      *phEvent = toHandle<ze_event_handle_t>(new Event(*pool, *desc));
      return ZE_RESULT_SUCCESS;
    });
  }

  static ze_result_t eventDestroy(ze_event_handle_t hEvent) {
    ZEFUSE_OBJECT(Event, event, hEvent);
    event->destroy();
    return ZE_RESULT_SUCCESS;
  }

  static ze_result_t eventQueryStatus(ze_event_handle_t hEvent) {
    ZEFUSE_OBJECT(Event, event, hEvent);
    return event->status(__func__);
  }

  static ze_result_t eventQueryKernelTimestamp(ze_event_handle_t hEvent, ze_kernel_timestamp_result_t* dstptr) {
    ZEFUSE_OBJECT(Event, event, hEvent);
    ZEFUSE_NOT_NULL(dstptr);
    if (!event->timestamped)
      return refuse(ZE_RESULT_ERROR_INVALID_SYNCHRONIZATION_OBJECT,
                    "zeEventQueryKernelTimestamp: the event's pool was created without "
                    "ZE_EVENT_POOL_FLAG_KERNEL_TIMESTAMP");
    if (ze_result_t result = event->status(__func__))
      return result;
    *dstptr = event->timestamps();
    return ZE_RESULT_SUCCESS;
  }

  static ze_result_t eventQueryTimestampsExp(ze_event_handle_t hEvent, ze_device_handle_t hDevice, uint32_t* pCount,
                                             ze_kernel_timestamp_result_t* pTimestamps) {
    ZEFUSE_CHECK(Event, hEvent);
    ZEFUSE_CHECK(Device, hDevice);
    ZEFUSE_NOT_NULL(pCount);
    return settleCount(pCount, 1, pTimestamps) ? eventQueryKernelTimestamp(hEvent, pTimestamps) : ZE_RESULT_SUCCESS;
  }

  static ze_result_t eventQueryKernelTimestampsExt(ze_event_handle_t hEvent, ze_device_handle_t hDevice,
                                                   uint32_t* pCount, QueryKernelTimestampsResults* pResults) {
    ZEFUSE_OBJECT(Event, event, hEvent);
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
      const uint64_t ahead = hostAheadNs();
      const uint64_t start = event->monotonicTime(times.global.kernelStart) + ahead,
                     end = event->monotonicTime(times.global.kernelEnd) + ahead;
      *pResults->host = {{start, end}, {start, end}};
    }
    return ZE_RESULT_SUCCESS;
  }

  static ze_result_t eventGetEventPool(ze_event_handle_t hEvent, ze_event_pool_handle_t* phEventPool) {
    ZEFUSE_OBJECT(Event, event, hEvent);
    ZEFUSE_NOT_NULL(phEventPool);
    *phEventPool = toHandle<ze_event_pool_handle_t>(event->pool.get());
    return ZE_RESULT_SUCCESS;
  }

  static ze_result_t eventGetSignalScope(ze_event_handle_t hEvent, ze_event_scope_flags_t* pSignalScope) {
    ZEFUSE_OBJECT(Event, event, hEvent);
    ZEFUSE_NOT_NULL(pSignalScope);
    *pSignalScope = event->signal_scope;
    return ZE_RESULT_SUCCESS;
  }

  static ze_result_t eventGetWaitScope(ze_event_handle_t hEvent, ze_event_scope_flags_t* pWaitScope) {
    ZEFUSE_OBJECT(Event, event, hEvent);
    ZEFUSE_NOT_NULL(pWaitScope);
    *pWaitScope = event->wait_scope;
    return ZE_RESULT_SUCCESS;
  }

  static void fill(Entries& made) {
    made.event_pool.pfnCreate = eventPoolCreate;
    made.event_pool.pfnDestroy = eventPoolDestroy;
    made.event.pfnCreate = eventCreate;
    made.event.pfnDestroy = eventDestroy;
    made.event.pfnQueryStatus = eventQueryStatus;
    made.event.pfnQueryKernelTimestamp = eventQueryKernelTimestamp;
    made.event_exp.pfnQueryTimestampsExp = eventQueryTimestampsExp;
    made.newer.eventPoolGetContextHandle = eventPoolGetContextHandle;
    made.newer.eventPoolGetFlags = eventPoolGetFlags;
    made.newer.eventQueryKernelTimestampsExt = eventQueryKernelTimestampsExt;
    made.newer.eventGetEventPool = eventGetEventPool;
    made.newer.eventGetSignalScope = eventGetSignalScope;
    made.newer.eventGetWaitScope = eventGetWaitScope;
  }
};

}  // namespace zefuse::level_zero
