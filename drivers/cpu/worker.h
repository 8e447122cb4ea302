// A thread that runs what an asynchronous queue or list was given.
#pragma once

#include <cstdint>
#include <list>
#include <memory>

#include "drivers/cpu/command.h"
#include "drivers/cpu/context.h"
#include "drivers/cpu/fence.h"
#include "drivers/cpu/level_zero.h"

namespace zefuse::cpu {

// Runs a sequence, then signals the fence.
struct Submission {
  std::shared_ptr<const CommandSequence> commands;
  Ref<Fence> fence;                   // may be empty
  std::shared_ptr<Failure> era = {};  // set by the worker: Backlog::era
};

// What a worker was given and has not run, shared with those who wait for it: it may outlive the worker.
struct Backlog;
bool idle(const Backlog& backlog);  // everything submitted has run
// For everything submitted so far, or until the worker ends and drops it.
void waitFor(Backlog& backlog);

// Thread-safe. The thread starts with the first submission. One worker per queue, so that a queue that waits for an
// event holds up no other. In a forked child, where the thread is gone, what was pending is dropped and the next
// submission starts a new thread.
//
// After a command that failed nothing runs any more, as it might use what is missing: all that was submitted fails with
// it, until the host has been told, by an event, a fence or wait(). What it submits then runs.
class Worker {
public:
  enum class Order {
    submitted,
    // As Level Zero lets a device take the commands of a list: in any order between two barriers and after the events
    // that they wait for. Those that are there at the same time run last first, so that a missing barrier shows.
    between_barriers,
  };
  explicit Worker(Context& context, Order order = Order::submitted);
  // Ends the thread: runs what is pending up to the first command whose event does not come, drops the rest.
  ~Worker();

  // All or, when this throws, none.
  void submit(std::list<Submission> submissions);
  void submit(std::shared_ptr<const CommandSequence> commands) {
    std::list<Submission> one;
    one.push_back({std::move(commands), {}});
    submit(std::move(one));
  }
  bool idle() const { return zefuse::cpu::idle(*backlog_); }
  bool ready() const;  // idle, and a command that comes now would not fail with an earlier one
  // For everything submitted so far. NOT_READY on timeout; why some of it failed, or that the device is lost, through
  // refuse().
  ze_result_t wait(const char* call, uint64_t timeout_ns);

private:
  void reviveAfterFork();
  static void loop(Backlog& backlog);

  Ref<Context> context_;
  std::shared_ptr<Backlog> backlog_;
};

// For a queue or list of this descriptor: one of its own, or that of all whose chain names the same stream
// (ze_extension::AdoptedStream), which runs everything as submitted.
std::shared_ptr<Worker> workerFor(Context& context, const ze_command_queue_desc_t& desc, Worker::Order order);

}  // namespace zefuse::cpu
