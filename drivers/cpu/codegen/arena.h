// What generated code calls back. Each loaded module's variable `zf_runtime` points to the one Runtime.
#pragma once

#include <cstdint>

namespace zefuse::cpu {

struct Runtime {
  // Per-thread memory for values that live across barriers: valid until the same thread asks again, 128-byte aligned.
  // Grows, never shrinks, is freed with the thread. nullptr when out of memory: the work-group then does nothing, and
  // takeExecutionError reports it.
  void* (*context_memory)(uint64_t bytes);
};

extern const Runtime kRuntime;

// True when a work-group of this thread could not run since the last call.
bool takeExecutionError();

}  // namespace zefuse::cpu
