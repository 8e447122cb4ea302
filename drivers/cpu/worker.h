// A thread that runs what an asynchronous queue or list was given.
#pragma once

#include <cstdint>
#include <memory>

#include "drivers/cpu/command.h"
#include "drivers/cpu/context.h"
#include "drivers/cpu/fence.h"
#include "drivers/cpu/handle.h"

namespace zefuse::cpu {

// Runs a sequence, then signals the fence.
struct Submission {
  std::shared_ptr<const CommandSequence> commands;
  Ref<Fence> fence;  // may be empty
};

// Thread-safe. The thread starts with the first submission. One worker per queue, so that a queue that waits for an
// event holds up no other. In a forked child, where the thread is gone, what was pending is dropped and the next
// submission starts a new thread.
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

  void submit(Submission submission);
  bool idle() const;               // everything submitted has run
  bool wait(uint64_t timeout_ns);  // for everything submitted so far; false on timeout

private:
  struct State;
  void reviveAfterFork();
  static void loop(State& state);

  Ref<Context> context_;
  uint32_t generation_;
  State* state_;  // a raw pointer: left behind in a forked child, where its locks are in no known state
};

}  // namespace zefuse::cpu
