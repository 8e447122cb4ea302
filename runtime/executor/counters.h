// ExecutionCounters as atomics: added to by every call, read at any time.
#pragma once

#include <atomic>
#include <mutex>

#include "common/base/fork.h"
#include "runtime/executor/executable.h"

namespace zefuse::executor {

struct Counters {
  std::atomic<uint64_t> calls{0}, launches{0}, library_calls{0}, aten_calls{0}, copies{0};
  std::atomic<uint64_t> weights_packed{0}, weight_packs_reused{0}, weights_streamed{0};
  std::atomic<uint64_t> native_cache_hits{0}, native_cache_misses{0};
  std::atomic<uint64_t> copies_to_device{0}, copies_to_host{0}, bytes_to_device{0}, bytes_to_host{0};
  std::atomic<uint64_t> parameters_uploaded{0}, host_steps{0}, replays{0};
  std::atomic<uint64_t> arena_bytes{0};

  // What one call counted, added at its end: a handful of atomic operations per call instead of one
  // per step.
  struct OfCall {
    uint64_t launches = 0, library_calls = 0, aten_calls = 0, copies = 0;
    uint64_t weights_packed = 0, weight_packs_reused = 0, weights_streamed = 0;
    uint64_t copies_to_device = 0, copies_to_host = 0, bytes_to_device = 0, bytes_to_host = 0;
    uint64_t parameters_uploaded = 0, host_steps = 0, replays = 0;

    // What a device was given since `before`, and given once more: a recorded call and its replays.
    OfCall commandsSince(const OfCall& before) const {
      OfCall out;
      for (auto count : commands)
        out.*count = this->*count - before.*count;
      return out;
    }
    void addCommands(const OfCall& recorded) {
      for (auto count : commands)
        this->*count += recorded.*count;
    }

  private:
    static constexpr uint64_t OfCall::* commands[] = {&OfCall::launches,         &OfCall::library_calls,
                                                      &OfCall::copies_to_device, &OfCall::copies_to_host,
                                                      &OfCall::bytes_to_device,  &OfCall::bytes_to_host};
  };
  void add(const OfCall& call) {
    auto count = [](std::atomic<uint64_t>& total, uint64_t part) {
      if (part)
        total.fetch_add(part, std::memory_order_relaxed);
    };
    count(calls, 1);
    count(launches, call.launches);
    count(library_calls, call.library_calls);
    count(aten_calls, call.aten_calls);
    count(copies, call.copies);
    count(weights_packed, call.weights_packed);
    count(weight_packs_reused, call.weight_packs_reused);
    count(weights_streamed, call.weights_streamed);
    count(copies_to_device, call.copies_to_device);
    count(copies_to_host, call.copies_to_host);
    count(bytes_to_device, call.bytes_to_device);
    count(bytes_to_host, call.bytes_to_host);
    count(parameters_uploaded, call.parameters_uploaded);
    count(host_steps, call.host_steps);
    count(replays, call.replays);
  }
  void atLeast(std::atomic<uint64_t>& largest, uint64_t value) {
    uint64_t seen = largest.load(std::memory_order_relaxed);
    while (seen < value && !largest.compare_exchange_weak(seen, value, std::memory_order_relaxed)) {
    }
  }
  // A cache that cannot be written only costs time; the first reason is kept for who asks.
  void noteCacheFailure(const Status& status) {
    std::lock_guard lock(cache_guard_);
    if (!status.ok() && cache_failure_.empty())
      cache_failure_ = status.message();
  }
  ExecutionCounters read() const {
    ExecutionCounters out;
    out.calls = calls;
    out.launches = launches;
    out.library_calls = library_calls;
    out.aten_calls = aten_calls;
    out.copies = copies;
    out.weights_packed = weights_packed;
    out.weight_packs_reused = weight_packs_reused;
    out.weights_streamed = weights_streamed;
    out.native_cache_hits = native_cache_hits;
    out.native_cache_misses = native_cache_misses;
    out.arena_bytes = arena_bytes;
    out.copies_to_device = copies_to_device;
    out.copies_to_host = copies_to_host;
    out.bytes_to_device = bytes_to_device;
    out.bytes_to_host = bytes_to_host;
    out.parameters_uploaded = parameters_uploaded;
    out.host_steps = host_steps;
    out.replays = replays;
    std::lock_guard lock(cache_guard_);
    out.cache_failure = cache_failure_;
    return out;
  }

private:
  mutable ForkMutex cache_guard_;
  std::string cache_failure_;
};

}  // namespace zefuse::executor
