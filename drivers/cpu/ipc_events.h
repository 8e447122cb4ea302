// Event pools that processes share: the events' states in a memory file.
#pragma once

#include <level_zero/ze_api.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "drivers/cpu/completion.h"
#include "drivers/cpu/level_zero.h"

namespace zefuse::cpu {

// When a command ran (nowNs).
struct EventTimes {
  std::atomic<uint64_t> start_ns{0}, end_ns{0};
};

// An event of a pool that processes share. The clock is one for all of them.
struct alignas(64) SharedEvent {
  SharedCompletion state;
  EventTimes times;
};

// A pool's events, mapped; none in a pool of one process. Owns the mapping, and the file where it was made here.
class SharedEvents {
public:
  SharedEvents() = default;
  SharedEvents(SharedEvent* events, size_t bytes, int file) : events_(events), bytes_(bytes), file_(file) {}
  SharedEvents(SharedEvents&& other) noexcept;
  SharedEvents& operator=(SharedEvents&&) = delete;
  ~SharedEvents();

  // With none if there is no memory for them.
  static SharedEvents create(uint32_t count);
  // Of another process's file, which has room for `count`.
  static SharedEvents map(int file, uint64_t offset, uint32_t count);

  explicit operator bool() const { return events_ != nullptr; }
  SharedEvent* at(uint32_t index) const { return events_ ? &events_[index] : nullptr; }
  size_t bytes() const { return bytes_; }
  int file() const { return file_; }  // -1: another process's
  bool foreign() const { return events_ && file_ < 0; }

private:
  SharedEvent* events_ = nullptr;
  size_t bytes_ = 0;
  int file_ = -1;
};

decltype(::zeEventPoolGetIpcHandle) eventPoolGetIpcHandle;
decltype(::zeEventPoolOpenIpcHandle) eventPoolOpenIpcHandle;
decltype(::zeEventPoolCloseIpcHandle) eventPoolCloseIpcHandle;
ze_result_t eventPoolPutIpcHandle(ze_context_handle_t hContext, ze_ipc_event_pool_handle_t hIpc);

}  // namespace zefuse::cpu
