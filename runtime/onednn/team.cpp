#include "runtime/onednn/team.h"

#include <algorithm>

#include "common/base/first_exception.h"
#include "common/base/unseen_order.h"

extern "C" {
int omp_get_max_threads();
void omp_set_num_threads(int threads);
int omp_get_thread_num();
int omp_get_num_threads();
void GOMP_parallel(void (*function)(void*), void* data, unsigned threads, unsigned flags);
}

namespace zefuse::onednn {

namespace {

struct Work {
  int64_t count, parts;
  const std::function<void(int64_t, int64_t)>* body;
  FirstException thrown;
  TeamOrder order;
};

void runShare(Work* work) {
  // The team may be smaller than asked for (nested regions, thread limits).
  int64_t parts = std::min<int64_t>(work->parts, omp_get_num_threads()), part = omp_get_thread_num();
  int64_t begin = work->count * part / parts, end = work->count * (part + 1) / parts;
  if (part >= parts || begin >= end)
    return;
  try {
    (*work->body)(begin, end);
  } catch (...) {  // libgomp is C: the process would end
    work->thrown.keep();
  }
}

void runPart(void* data) {
  auto* work = static_cast<Work*>(data);
  work->order.entered();
  runShare(work);
  work->order.left();
}

}  // namespace

int maxThreads() { return omp_get_max_threads(); }

void setMaxThreads(int threads) { omp_set_num_threads(threads); }

void overTeam(int64_t count, int64_t grain, const std::function<void(int64_t, int64_t)>& body) {
  const int threads = maxThreads();
  const int64_t parts = std::min<int64_t>(threads, count / std::max<int64_t>(grain, 1));
  if (parts <= 1) {
    if (count > 0)
      body(0, count);
    return;
  }
  Work work{count, parts, &body, {}, {}};
  // The whole team even for fewer parts: libgomp ends the threads that a smaller one does not use, and starts them
  // again for the next.
  work.order.begin();
  GOMP_parallel(runPart, &work, unsigned(threads), 0);
  work.order.end();
  work.thrown.rethrow();
}

}  // namespace zefuse::onednn
