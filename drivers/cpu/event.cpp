#include "drivers/cpu/event.h"

#include <algorithm>

#include "drivers/cpu/command.h"
#include "drivers/cpu/device.h"
#include "drivers/cpu/environment.h"
#include "drivers/level_zero/clock.h"
#include "drivers/level_zero/event_calls.h"

namespace zefuse::cpu {

Event::Event(EventPool& pool, const ze_event_desc_t& desc) : Event(pool, desc, pool.shared.at(desc.index)) {}

Event::Event(EventPool& pool, const ze_event_desc_t& desc, SharedEvent* shared)
    : pool(&pool), signal_scope(desc.signal), wait_scope(desc.wait), timestamped(hasTimestamps(pool.flags)),
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

ze_result_t makeEventPool(Context& context, const ze_event_pool_desc_t& desc, Device*, EventPool*& out) {
  const bool ipc = (desc.flags & ZE_EVENT_POOL_FLAG_IPC) != 0;
  SharedEvents shared = ipc ? SharedEvents::create(desc.count) : SharedEvents();
  if (ipc && !shared)
    return refuse(ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY, "zeEventPoolCreate: no memory to share for %u events",
                  desc.count);
  out = new EventPool(context, desc.flags, desc.count, std::move(shared));
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

ze_result_t eventHostReset(ze_event_handle_t hEvent) {
  ZEFUSE_OBJECT(Event, event, hEvent);
  event->reset();
  return ZE_RESULT_SUCCESS;
}

}  // namespace zefuse::cpu
