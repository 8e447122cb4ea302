#include "drivers/cpu/codegen/arena.h"

#include <cstdlib>
#include <utility>

namespace zefuse::cpu {
namespace {

constexpr uint64_t kMaxBytes = 256ull << 20;  // the compiler admits 64 MiB; a driver may launch no larger groups

struct Arena {
  void* memory = nullptr;
  uint64_t bytes = 0;
  uint64_t refused = 0;
  ~Arena() { std::free(memory); }
};
thread_local Arena t_arena;

void* contextMemory(uint64_t bytes) {
  Arena& a = t_arena;
  if (bytes <= a.bytes)
    return a.memory;
  std::free(a.memory);
  a.bytes = 0;
  uint64_t rounded = (bytes + 0xffff) & ~0xffffull;
  a.memory = bytes <= kMaxBytes ? std::aligned_alloc(128, rounded) : nullptr;
  if (a.memory)
    a.bytes = rounded;
  else
    a.refused = bytes;
  return a.memory;
}

}  // namespace

const Runtime kRuntime = {contextMemory};

uint64_t takeRefusedBytes() { return std::exchange(t_arena.refused, 0); }

}  // namespace zefuse::cpu
