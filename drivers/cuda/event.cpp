#include "drivers/cuda/event.h"

#include <cstring>

#include "drivers/cuda/deferred_releases.h"
#include "drivers/cuda/device.h"
#include "drivers/cuda/host_wait.h"
#include "drivers/level_zero/event_calls.h"

namespace zefuse::cuda {

EventPool::~EventPool() {
  DeferredReleases::instance().release(*device, [slots = slots] { cuda().cuMemFreeHost(slots); });
}

Event::Event(EventPool& owner, const ze_event_desc_t& desc)
    : pool(&owner), slot(owner.slots[desc.index]), signal_scope(desc.signal), wait_scope(desc.wait),
      timestamped(hasTimestamps(owner.flags)) {
  slot.start = slot.end = 0;
  __atomic_store_n(&slot.word, 0u, __ATOMIC_RELEASE);
}

ze_kernel_timestamp_result_t Event::timestamps() const {
  // One clock, and nothing suspends a running command: context time is wall-clock time.
  const ze_kernel_timestamp_data_t span = {slot.start, slot.end};
  return {span, span};
}

uint64_t Event::monotonicTime(uint64_t device_ns) const { return pool->device->monotonicTime(device_ns); }

ze_result_t makeEventPool(Context& context, const ze_event_pool_desc_t& desc, Device* first_listed, EventPool*& out) {
  if (desc.flags & ZE_EVENT_POOL_FLAG_IPC)
    return refuse(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE, "zeEventPoolCreate: events are private to the process: no IPC");
  Device* device = first_listed ? first_listed : Device::all().front();
  if (ze_result_t result = device->open("zeEventPoolCreate"))
    return result;
  void* slots = nullptr;
  const size_t bytes = sizeof(EventSlot) * desc.count;
  {
    const Current current(*device);
    ZEFUSE_CUDA(*device, "zeEventPoolCreate", cuMemHostAlloc, &slots, bytes,
                CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
  }
  std::memset(slots, 0, bytes);
  out = new EventPool(context, desc.flags, desc.count, device, static_cast<EventSlot*>(slots));
  return ZE_RESULT_SUCCESS;
}

ze_result_t eventHostSignal(ze_event_handle_t hEvent) {
  ZEFUSE_OBJECT(Event, event, hEvent);
  if (event->timestamped)
    event->slot.start = event->slot.end = event->pool->device->deviceTime(nowNs());
  __atomic_store_n(&event->slot.word, 1u, __ATOMIC_SEQ_CST);
  return ZE_RESULT_SUCCESS;
}

// Whoever should signal it may be gone: its device, once lost, ends the wait; where nobody knows who will, any device.
ze_result_t eventHostSynchronize(ze_event_handle_t hEvent, uint64_t timeout) {
  ZEFUSE_OBJECT(Event, event, hEvent);
  unsigned looks = 0;
  return hostWait(timeout, [&]() -> ze_result_t {
    if (event->isSignalled())
      return ZE_RESULT_SUCCESS;
    if (++looks % 64 == 0 || timeout == 0) {
      Device* signaller = event->signaller.load(std::memory_order_relaxed);
      const char* call = "zeEventHostSynchronize";
      if (ze_result_t result = signaller ? signaller->probeWithOthers(call) : Device::probeAll(call))
        return event->isSignalled() ? ZE_RESULT_SUCCESS : result;
    }
    return event->isSignalled() ? ZE_RESULT_SUCCESS : ZE_RESULT_NOT_READY;
  });
}

ze_result_t eventHostReset(ze_event_handle_t hEvent) {
  ZEFUSE_OBJECT(Event, event, hEvent);
  event->signaller.store(nullptr, std::memory_order_relaxed);
  __atomic_store_n(&event->slot.word, 0u, __ATOMIC_SEQ_CST);
  return ZE_RESULT_SUCCESS;
}

}  // namespace zefuse::cuda
