// A binary, sticky, resettable flag that threads can wait for: the state of an event or a fence.
#pragma once

#include <atomic>
#include <cstdint>

namespace zefuse::cpu {

// Thread-safe. set() releases what the setting thread wrote, a successful wait acquires it. Uncontended set, reset and
// test make no system call. Whoever calls set() must keep the flag alive through the call.
class Flag {
public:
  explicit Flag(bool set = false) : word_(set) {}

  bool isSet() const { return word_.load(std::memory_order_acquire) != 0; }
  void set();
  void reset() { word_.store(0, std::memory_order_release); }

  // Whether the flag was set within `timeout_ns`: 0 polls, UINT64_MAX waits for ever.
  bool wait(uint64_t timeout_ns);

private:
  std::atomic<uint32_t> word_;
  std::atomic<uint32_t> waiters_{0};
};

}  // namespace zefuse::cpu
