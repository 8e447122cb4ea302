// Fences: a word of pinned memory that the queue's stream writes.
#pragma once

#include <level_zero/ze_api.h>

#include "drivers/cuda/command_queue.h"
#include "drivers/cuda/level_zero.h"

namespace zefuse::cuda {

struct Fence : Object<Fence> {
  static constexpr uint32_t kMagic = magicOf("ZFNC");
  const Ref<CommandQueue> queue;
  uint32_t* const word;

  Fence(CommandQueue& queue, uint32_t* word) : queue(&queue), word(word) {}
  ~Fence();
  bool isSignalled() const { return __atomic_load_n(word, __ATOMIC_ACQUIRE) != 0; }
};

decltype(::zeFenceCreate) fenceCreate;
decltype(::zeFenceHostSynchronize) fenceHostSynchronize;
decltype(::zeFenceQueryStatus) fenceQueryStatus;
decltype(::zeFenceReset) fenceReset;

}  // namespace zefuse::cuda
