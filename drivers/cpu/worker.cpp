#include "drivers/cpu/worker.h"

#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <limits>
#include <mutex>
#include <thread>

#include "drivers/cpu/fork.h"

namespace zefuse::cpu {

namespace {

// How long a command that could run waits for others beside which it may run.
constexpr std::chrono::microseconds kGather{300};

bool mayRunBeside(const Submission& submission) {
  const auto free = [](const Command& command) {
    return command.waits.empty() && (std::holds_alternative<LaunchCommand>(command.operation) ||
                                     std::holds_alternative<CopyCommand>(command.operation));
  };
  return !submission.fence && submission.commands->size() == 1 && free(submission.commands->front());
}

}  // namespace

struct Worker::State {
  explicit State(Order order) : order(order) {}
  const Order order;
  std::mutex mutex;
  std::condition_variable work, done;
  std::deque<Submission> pending;
  uint64_t submitted = 0;
  std::atomic<uint64_t> completed{0};
  std::atomic<uint64_t> submitted_seen{0};  // = submitted, readable without the lock
  std::atomic<bool> stop{false};
  std::thread thread;
};

Worker::Worker(Context& context, Order order)
    : context_(&context), generation_(forkGeneration()), state_(new State(order)) {
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
  state_ = new State(state_->order);
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
    std::vector<Submission> next;  // to be run, the last one first
    {
      std::unique_lock lock(state.mutex);
      state.work.wait(lock, [&] { return state.stop || !state.pending.empty(); });
      if (state.pending.empty())
        return;
      do {
        next.push_back(std::move(state.pending.front()));
        state.pending.pop_front();
        if (state.order == Order::submitted || !mayRunBeside(next.back()))
          break;
        if (state.pending.empty() && !state.stop)
          state.work.wait_for(lock, kGather, [&] { return state.stop || !state.pending.empty(); });
      } while (!state.pending.empty() && mayRunBeside(state.pending.front()));
    }
    const size_t count = next.size();
    for (; !next.empty(); next.pop_back()) {
      if (!runSequence(*next.back().commands, site))
        return;
      if (next.back().fence)
        next.back().fence->flag.set();
    }  // references go before anybody is told that the work has ended
    {
      std::lock_guard lock(state.mutex);
      state.completed.fetch_add(count, std::memory_order_release);
    }
    state.done.notify_all();
  }
}

}  // namespace zefuse::cpu
