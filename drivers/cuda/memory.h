// USM: device memory of a device's own; host and shared memory pinned on the host, which every device reaches at the
// same address. Managed memory is never used: the host may touch it only while no kernel runs anywhere, and
// oversubscribed it can hang a GPU.
#pragma once

#include <level_zero/ze_api.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

#include "drivers/cuda/level_zero.h"
#include "drivers/level_zero/memory_calls.h"

namespace zefuse::cuda {

struct Context;
struct Device;

struct Allocation {
  std::byte* base;
  std::byte* allocated;  // what CUDA gave: base, or less where an alignment was asked for
  size_t size;
  ze_memory_type_t type;
  uint64_t id;  // unique in the process, never used again
  const Context* owner;
  Device* device;     // null: none was named
  Device* allocator;  // in whose context it was allocated
};

// One table for the process. Thread-safe.
class AllocationTable {
public:
  static AllocationTable& instance();

  void add(Allocation allocation);  // gives it its id
  // The allocation of `owner`, or of any context, that `pointer` lies in, at its base or inside.
  std::optional<Allocation> find(const Context& owner, const void* pointer) const;
  std::optional<Allocation> findAny(const void* pointer) const;
  std::optional<Allocation> take(const Context& owner, const void* base);  // out of the table, to be freed
  void freeAll(const Context& owner);

private:
  mutable std::mutex mutex_;
  std::map<uintptr_t, Allocation> by_base_;
  uint64_t next_id_ = 1;
};

ze_result_t allocate(Context& context, const MemoryRequest<Device>& request, void** out);

decltype(::zeMemFree) memFree;
decltype(::zeMemFreeExt) memFreeExt;

}  // namespace zefuse::cuda
