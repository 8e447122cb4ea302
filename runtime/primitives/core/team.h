// The calling thread's OpenMP team, through libgomp's own entry points: clang would call libomp,
// which would be a second pool beside torch's.
#pragma once

#include "common/base/api.h"
#include <cstddef>
#include <cstdint>
#include <functional>

namespace zefuse::primitives {

ZEFUSE_API int maxThreads();
ZEFUSE_API void setMaxThreads(int threads);  // of the calling thread only

// How many of `threads` threads work should have that takes one of them so long: all or one. A region always has the
// whole team (togetherOverTeam says why), so it costs more the more threads there are, also those with nothing to do.
ZEFUSE_API int threadsWorth(double nanoseconds, int threads);

// While it lives, regions that the calling thread opens have one thread: oneDNN's, too.
class OneThread {
public:
  explicit OneThread(bool wanted) : before_(wanted ? maxThreads() : 1) {
    if (before_ > 1)
      setMaxThreads(1);
  }
  ~OneThread() {
    if (before_ > 1)
      setMaxThreads(before_);
  }
  OneThread(const OneThread&) = delete;

private:
  const int before_;
};

// body(begin, end) over [0, count), in as many parts as the team has threads and `grain` (the least
// count worth a thread) allows. What `body` throws first is thrown here, once all parts have ended.
void overTeam(int64_t count, int64_t grain, const std::function<void(int64_t, int64_t)>& body);

// body(begin, end, scratch) over [0, count) as overTeam with a grain of 1: each part has `bytes` of its own in
// `scratch`, which has room for `threads` of them. That is how many the team had when the call was prepared, and no
// more come.
void overTeamWithScratch(int64_t count, void* scratch, size_t bytes, int threads,
                         const std::function<void(int64_t, int64_t, std::byte*)>& body);

// body(part, parts) for each part at the same time, each on a thread of its own, so that they may wait for each other:
// `wanted` parts, or as many as the team has threads. As overTeam what is thrown; the others must not wait for it then.
void togetherOverTeam(int64_t wanted, const std::function<void(int64_t, int64_t)>& body);

}  // namespace zefuse::primitives
