// What each step of an executable took, for whoever looks for the slow one. Off unless asked for.
#pragma once

#include <atomic>
#include <ctime>
#include <mutex>
#include <vector>

#include "common/base/fork.h"
#include "runtime/executor/executable.h"

namespace zefuse::executor {

// Thread-safe; calls in flight when it is switched count in part.
class StepTimer {
public:
  struct Moment {
    double clock = 0, thread = 0;  // seconds
  };
  static Moment now() { return {read(CLOCK_MONOTONIC), read(CLOCK_THREAD_CPUTIME_ID)}; }

  bool on() const { return on_.load(std::memory_order_relaxed); }

  void set(bool on, size_t steps) {
    std::lock_guard lock(guard_);
    if (on)
      times_.assign(steps, {});
    on_ = on;
  }

  void add(size_t step, const Moment& start) {
    const Moment end = now();
    std::lock_guard lock(guard_);
    StepTime& time = times_[step];
    ++time.calls;
    time.seconds += end.clock - start.clock;
    time.thread_seconds += end.thread - start.thread;
  }

  std::vector<StepTime> read() const {
    std::lock_guard lock(guard_);
    return times_;
  }

private:
  static double read(clockid_t clock) {
    timespec time;
    clock_gettime(clock, &time);
    return double(time.tv_sec) + 1e-9 * double(time.tv_nsec);
  }

  std::atomic<bool> on_{false};
  mutable ForkMutex guard_;
  std::vector<StepTime> times_;
};

}  // namespace zefuse::executor
