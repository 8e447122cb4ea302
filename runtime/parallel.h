// A loop over independent pieces of work on a few threads that live for it.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <system_error>
#include <thread>
#include <vector>

namespace zefuse {

// Calls work(i) for each i below `count`, in no order, on the calling thread and up to `threads` - 1 others; returns
// when all are done. Where the system has no more threads to give, fewer do the work. `work` must not throw.
template <typename Work> void inParallel(size_t count, size_t threads, const Work& work) {
  std::atomic<size_t> next{0};
  auto loop = [&] {
    for (size_t i; (i = next++) < count;)
      work(i);
  };
  std::vector<std::thread> others;
  for (size_t i = 1; i < std::min(threads, count); ++i) {
    try {
      others.emplace_back(loop);
    } catch (const std::system_error&) {
      break;
    }
  }
  loop();
  for (std::thread& other : others)
    other.join();
}

}  // namespace zefuse
