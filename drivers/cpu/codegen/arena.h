// What generated code calls back. Each loaded module's variable `zf_runtime` points to the one Runtime.
#pragma once

#include <cstdint>

namespace zefuse::cpu {

struct Runtime {
  // Per-thread memory for values that live across barriers: valid until the same thread asks again, 128-byte aligned.
  // Grows, never shrinks, is freed with the thread. nullptr when out of memory: the work-group then does nothing, and
  // whoever runs it must fail the launch (takeRefusedBytes).
  void* (*context_memory)(uint64_t bytes);
};

extern const Runtime kRuntime;

// How much memory a work-group of this thread asked for in vain since the last call, and so did not run; 0: all ran.
uint64_t takeRefusedBytes();

}  // namespace zefuse::cpu
