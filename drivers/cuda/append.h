// Appending a command: checks, then recorded, or handed to the list's stream. The appending calls are
// level_zero/append_calls.h's and append.cpp's.
#pragma once

#include <level_zero/ze_api.h>

#include <utility>

#include "drivers/cuda/command_list.h"
#include "drivers/level_zero/append_calls.h"

namespace zefuse::cuda {

// Records the operation, or hands it to the stream; a synchronous list waits for it.
ze_result_t submit(CommandList& list, Operation&& operation, const EventHandles& events);

// `make` returns the operation; it is called once, and may throw.
template <typename Make> ze_result_t append(CommandList& list, const EventHandles& events, Make&& make) {
  if (ze_result_t result = checkOpen(events.call, list))
    return result;
  if (ze_result_t result = checkEvents<Event>(events))
    return result;
  if (list.device.lost())
    return list.device.refuseLost(events.call);
  return guarded(events.call, [&] { return submit(list, make(), events); });
}

ze_result_t appendLists(CommandList& immediate, uint32_t count, ze_command_list_handle_t* lists,
                        const EventHandles& events);

// What no allocation of ours holds is the caller's business.
ze_result_t checkReach(const CommandList& list, const char* call, const char* argument, const void* pointer,
                       size_t bytes);

}  // namespace zefuse::cuda
