// Event pools and events. An event is a word of pinned host memory that streams write and wait for: unlike CUDA's own
// events it may be waited for before anybody signals it, from any device and from the host.
#pragma once

#include <level_zero/ze_api.h>

#include <atomic>

#include "drivers/cuda/context.h"
#include "drivers/cuda/level_zero.h"

namespace zefuse::cuda {

struct Device;

// Of pinned memory, so addresses are the device's too. `word` is 1 while the event is signalled.
struct alignas(64) EventSlot {
  uint32_t word;
  uint32_t unused;
  uint64_t start, end;  // the device's clock
};

struct EventPool : Object<EventPool> {
  static constexpr uint32_t kMagic = magicOf("ZEVP");
  const Ref<Context> context;
  const ze_event_pool_flags_t flags;
  const uint32_t count;
  Device* const device;  // in whose context the slots are
  EventSlot* const slots;

  EventPool(Context& context, ze_event_pool_flags_t flags, uint32_t count, Device* device, EventSlot* slots)
      : context(&context), flags(flags), count(count), device(device), slots(slots) {}
  ~EventPool();
};

// Thread-safe: any thread and any stream may signal, reset and wait.
struct Event : Object<Event> {
  static constexpr uint32_t kMagic = magicOf("ZEVT");
  const Ref<EventPool> pool;
  EventSlot& slot;
  const ze_event_scope_flags_t signal_scope, wait_scope;
  const bool timestamped;
  // Whose stream was told last to signal it; null: none's, the host may.
  std::atomic<Device*> signaller{nullptr};

  Event(EventPool& pool, const ze_event_desc_t& desc);
  ze_result_t status(const char*) const { return isSignalled() ? ZE_RESULT_SUCCESS : ZE_RESULT_NOT_READY; }
  bool isSignalled() const { return __atomic_load_n(&slot.word, __ATOMIC_ACQUIRE) != 0; }
  ze_kernel_timestamp_result_t timestamps() const;
  uint64_t monotonicTime(uint64_t device_ns) const;
};

ze_result_t makeEventPool(Context& context, const ze_event_pool_desc_t& desc, Device* first_listed, EventPool*& out);

decltype(::zeEventHostSignal) eventHostSignal;
decltype(::zeEventHostSynchronize) eventHostSynchronize;
decltype(::zeEventHostReset) eventHostReset;

}  // namespace zefuse::cuda
