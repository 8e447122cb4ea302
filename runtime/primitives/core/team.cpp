#include "runtime/primitives/core/team.h"

#include <algorithm>
#include <atomic>

#include "common/base/first_exception.h"
#include "common/base/unseen_order.h"

extern "C" {
int omp_get_max_threads();
void omp_set_num_threads(int threads);
int omp_get_thread_num();
int omp_get_num_threads();
void GOMP_parallel(void (*function)(void*), void* data, unsigned threads, unsigned flags);
}

namespace zefuse::primitives {

namespace {

struct Work {
  int64_t wanted;
  const std::function<void(int64_t, int64_t)>* body;  // (part, parts)
  FirstException thrown;
  TeamOrder order;
};

void runPart(void* data) {
  auto* work = static_cast<Work*>(data);
  work->order.entered();
  // The team may be smaller than asked for (nested regions, thread limits).
  const int64_t parts = std::min<int64_t>(work->wanted, omp_get_num_threads()), part = omp_get_thread_num();
  if (part < parts) {
    try {
      (*work->body)(part, parts);
    } catch (...) {  // libgomp is C: the process would end
      work->thrown.keep();
    }
  }
  work->order.left();
}

}  // namespace

int maxThreads() { return omp_get_max_threads(); }

void setMaxThreads(int threads) { omp_set_num_threads(threads); }

int threadsWorth(double nanoseconds, int threads) {
  // Waking a team and waiting for its last thread.
  constexpr double region = 500, of_thread = 200;
  return nanoseconds * (threads - 1) > (region + of_thread * threads) * threads ? threads : 1;
}

void togetherOverTeam(int64_t wanted, const std::function<void(int64_t, int64_t)>& body) {
  const int threads = maxThreads();
  if (threads <= 1 || wanted <= 1) {
    body(0, 1);
    return;
  }
  Work work{wanted, &body, {}, {}};
  // The whole team even for fewer parts: libgomp ends the threads that a smaller one does not use, and starts them
  // again for the next.
  work.order.begin();
  GOMP_parallel(runPart, &work, unsigned(threads), 0);
  work.order.end();
  work.thrown.rethrow();
}

void overTeam(int64_t count, int64_t grain, const std::function<void(int64_t, int64_t)>& body) {
  const int64_t wanted = std::min<int64_t>(maxThreads(), count / std::max<int64_t>(grain, 1));
  if (count <= 0)
    return;
  togetherOverTeam(wanted, [&](int64_t part, int64_t parts) {
    const int64_t begin = count * part / parts, end = count * (part + 1) / parts;
    if (begin < end)
      body(begin, end);
  });
}

void overTeamWithScratch(int64_t count, void* scratch, size_t bytes, int threads,
                         const std::function<void(int64_t, int64_t, std::byte*)>& body) {
  std::atomic<int> next{0};
  overTeam(count, 1, [&](int64_t begin, int64_t end) {
    const int mine = next.fetch_add(1, std::memory_order_relaxed) % threads;
    body(begin, end, static_cast<std::byte*>(scratch) + size_t(mine) * bytes);
  });
}

}  // namespace zefuse::primitives
