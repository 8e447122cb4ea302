// The device's side of one call in flight, for plans that are for a GPU: where each buffer is valid, what must be
// copied before a step, the command list and the waits. docs/gpu.md says how data moves.
//
// Steps run in the order of the plan: device steps are queued and run asynchronously, one after the other; before a
// step on the host, and at the end, the queue is waited for, with a deadline.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "common/base/fork.h"
#include "runtime/executor/binding.h"
#include "runtime/executor/counters.h"
#include "runtime/executor/resident_inputs.h"
#include "runtime/ze/command_list.h"
#include "runtime/ze/memory.h"

namespace zefuse::executor {

// What all frames of an executable share of its GPU. Outlives them. Thread-safe.
struct SharedDevice {
  explicit SharedDevice(const ze::Context& context, std::chrono::milliseconds deadline)
      : context(context), deadline(deadline), resident(context, [this](const Status& reason) { markLost(reason); }) {}

  // How kernels reach the data of a call: where it is, but for what begins between the boundaries that they count on
  // (base/buffer_alignment.h).
  bool zeroCopy() const { return context.device().reaches_all_host; }
  bool hostVisible() const { return context.device().integrated; }  // device blocks are host memory
  bool hostCopies() const { return zeroCopy() || hostVisible(); }   // with memcpy, what has to be copied

  // After a lost device, a launch that never ended or a fork nothing can be run any more: the reason, for every later
  // call. What the device may still use, or what a parent's driver made, is then leaked.
  Status lost() const;
  bool isLost() const noexcept { return is_lost_.load(std::memory_order_acquire); }
  void markLost(const Status& reason) noexcept;

  const ze::Context& context;
  const std::chrono::milliseconds deadline;  // of a single step
  ResidentInputs resident;

private:
  const uint32_t generation_ = forkGeneration();
  mutable ForkMutex mutex_;
  Status lost_;
  std::atomic<bool> is_lost_{false};  // what destructors ask, which must not need memory for the answer
};

class DeviceSide {
public:
  // `host`: the frame's addresses by buffer, which it changes from call to call.
  static Result<std::unique_ptr<DeviceSide>> create(SharedDevice& shared, const plan::Program& program,
                                                    std::vector<std::byte*>& host);

  // Makes room for this binding's memory. No work may be queued.
  Status bind(const Binding& binding);

  void begin(std::span<const CallInput> inputs, Counters::OfCall& counted);
  // Brings what the step touches to where it runs. A step on the host finds the queue empty.
  Status before(size_t step);
  // What the step wrote is valid where it ran, and nowhere else.
  void after(size_t step);
  // After before(step), for steps on the device. The kernel's arguments are set.
  Status launch(size_t step, const ze::Kernel& kernel, uint32_t groups);
  // Until everything queued has run.
  Status wait() { return drain(); }
  // Brings the outputs, and inputs that steps wrote, to the host and waits for everything.
  Status finish();
  // After a failure: waits for what is queued, so that its memory may be used again. If that fails too, the device is
  // given up and this object must be leaked: the device may still use its memory.
  void settle() noexcept;

  std::byte* address(uint32_t buffer) const { return device_[buffer]; }
  uint32_t* statusWord(size_t step) const { return static_cast<uint32_t*>(words_.data()) + step; }
  std::byte* scratch() const { return static_cast<std::byte*>(scratch_.data()); }

private:
  DeviceSide(SharedDevice& shared, const plan::Program& program, std::vector<std::byte*>& host)
      : shared_(shared), program_(program), host_(host) {}

  enum Place : uint8_t { nowhere = 0, on_host = 1, on_device = 2 };
  // Whether host and device have copies of their own. Once the device's address is known.
  bool transfers(uint32_t buffer) const {
    return device_[buffer] != host_[buffer] && binding_->buffer_bytes[buffer] > 0;
  }
  Status place(uint32_t buffer);
  Status toDevice(uint32_t buffer);
  Status queueToHost(uint32_t buffer, bool& queued);
  void takeFromStaging();
  Status makeResident(uint32_t buffer);
  Status drain();
  Status checkWords();
  Status reserve(ze::Memory& memory, ze::Memory::Kind kind, size_t bytes, const char* what);
  std::byte* staging(uint32_t buffer) const {
    return static_cast<std::byte*>(staging_.data()) + binding_->device.staging_offset[buffer];
  }
  // The launch that the device is at, for messages: the first that has not ended.
  std::string unfinished() const;
  Status failed(const Status& status) const;

  SharedDevice& shared_;
  const plan::Program& program_;
  std::vector<std::byte*>& host_;
  const Binding* binding_ = nullptr;
  Counters::OfCall* counted_ = nullptr;
  std::span<const CallInput> inputs_;

  std::vector<std::byte*> device_;                              // by buffer
  std::vector<uint8_t> valid_;                                  // by buffer: Places
  std::vector<std::shared_ptr<const ResidentInput>> resident_;  // by input
  std::vector<uint32_t> downloads_;                             // queued, to be taken from staging
  ze::Memory arena_, staging_, scratch_, words_;
  std::vector<ze::Memory> moved_;  // by buffer, without copies: for what does not begin where kernels want it
  std::optional<ze::CommandList> list_;
  ze::EventPool events_;           // one per launch, and `drained_`
  std::vector<ze::Event> ended_;   // of each launch, by its order among launches
  std::vector<size_t> launched_;   // steps queued in this call, in order
  std::vector<int32_t> event_of_;  // by step: index into ended_, -1
  std::optional<ze::Event> drained_;
  bool queued_ = false;  // something since the last drain
};

}  // namespace zefuse::executor
