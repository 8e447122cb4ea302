// Pages of device memory: parts of one memory file of the process, so that other processes can map them (IPC). One
// file, because a program may have more allocations than descriptors.
#pragma once

#include <cstddef>
#include <cstdint>

namespace zefuse::cpu {

struct DevicePages {
  std::byte* base = nullptr;       // null: there is no memory
  std::byte* reachable = nullptr;  // base, unless that is isolated (memory.h)
  uint64_t offset = 0;             // in the file
  uint32_t process = 0;            // the fork generation that they are of; 0 is none's: another process's pages
};

// `alignment` is a power of two. Thread-safe.
DevicePages takeDevicePages(size_t size, size_t alignment, bool isolated);

// Pages of another process, mapped here; `file` stays the caller's.
DevicePages mapForeignPages(int file, uint64_t offset, size_t size, bool isolated);

// Unmaps them, and gives this process's own back to the system. A forked child leaves its parent's alone. Thread-safe.
void releaseDevicePages(const DevicePages& pages, size_t size);

// The descriptor of the file that the pages are in; -1 where they are another process's.
int fileOf(const DevicePages& pages);

}  // namespace zefuse::cpu
