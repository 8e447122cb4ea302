// A loop over independent pieces of work on a few threads that live for it.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <system_error>
#include <thread>
#include <vector>

#include "common/base/first_exception.h"

namespace zefuse {

// Calls work(i) for each i below `count`, in no order, on the calling thread and up to `threads` - 1 others; returns
// when all are done. Where the system has no more threads to give, fewer do the work. What `work` throws first is
// thrown here, once no piece runs any more; pieces that were not begun by then are left out.
template <typename Work> void inParallel(size_t count, size_t threads, const Work& work) {
  std::atomic<size_t> next{0};
  FirstException thrown;
  auto loop = [&] {
    try {
      for (size_t i; (i = next++) < count;)
        work(i);
    } catch (...) {
      next = count;
      thrown.keep();
    }
  };
  {
    std::vector<std::jthread> others;
    others.reserve(std::min(threads, count));
    for (size_t i = 1; i < std::min(threads, count); ++i) {
      try {
        others.emplace_back(loop);
      } catch (const std::system_error&) {
        break;
      }
    }
    loop();
  }
  thrown.rethrow();
}

}  // namespace zefuse
