// Event pools and events. An event is an object of its own; its pool only says what its events can do.
#pragma once

#include <level_zero/ze_api.h>

#include <atomic>

#include "drivers/cpu/completion.h"
#include "drivers/cpu/context.h"
#include "drivers/cpu/ipc_events.h"
#include "drivers/cpu/level_zero.h"

namespace zefuse::cpu {

struct Device;

struct EventPool : Object<EventPool> {
  static constexpr uint32_t kMagic = magicOf("ZEVP");
  const Ref<Context> context;
  const ze_event_pool_flags_t flags;
  const uint32_t count;
  const SharedEvents shared;  // of a pool with ZE_EVENT_POOL_FLAG_IPC

  EventPool(Context& context, ze_event_pool_flags_t flags, uint32_t count, SharedEvents shared)
      : context(&context), flags(flags), count(count), shared(std::move(shared)) {}
};

// Thread-safe: any thread and any queue may signal, reset and wait. Signalled by several commands, the last one's
// timestamps stay.
struct Event : Object<Event> {
  static constexpr uint32_t kMagic = magicOf("ZEVT");
  const Ref<EventPool> pool;
  const ze_event_scope_flags_t signal_scope, wait_scope;
  const bool timestamped;

  Event(EventPool& pool, const ze_event_desc_t& desc);

  // The command ran from `start_ns` to `end_ns` (nowNs). Whoever calls keeps a reference through the call.
  void signal(uint64_t start_ns, uint64_t end_ns);
  // The command did not run, or not to its end: the event is signalled, and whoever asks or waits is told why.
  void fail(std::shared_ptr<Failure> why) { state_.fail(std::move(why)); }
  void reset();
  bool isSignalled() const { return state_.isSet(); }
  bool wait(uint64_t timeout_ns) { return state_.wait(timeout_ns); }
  const Completion& state() const { return state_; }
  ze_result_t status(const char* call) const { return state_.answer(call, isSignalled()); }
  ze_kernel_timestamp_result_t timestamps() const;
  static uint64_t monotonicTime(uint64_t device_ns) { return device_ns; }

private:
  Event(EventPool& pool, const ze_event_desc_t& desc, SharedEvent* shared);

  Completion state_;
  EventTimes own_times_;
  EventTimes& times_;
};

ze_result_t makeEventPool(Context& context, const ze_event_pool_desc_t& desc, Device* first_listed, EventPool*& out);

decltype(::zeEventHostSignal) eventHostSignal;
decltype(::zeEventHostSynchronize) eventHostSynchronize;
decltype(::zeEventHostReset) eventHostReset;

}  // namespace zefuse::cpu
