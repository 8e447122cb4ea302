// A binary, sticky, resettable flag that threads can wait for: the state of an event or a fence.
#pragma once

#include <atomic>
#include <cstdint>

namespace zefuse::cpu {

// The words of a flag, which processes can share.
struct FlagWords {
  std::atomic<uint32_t> word{0};  // anything but 0: set
  std::atomic<uint32_t> waiters{0};
};

// Thread-safe. set() releases what the setting thread wrote, a successful wait acquires it. Uncontended set, reset and
// test make no system call. Whoever calls set() must keep the flag alive through the call.
class Flag {
public:
  explicit Flag(bool set = false) : words_(&own_) { own_.word.store(set, std::memory_order_relaxed); }
  // Of words in memory that processes share: whatever another one writes there, only the answer is wrong.
  explicit Flag(FlagWords& shared) : words_(&shared) {}
  Flag(const Flag&) = delete;
  Flag& operator=(const Flag&) = delete;

  bool isSet() const { return words_->word.load(std::memory_order_acquire) != 0; }
  void set();
  void reset() { words_->word.store(0, std::memory_order_release); }

  // Whether the flag was set within `timeout_ns`: 0 polls, UINT64_MAX waits for ever.
  bool wait(uint64_t timeout_ns);

private:
  int privacy() const;  // of futex calls

  FlagWords own_;
  FlagWords* const words_;
};

}  // namespace zefuse::cpu
