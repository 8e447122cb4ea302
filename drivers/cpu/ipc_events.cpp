#include "drivers/cpu/ipc_events.h"

#include <sys/mman.h>
#include <unistd.h>

#include <new>
#include <utility>

#include "drivers/cpu/event.h"
#include "drivers/cpu/ipc_handle.h"

namespace zefuse::cpu {
namespace {

size_t bytesOf(uint32_t count) { return size_t{count} * sizeof(SharedEvent); }

}  // namespace

SharedEvents::SharedEvents(SharedEvents&& other) noexcept
    : events_(std::exchange(other.events_, nullptr)), bytes_(other.bytes_), file_(std::exchange(other.file_, -1)) {}

SharedEvents::~SharedEvents() {
  if (events_)
    munmap(static_cast<void*>(events_), bytes_);
  if (file_ >= 0)
    close(file_);
}

SharedEvents SharedEvents::create(uint32_t count) {
  const int file = createSharedFile("zefuse-events");
  if (file < 0)
    return {};
  if (ftruncate(file, static_cast<off_t>(bytesOf(count))) != 0) {
    close(file);
    return {};
  }
  SharedEvents mapped = map(file, 0, count);
  if (!mapped) {
    close(file);
    return {};
  }
  mapped.file_ = file;
  return mapped;  // a new file is zero: nothing is signalled
}

SharedEvents SharedEvents::map(int file, uint64_t offset, uint32_t count) {
  void* mapped = mmap(nullptr, bytesOf(count), PROT_READ | PROT_WRITE, MAP_SHARED, file, static_cast<off_t>(offset));
  if (mapped == MAP_FAILED)
    return {};
  return {static_cast<SharedEvent*>(mapped), bytesOf(count), -1};
}

ze_result_t eventPoolGetIpcHandle(ze_event_pool_handle_t hEventPool, ze_ipc_event_pool_handle_t* phIpc) {
  ZEFUSE_OBJECT(EventPool, pool, hEventPool);
  ZEFUSE_NOT_NULL(phIpc);
  if (pool->shared.file() < 0)
    return refuse(
        ZE_RESULT_ERROR_INVALID_ARGUMENT,
        "zeEventPoolGetIpcHandle: the pool was created without ZE_EVENT_POOL_FLAG_IPC, or by another process");
  makeIpcHandle(IpcKind::event_pool, pool->shared.file(), {0, pool->shared.bytes(), pool->count, pool->flags},
                phIpc->data);
  return ZE_RESULT_SUCCESS;
}

ze_result_t eventPoolOpenIpcHandle(ze_context_handle_t hContext, ze_ipc_event_pool_handle_t hIpc,
                                   ze_event_pool_handle_t* phEventPool) {
  ZEFUSE_OBJECT(Context, context, hContext);
  ZEFUSE_NOT_NULL(phEventPool);
  *phEventPool = nullptr;
  return guarded(__func__, [&]() -> ze_result_t {
    const char* call = "zeEventPoolOpenIpcHandle";
    int file = -1;
    IpcPart part;
    if (ze_result_t result = openIpcHandle(call, IpcKind::event_pool, hIpc.data, file, part))
      return result;
    const bool fits = part.count != 0 && bytesOf(part.count) == part.size;
    SharedEvents events = fits ? SharedEvents::map(file, part.offset, part.count) : SharedEvents();
    close(file);
    if (!fits)
      return refuse(ZE_RESULT_ERROR_INVALID_ARGUMENT, "%s: %u events in %llu bytes", call, part.count,
                    static_cast<unsigned long long>(part.size));
    if (!events)
      return refuse(ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY, "%s: no room for %u events", call, part.count);
    *phEventPool = toHandle<ze_event_pool_handle_t>(new EventPool(*context, part.flags, part.count, std::move(events)));
    return ZE_RESULT_SUCCESS;
  });
}

ze_result_t eventPoolCloseIpcHandle(ze_event_pool_handle_t hEventPool) {
  ZEFUSE_OBJECT(EventPool, pool, hEventPool);
  if (!pool->shared.foreign())
    return refuse(ZE_RESULT_ERROR_INVALID_ARGUMENT, "zeEventPoolCloseIpcHandle: the pool is this process's own");
  pool->destroy();
  return ZE_RESULT_SUCCESS;
}

// A handle owns nothing: the file stays open as long as its pool.
ze_result_t eventPoolPutIpcHandle(ze_context_handle_t hContext, ze_ipc_event_pool_handle_t hIpc) {
  ZEFUSE_CHECK(Context, hContext);
  return checkIpcHandle("zeEventPoolPutIpcHandle", IpcKind::event_pool, hIpc.data);
}

}  // namespace zefuse::cpu
