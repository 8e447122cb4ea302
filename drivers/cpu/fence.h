// Fences: signalled when a queue has run the lists of one zeCommandQueueExecuteCommandLists call.
#pragma once

#include <level_zero/ze_api.h>

#include "drivers/cpu/command_queue.h"
#include "drivers/cpu/completion.h"
#include "drivers/cpu/level_zero.h"

namespace zefuse::cpu {

struct Fence : Object<Fence> {
  static constexpr uint32_t kMagic = magicOf("ZFNC");
  // Only compared: a fence does not keep its queue, whose pending work keeps the fence.
  const CommandQueue* const queue;
  Completion state;

  Fence(const CommandQueue& queue, bool signalled) : queue(&queue), state(signalled) {}
};

decltype(::zeFenceCreate) fenceCreate;
decltype(::zeFenceHostSynchronize) fenceHostSynchronize;
decltype(::zeFenceQueryStatus) fenceQueryStatus;
decltype(::zeFenceReset) fenceReset;

}  // namespace zefuse::cpu
