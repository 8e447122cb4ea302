#include "drivers/cpu/worker.h"

#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <limits>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "common/base/fork.h"
#include "common/ze_extension/stream.h"
#include "drivers/level_zero/extensions.h"

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

struct Backlog {
  explicit Backlog(Worker::Order order) : order(order) {}
  const Worker::Order order;
  const uint32_t generation = forkGeneration();

  std::mutex mutex;
  std::condition_variable work, done;
  std::list<Submission> pending;  // a list, so that the thread takes what is there without any memory
  uint64_t submitted = 0;
  std::atomic<uint64_t> completed{0};
  std::atomic<uint64_t> submitted_seen{0};  // = submitted, readable without the lock
  std::atomic<bool> stop{false};
  bool ended = false;  // the thread has dropped what was left
  // Takes the reason when a command fails; what is submitted belongs to the era of that moment. A new era begins with
  // the first submission after the host was told of the failure. Made here, so that failing needs no memory.
  std::shared_ptr<Failure> era = std::make_shared<Failure>();
  std::thread thread;
  std::shared_ptr<Backlog> left_behind;  // itself, in a forked child: its locks and thread are in no known state

  bool inherited() const { return generation != forkGeneration(); }
  bool everythingRan(uint64_t target) const { return completed.load(std::memory_order_acquire) >= target; }

  // true: all has run or was dropped.
  bool wait(std::unique_lock<std::mutex>& lock, uint64_t timeout_ns) {
    const uint64_t target = submitted;
    auto over = [&] { return everythingRan(target) || ended; };
    // Past a century the clock's arithmetic would overflow.
    if (timeout_ns <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) / 4)
      return done.wait_for(lock, std::chrono::nanoseconds(timeout_ns), over);
    done.wait(lock, over);
    return true;
  }
};

bool idle(const Backlog& backlog) {
  return backlog.inherited() ||
         backlog.completed.load(std::memory_order_acquire) == backlog.submitted_seen.load(std::memory_order_acquire);
}

void waitFor(Backlog& backlog) {
  if (idle(backlog))
    return;
  std::unique_lock lock(backlog.mutex);
  backlog.wait(lock, std::numeric_limits<uint64_t>::max());
}

Worker::Worker(Context& context, Order order) : context_(&context), backlog_(std::make_shared<Backlog>(order)) {
  context_->add(backlog_);
}

Worker::~Worker() {
  context_->remove(*backlog_);
  if (backlog_->inherited()) {
    backlog_->left_behind = backlog_;
    return;
  }
  {
    std::lock_guard lock(backlog_->mutex);
    backlog_->stop = true;
  }
  backlog_->work.notify_one();
  if (backlog_->thread.joinable())
    backlog_->thread.join();
}

void Worker::reviveAfterFork() {
  if (!backlog_->inherited())
    return;
  auto fresh = std::make_shared<Backlog>(backlog_->order);
  context_->add(fresh);
  context_->remove(*backlog_);
  backlog_->left_behind = backlog_;
  backlog_ = std::move(fresh);
}

void Worker::submit(std::list<Submission> submissions) {
  reviveAfterFork();
  Backlog& backlog = *backlog_;
  std::lock_guard lock(backlog.mutex);
  if (!backlog.thread.joinable()) {
    // The process's signals are for the threads it made itself: Python's main thread must get SIGINT.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
      backlog.thread = std::thread(loop, std::ref(backlog));
    } catch (...) {
      pthread_sigmask(SIG_SETMASK, &before, nullptr);
      throw;
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    pthread_setname_np(backlog.thread.native_handle(), "zefuse-queue");
  }
  if (backlog.era->told.load(std::memory_order_acquire))
    backlog.era = std::make_shared<Failure>();
  for (Submission& submission : submissions)
    submission.era = backlog.era;
  backlog.submitted += submissions.size();
  backlog.pending.splice(backlog.pending.end(), submissions);
  backlog.submitted_seen.store(backlog.submitted, std::memory_order_release);
  backlog.work.notify_one();
}

