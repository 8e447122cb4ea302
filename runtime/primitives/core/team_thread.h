// Threads that prepare library calls for their creator's OpenMP team. A call is made for a team of a size, which is
// part of the primitive cache's key and of oneDNN's choices; a new thread's team has the process' default size.
#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <system_error>
#include <thread>

#include "common/base/parallel.h"
#include "runtime/primitives/core/team.h"

namespace zefuse::primitives {

// One piece of work, which gives a T, beside its creator's own. Owned and used by one thread at a time; what `work`
// refers to must live until get() or the destructor returns.
template <typename T> class TeamThread {
public:
  // Begins at once, with a team as large as the calling thread's. Where the system has no thread to give, `work` is
  // done here, before this returns.
  explicit TeamThread(std::function<T()> work)
      : task_([work = std::move(work), threads = maxThreads()] {
          setMaxThreads(threads);
          return work();
        }),
        result_(task_.get_future()) {
    try {
      thread_ = std::jthread([this] { task_(); });
    } catch (const std::system_error&) {
      task_();
    }
  }
  ~TeamThread() = default;  // waits for the work; its result is lost
  TeamThread(const TeamThread&) = delete;

  // Whether the work ends within that time.
  bool endsWithin(std::chrono::milliseconds time) const { return result_.wait_for(time) == std::future_status::ready; }
  // Waits for the work. Its result, or what it threw; once: later calls throw std::future_error.
  T get() { return result_.get(); }

private:
  std::packaged_task<T()> task_;
  std::future<T> result_;
  std::jthread thread_;  // declared last: ends before what it uses
};

// inParallel on as many threads as the calling thread's team has, each with a team of that size.
template <typename Work> void inParallelForTeam(size_t count, const Work& work) {
  const int threads = maxThreads();
  inParallel(count, size_t(threads), [&](size_t i) {
    setMaxThreads(threads);
    work(i);
  });
}

}  // namespace zefuse::primitives
