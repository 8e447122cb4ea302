// USM: host, device and shared allocations, all of them host memory, in one table that resolves interior pointers.
#pragma once

#include <level_zero/ze_api.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <shared_mutex>

#include "runtime/cpu_driver/error.h"
#include "runtime/cpu_driver/handle.h"

namespace zefuse::cpu {

struct Context;

struct Allocation {
  std::byte* base;
  size_t size;
  ze_memory_type_t type;
  uint64_t id;           // unique in the process, never used again
  const Context* owner;  // which keeps the table entry: ~Context removes it
  bool has_device;       // a shared allocation may name no device
};

// One table for the process, not one per context: a pointer's context is then part of the answer, and one lock has to
// survive fork(). Thread-safe. A launch never looks here.
class AllocationTable {
public:
  static AllocationTable& instance();

  // nullptr when the host has no memory left. `alignment` is a power of two.
  void* allocate(const Context& owner, ze_memory_type_t type, size_t size, size_t alignment, bool has_device);
  // The allocation of `owner` that `pointer` lies in, at its base or inside.
  std::optional<Allocation> find(const Context& owner, const void* pointer) const;
  bool free(const Context& owner, void* base);  // false: not the base of an allocation of `owner`
  void freeAll(const Context& owner);

  void lockForFork();
  void unlockInParent();
  void unlockInChild();

private:
  mutable std::shared_mutex mutex_;
  std::map<uintptr_t, Allocation> by_base_;
  uint64_t next_id_ = 1;
};

decltype(::zeMemAllocShared) memAllocShared;
decltype(::zeMemAllocDevice) memAllocDevice;
decltype(::zeMemAllocHost) memAllocHost;
decltype(::zeMemFree) memFree;
decltype(::zeMemFreeExt) memFreeExt;
decltype(::zeMemGetAllocProperties) memGetAllocProperties;
decltype(::zeMemGetAddressRange) memGetAddressRange;

}  // namespace zefuse::cpu
