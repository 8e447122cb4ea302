// Appending a command: checks, then one of three ways: run now, record, or hand to the list's worker. The appending
// calls themselves are append.cpp's and append_image.cpp's.
#pragma once

#include <level_zero/ze_api.h>

#include <utility>

#include "drivers/cpu/command_list.h"
#include "drivers/level_zero/append_calls.h"
#include "drivers/level_zero/clock.h"

namespace zefuse::cpu {

// Whether a command of the list that waits for the events runs inside the call.
bool runsNow(const CommandList& list, const EventHandles& events);
ze_result_t awaitAll(const EventHandles& events);

// Waits for the events, calls `body`, which says how it ended, signals.
template <typename Body> ze_result_t runNow(const EventHandles& events, Body&& body) {
  if (events.none())
    return body();
  // A reference, because a waiter may destroy the event as soon as it sees the signal.
  Ref<Event> signal(events.signal ? fromHandle<Event>(events.signal) : nullptr);
  ze_result_t result = awaitAll(events);
  bool timed = signal && signal->timestamped;
  uint64_t start = timed ? nowNs() : 0;
  if (result == ZE_RESULT_SUCCESS)
    result = body();
  if (signal) {
    if (result == ZE_RESULT_SUCCESS)
      signal->signal(start, timed ? nowNs() : 0);
    else
      signal->fail(makeFailure(result));
  }
  return result;
}

// Records the command or hands it to the worker.
void keep(CommandList& list, Operation&& operation, const EventHandles& events);

// `make` returns the operation; it is called once, and may throw.
template <typename Make> ze_result_t append(CommandList& list, const EventHandles& events, Make&& make) {
  if (ze_result_t result = checkOpen(events.call, list))
    return result;
  if (ze_result_t result = checkEvents<Event>(events))
    return result;
  if (deviceLost() && list.device.is_gpu)
    return refuse(ZE_RESULT_ERROR_DEVICE_LOST, "%s: the device is lost", events.call);
  return guarded(events.call, [&]() -> ze_result_t {
    if (runsNow(list, events)) {
      Operation operation = make();
      return runNow(events, [&] { return run(operation, {Team::callers}); });
    }
    keep(list, make(), events);
    return ZE_RESULT_SUCCESS;
  });
}

ze_result_t appendLists(CommandList& immediate, uint32_t count, ze_command_list_handle_t* lists,
                        const EventHandles& events);

// Where a command's memory ends is looked at when it runs (AllocationTable::holds).
inline ze_result_t checkReach(const CommandList&, const char*, const char*, const void*, size_t) {
  return ZE_RESULT_SUCCESS;
}

}  // namespace zefuse::cpu
