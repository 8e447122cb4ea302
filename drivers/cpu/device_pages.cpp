#include "drivers/cpu/device_pages.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>

#include "common/base/fork.h"
#include "drivers/cpu/ipc_handle.h"
#include "drivers/cpu/pages.h"

namespace zefuse::cpu {
namespace {

// A forked child has the descriptor of its parent's file, but begins one of its own: both would hand out the same
// parts.
struct File {
  ForkMutex mutex;
  int descriptor = -1;
  uint32_t process = 0;  // whose it is: forkGeneration() + 1
  uint64_t end = 0;      // parts are never used again: a hole costs nothing
};

File& file() {
  static File* file = new File;  // never destroyed, as the driver
  return *file;
}

// Maps the part, at an aligned address; isolated, also where it can be reached. Null addresses: no memory.
DevicePages map(int descriptor, uint64_t offset, size_t bytes, size_t alignment, bool isolated) {
  const size_t beyond = alignment > pageSize() ? alignment : 0, room = bytes + beyond;
  void* reserved = mmap(nullptr, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED)
    return {};
  auto* first = static_cast<std::byte*>(reserved);
  const uintptr_t mask = std::max(alignment, pageSize()) - 1;
  auto* base = reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(first) + mask) & ~mask);
  const int access = PROT_READ | PROT_WRITE;
  void* reachable = base;
  if (mmap(base, bytes, isolated ? PROT_NONE : access, MAP_SHARED | MAP_FIXED, descriptor,
           static_cast<off_t>(offset)) == MAP_FAILED ||
      (isolated &&
       (reachable = mmap(nullptr, bytes, access, MAP_SHARED, descriptor, static_cast<off_t>(offset))) == MAP_FAILED)) {
    munmap(reserved, room);
    return {};
  }
  if (base != first)
    munmap(first, size_t(base - first));
  if (const size_t after = room - bytes - size_t(base - first))
    munmap(base + bytes, after);
  return {base, static_cast<std::byte*>(reachable), offset, 0};
}

}  // namespace

DevicePages takeDevicePages(size_t size, size_t alignment, bool isolated) {
  const size_t bytes = wholePages(size);
  if (bytes < size || bytes + alignment < bytes)
    return {};
  File& own = file();
  std::lock_guard lock(own.mutex);
  if (const uint32_t process = forkGeneration() + 1; own.process != process) {
    if (own.descriptor >= 0)
      close(own.descriptor);  // the parent's: its pages stay mapped
    own.descriptor = createSharedFile("zefuse-device-memory");
    own.process = process;
    own.end = 0;
  }
  if (own.descriptor < 0) {
    own.process = 0;  // the next call tries again
    return {};
  }
  if (bytes > static_cast<uint64_t>(INT64_MAX) - own.end ||
      ftruncate(own.descriptor, static_cast<off_t>(own.end + bytes)) != 0)
    return {};
  DevicePages pages = map(own.descriptor, own.end, bytes, alignment, isolated);
  if (!pages.base)
    return {};
  pages.process = own.process;
  own.end += bytes;
  return pages;
}

DevicePages mapForeignPages(int descriptor, uint64_t offset, size_t size, bool isolated) {
  return map(descriptor, offset, wholePages(size), pageSize(), isolated);
}

void releaseDevicePages(const DevicePages& pages, size_t size) {
  const size_t bytes = wholePages(size);
  munmap(pages.base, bytes);
  if (pages.reachable != pages.base)
    munmap(pages.reachable, bytes);
  File& own = file();
  std::lock_guard lock(own.mutex);
  if (pages.process == own.process && own.process == forkGeneration() + 1)
    fallocate(own.descriptor, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(pages.offset),
              static_cast<off_t>(bytes));
}

int fileOf(const DevicePages& pages) {
  File& own = file();
  std::lock_guard lock(own.mutex);
  const bool own_pages = pages.process == own.process && own.process == forkGeneration() + 1;
  return own_pages ? own.descriptor : -1;
}

}  // namespace zefuse::cpu