bool Worker::ready() const {
  if (!idle())
    return false;
  if (backlog_->inherited())
    return true;
  std::lock_guard lock(backlog_->mutex);
  return !backlog_->era->occurred();
}

ze_result_t Worker::wait(const char* call, uint64_t timeout_ns) {
  if (backlog_->inherited())
    return ZE_RESULT_SUCCESS;
  if (timeout_ns == 0 && !idle())
    return ZE_RESULT_NOT_READY;
  const std::shared_ptr<Backlog> backlog = backlog_;
  std::unique_lock lock(backlog->mutex);
  if (!backlog->wait(lock, timeout_ns))
    return ZE_RESULT_NOT_READY;
  const std::shared_ptr<Failure> era = backlog->era;
  const bool dropped = backlog->completed.load(std::memory_order_acquire) != backlog->submitted && backlog->ended;
  lock.unlock();
  if (era->occurred())
    return era->tell(call);
  if (dropped && deviceLost())
    return refuse(ZE_RESULT_ERROR_DEVICE_LOST, "%s: the device is lost", CallName(call).text);
  return ZE_RESULT_SUCCESS;
}

void Worker::loop(Backlog& backlog) {
  // Nothing here may throw, as nobody would catch it: no memory is asked for, and run() keeps what commands throw.
  const Site site = {Team::if_idle, &backlog.stop};
  const auto end = [&](std::unique_lock<std::mutex>& lock) {
    backlog.ended = true;
    lock.unlock();
    backlog.done.notify_all();
  };
  for (;;) {
    std::list<Submission> next;  // to be run, the last one first
    const auto take = [&] { next.splice(next.end(), backlog.pending, backlog.pending.begin()); };
    {
      std::unique_lock lock(backlog.mutex);
      backlog.work.wait(lock, [&] { return backlog.stop || !backlog.pending.empty(); });
      if (backlog.pending.empty())
        return end(lock);
      do {
        take();
        if (backlog.order == Order::submitted || !mayRunBeside(next.back()))
          break;
        if (backlog.pending.empty() && !backlog.stop)
          backlog.work.wait_for(lock, kGather, [&] { return backlog.stop || !backlog.pending.empty(); });
      } while (!backlog.pending.empty() && mayRunBeside(backlog.pending.front()));
    }
    const size_t count = next.size();
    for (; !next.empty(); next.pop_back()) {
      const Submission& now = next.back();
      Progress progress(site, now.era);
      if (now.era->occurred())
        progress.failedBefore(now.era);
      if (!progress.run(*now.commands)) {
        std::unique_lock lock(backlog.mutex);
        return end(lock);
      }
      if (now.fence && progress.failure())
        now.fence->state.fail(progress.failure());
      else if (now.fence)
        now.fence->state.set();
    }  // references go before anybody is told that the work has ended
    {
      std::lock_guard lock(backlog.mutex);
      backlog.completed.fetch_add(count, std::memory_order_release);
    }
    backlog.done.notify_all();
  }
}

std::shared_ptr<Worker> workerFor(Context& context, const ze_command_queue_desc_t& desc, Worker::Order order) {
  using ze_extension::AdoptedStream;
  const auto* given = level_zero::findExtension<AdoptedStream>(desc.pNext, AdoptedStream::kType);
  if (!given)
    return std::make_shared<Worker>(context, order);
  // Never destroyed: queues may be, after static objects.
  static auto& mutex = *new ForkMutex;
  static auto& streams = *new std::map<void*, std::weak_ptr<Worker>>;
  const std::lock_guard lock(mutex);
  std::weak_ptr<Worker>& known = streams[given->stream];
  std::shared_ptr<Worker> worker = known.lock();
  if (!worker)
    known = worker = std::make_shared<Worker>(context, Worker::Order::submitted);
  return worker;
}

}  // namespace zefuse::cpu
