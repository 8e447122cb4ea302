// USM: host, device and shared allocations, all of them host memory, in one table that resolves interior pointers.
//
// Device memory is pages of a file that other processes can map (ipc_memory.cpp). The posing discrete GPU's is mapped
// twice: once for kernels and copies, and once, without any access, at the address that the application gets. So a host
// access always faults, whatever runs meanwhile; what the driver is given (arguments, copies) it translates. Kernels
// that may follow pointers found in memory (zeKernelSetIndirectAccess) open the second mapping while they run.
#pragma once

#include <level_zero/ze_api.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

#include "common/base/fork.h"
#include "drivers/cpu/device_pages.h"
#include "drivers/cpu/level_zero.h"
#include "drivers/level_zero/memory_calls.h"

namespace zefuse::cpu {

struct Context;
struct Device;

struct Allocation {
  std::byte* base;
  size_t size;
  ze_memory_type_t type;
  uint64_t id;           // unique in the process, never used again
  const Context* owner;  // which keeps the table entry: ~Context removes it
  const Device* device;  // a shared allocation may name none
  std::byte* reachable;  // where this process reads and writes it: base, unless that is isolated
  DevicePages pages;     // of device memory; no base: the memory is the heap's
};

// One table for the process, not one per context: a pointer's context is then part of the answer, and one lock has to
// survive fork(). Thread-safe. A launch never looks here.
class AllocationTable {
public:
  static AllocationTable& instance();

  // nullptr when the host, or `device`, has no memory left. `alignment` is a power of two; isolated memory has a
  // page's.
  void* allocate(const Context& owner, ze_memory_type_t type, size_t size, size_t alignment, const Device* device);
  // The allocation of `owner` that `pointer` lies in, at its base or inside.
  std::optional<Allocation> find(const Context& owner, const void* pointer) const;
  bool free(const Context& owner, void* base);  // false: not the base of an allocation of `owner`
  // Another process's pages become an allocation of `owner`; freeing unmaps them. They are released if it throws.
  void adopt(const Context& owner, const Device& device, const DevicePages& pages, size_t size);
  void freeAll(const Context& owner);
  uint64_t nextId();  // of what is no entry of the table, and has an id all the same: images

  // Where this process reads and writes what `pointer` names: itself, unless it lies in isolated memory.
  template <typename T> T* reach(T* pointer) const {
    return any_isolated_.load(std::memory_order_relaxed) ? static_cast<T*>(translate(pointer)) : pointer;
  }
  bool contains(const void* pointer) const;  // an allocation of any context
  // false: `pointer` lies in an allocation that ends before `bytes` do. As reach(), it knows only where there is
  // isolated memory; of other memory it says true.
  bool holds(const void* pointer, size_t bytes) const {
    return !any_isolated_.load(std::memory_order_relaxed) || endsWithin(pointer, bytes);
  }
  // Isolated memory is accessible at its own address while a count is held.
  void openIsolated();
  void closeIsolated();

private:
  void* translate(const void* pointer) const;
  bool endsWithin(const void* pointer, size_t bytes) const;
  const Allocation* at(const void* pointer) const;  // under the lock
  void protectIsolated(int protection);             // likewise
  void release(const Allocation& entry);            // likewise
  void insert(Allocation& entry);                   // likewise; releases it if it throws

  mutable ForkMutex mutex_;
  std::map<uintptr_t, Allocation> by_base_;
  uint64_t next_id_ = 1;
  std::atomic<bool> any_isolated_{false};
  uint64_t gpu_bytes_ = 0;  // of the posing GPU, allocated now
  unsigned open_ = 0;       // counts of openIsolated
};

ze_result_t allocate(Context& context, const MemoryRequest<Device>& request, void** out);

decltype(::zeMemFree) memFree;
decltype(::zeMemFreeExt) memFreeExt;

}  // namespace zefuse::cpu
