#include "runtime/cpu_driver/worker.h"

#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <limits>
#include <mutex>
#include <thread>

#include "runtime/cpu_driver/fork.h"

namespace zefuse::cpu {

struct Worker::State {
  std::mutex mutex;
  std::condition_variable work, done;
  std::deque<Submission> pending;
  uint64_t submitted = 0;
  std::atomic<uint64_t> completed{0};
  std::atomic<uint64_t> submitted_seen{0};  // = submitted, readable without the lock
  std::atomic<bool> stop{false};
  std::thread thread;
};

Worker::Worker(Context& context) : context_(&context), generation_(forkGeneration()), state_(new State) {
  context_->add(this);
}

Worker::~Worker() {
  context_->remove(this);
  if (generation_ != forkGeneration())
    return;  // see state_
  {
    std::lock_guard lock(state_->mutex);
    state_->stop = true;
  }
  state_->work.notify_one();
  if (state_->thread.joinable())
    state_->thread.join();
  delete state_;
}

void Worker::reviveAfterFork() {
  if (generation_ == forkGeneration())
    return;
  state_ = new State;
  generation_ = forkGeneration();
}

void Worker::submit(Submission submission) {
  reviveAfterFork();
  State& state = *state_;
  std::lock_guard lock(state.mutex);
  if (!state.thread.joinable()) {
    // The process's signals are for the threads it made itself: Python's main thread must get SIGINT.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
      state.thread = std::thread(loop, std::ref(state));
    } catch (...) {
      pthread_sigmask(SIG_SETMASK, &before, nullptr);
      throw;
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    pthread_setname_np(state.thread.native_handle(), "zefuse-queue");
  }
  state.pending.push_back(std::move(submission));
  state.submitted_seen.store(++state.submitted, std::memory_order_release);
  state.work.notify_one();
}

bool Worker::idle() const {
  if (generation_ != forkGeneration())
    return true;
  return state_->completed.load(std::memory_order_acquire) == state_->submitted_seen.load(std::memory_order_acquire);
}

bool Worker::wait(uint64_t timeout_ns) {
  if (idle())
    return true;
  if (timeout_ns == 0)
    return false;
  State& state = *state_;
  std::unique_lock lock(state.mutex);
  uint64_t target = state.submitted;
  auto reached = [&] { return state.completed.load(std::memory_order_acquire) >= target; };
  // Past a century the clock's arithmetic would overflow.
  if (timeout_ns > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) / 4) {
    state.done.wait(lock, reached);
    return true;
  }
  return state.done.wait_for(lock, std::chrono::nanoseconds(timeout_ns), reached);
}

void Worker::loop(State& state) {
  // No team: libgomp keeps one per calling thread, and a second one would compete with the callers' for the cores.
  const Site site = {Team::none, &state.stop};
  for (;;) {
    Submission submission;
    {
      std::unique_lock lock(state.mutex);
      state.work.wait(lock, [&] { return state.stop || !state.pending.empty(); });
      if (state.pending.empty())
        return;
      submission = std::move(state.pending.front());
      state.pending.pop_front();
    }
    if (!runSequence(*submission.commands, site))
      return;
    if (submission.fence)
      submission.fence->flag.set();
    submission = {};  // references go before anybody is told that the work has ended
    {
      std::lock_guard lock(state.mutex);
      state.completed.fetch_add(1, std::memory_order_release);
    }
    state.done.notify_all();
  }
}

}  // namespace zefuse::cpu
