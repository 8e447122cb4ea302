// What all graphs of a process share of one GPU: its context, whether it is lost, parameters on it, and queues with the
// memory that calls need while they run.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/base/fork.h"
#include "runtime/executor/library_products.h"
#include "runtime/executor/resident_parameters.h"
#include "runtime/ze/command_list.h"
#include "runtime/ze/memory.h"
#include "runtime/ze/sycl.h"

namespace zefuse::executor {

// What one call in flight needs of a device. Calls of all graphs, one after the other, use the same one: the memory is
// the largest call's and not the sum of all graphs'. One thread at a time. Nothing is queued between calls, but in a
// stream of the caller's, where what comes next comes after it.
struct DeviceQueue {
  static Result<std::unique_ptr<DeviceQueue>> create(const ze::Context& context, ze::Stream stream);

  // What is queued between the two is in order with the stream, where that is a queue of SYCL's; other streams the
  // driver has adopted.
  Status enter() { return order ? order->enter(immediate) : Status(); }
  Status leave() { return order ? order->leave(immediate) : Status(); }
  // Behind what is queued; as ze::CommandQueue::execute and synchronize.
  Status execute(const ze::CommandList& closed) { return order ? immediate.append(closed) : recorded.execute(closed); }
  Status synchronize(uint64_t nanoseconds) {
    return order ? order->wait(immediate, nanoseconds) : recorded.synchronize(nanoseconds);
  }

  ze::Stream stream;          // of the caller's, whose order is that of all calls in it
  bool busy = false;          // the stream may have yet to come to the end of what earlier calls queued, in this memory
  ze::CommandList immediate;  // asynchronous
  ze::CommandQueue recorded;  // runs closed lists; not of SYCL's
  std::unique_ptr<ze::SyclOrder> order;
  ze::Memory arena, staging, scratch;
  uint64_t layout = newLayout();  // another number for each time that a block above has moved

  static uint64_t newLayout();  // no two of a process are the same; never 0
};

// What setLastResort() named; false: nobody did, or there was nothing to give back.
bool lastResort();

// Thread-safe. Outlives everything that was made of its context.
class DeviceContext : public std::enable_shared_from_this<DeviceContext> {
public:
  // The one for `device` ("gpu:0"), which lives as long as somebody has it. A lost one, or one of before a fork, is not
  // handed out again: a new one takes its place.
  static Result<std::shared_ptr<DeviceContext>> open(const std::string& device);

  const ze::Context& context() const { return context_; }
  const ze::Device& device() const { return context_.device(); }

  // How kernels reach the data of a call: where it is, but for what begins between the boundaries that they count on
  // (base/buffer_alignment.h).
  bool zeroCopy() const { return device().reaches_all_host; }
  bool hostVisible() const { return device().integrated; }         // device blocks are host memory
  bool hostCopies() const { return zeroCopy() || hostVisible(); }  // with memcpy, what has to be copied
  bool replays() const { return replays_; }                        // DeviceQueue::execute works

  // After a lost device, a launch that never ended or a fork nothing can be run any more: the reason, for every later
  // call of any graph. What the device may still use, or what a parent's driver made, is then leaked, this object
  // included.
  Status lost() const;
  bool isLost() const noexcept { return is_lost_.load(std::memory_order_acquire); }
  void markLost(const Status& reason) noexcept;

  ResidentParameters& parameters() { return parameters_; }
  LibraryProducts& products() { return products_; }
  LibraryConvolutions& convolutions() { return convolutions_; }

  // A queue for a call in `stream`: `last`, if nobody has it now, whose memory may be as the caller left it; it is only
  // compared.
  Result<std::unique_ptr<DeviceQueue>> takeQueue(const DeviceQueue* last, ze::Stream stream);
  void giveBack(std::unique_ptr<DeviceQueue> queue) noexcept;
  // Until the callers' streams have come past all that calls have queued in them.
  Status awaitStreams(std::chrono::milliseconds deadline);
  // Memory of the device, or of the host for it (`kind`). Where there is no room, what idle queues keep and what `drop`
  // gives back goes first, then what setLastResort() names. The error says how many bytes of `what`, and what there is.
  Result<ze::Memory> allocate(ze::Memory::Kind kind, size_t bytes, const char* what,
                              const std::function<bool()>& drop = nullptr);
  // Frees the memory of queues that no call has. False: there was none.
  bool releaseIdleMemory();
  ~DeviceContext();

private:
  explicit DeviceContext(ze::Context context);

  const ze::Context context_;
  const bool replays_;
  const uint32_t generation_ = forkGeneration();
  mutable ForkMutex mutex_;  // guards what follows
  Status lost_;
  std::shared_ptr<DeviceContext> kept_;  // itself, once lost
  std::atomic<bool> is_lost_{false};     // what destructors ask, which must not need memory for the answer
  const size_t max_idle_;
  std::vector<std::unique_ptr<DeviceQueue>> idle_;              // the last used last
  std::map<void*, std::unique_ptr<ze::CommandQueue>> streams_;  // that calls came in, to wait for; null: of SYCL's
  ResidentParameters parameters_;
  LibraryProducts products_;
  LibraryConvolutions convolutions_;
};

// Asks for all that a binding wants of the libraries of the GPU's vendor, which takes milliseconds for each the first
// time. What fails is told to who asks again.
void askLibraries(DeviceContext& device, const Binding& binding);

}  // namespace zefuse::executor
