// The device's side of one call in flight, for plans that are for a GPU: where each buffer is valid, what must be
// copied before a step, the commands and the waits. docs/gpu.md says how data moves.
//
// Steps run in the order of the plan: device steps are queued and run asynchronously, one after the other; before a
// step on the host, and at the end, the queue is waited for, with a deadline. A plan without steps on the host is
// recorded when two calls in a row found everything in the same place, and then replayed.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/executor/binding.h"
#include "runtime/executor/counters.h"
#include "runtime/executor/device_context.h"
#include "runtime/executor/resident_inputs.h"

namespace zefuse::executor {

// What all frames of an executable share of its GPU. Outlives them. Thread-safe.
struct SharedDevice {
  SharedDevice(std::shared_ptr<DeviceContext> context, std::chrono::milliseconds deadline, bool in_streams,
               bool synchronous)
      : device(std::move(context)), deadline(deadline), in_streams(in_streams), synchronous(synchronous),
        resident(device->parameters()) {}

  const std::shared_ptr<DeviceContext> device;
  const std::chrono::milliseconds deadline;  // of a single step
  const bool in_streams, synchronous;        // ExecutableOptions
  ResidentInputs resident;
};

class DeviceSide {
public:
  // `host`: the frame's addresses by buffer, which it changes from call to call.
  static Result<std::unique_ptr<DeviceSide>> create(SharedDevice& shared, const plan::Program& program,
                                                    std::vector<std::byte*>& host);

  ~DeviceSide();

  // For calls of this binding from now on. An error where the device has no room for them.
  Status bind(const Binding& binding);

  // Where the caller's tensors lie in the call that begins. unsupported: a step on the host uses one on the device.
  Status takePlaces(std::span<const CallInput> inputs, const CallPlace& place);
  // Takes what the call needs of the device until finish() or settle(). `timed`: the caller waits after each step.
  Status begin(std::span<const CallInput> inputs, Counters::OfCall& counted, bool timed);
  // After begin: whether the steps that derive something from parameters (Program::derived) are left out of this call's
  // others, and whether they must run before those: then derive() runs them, `run` each.
  bool keeps() const { return keeps_now_; }
  bool mustDerive() const { return keeps_now_ && !derived_fresh_; }
  Status derive(const std::function<Status(size_t step)>& run);
  // After begin: whether all steps are recorded, so that only finish() is left to do.
  bool replays() const { return mode_ == Mode::replay; }
  // Brings what the step touches to where it runs. A step on the host finds the queue empty.
  Status before(size_t step);
  // What the step wrote is valid where it ran, and nowhere else.
  void after(size_t step);
  // After before(step), for steps on the device. The kernel's arguments are set.
  Status launch(size_t step, const ze::Kernel& kernel, uint32_t groups);
  // A library's product or convolution for the step, which takes the place of its launch; neither: the kernel is
  // launched.
  const ze::Product* product(size_t step) const { return products_.empty() ? nullptr : products_[step].get(); }
  const ze::Convolution* convolution(size_t step) const {
    return convolutions_.empty() ? nullptr : convolutions_[step].get();
  }
  Status copy(size_t step, void* destination, const void* source, size_t bytes);
  Status multiply(size_t step, ze_extension::ProductOperands operands);
  Status convolve(size_t step, ze_extension::ConvolutionOperands operands);
  // Until everything queued has run.
  Status wait() { return drain(); }
  // Brings the outputs, and inputs that steps wrote, to the host and waits for everything; a call that lies on the
  // device alone and came in a stream is only queued.
  Status finish();
  // The first check that failed in a call that did not wait, once. `ended`: all of them have.
  Status tellEarlier(bool ended);
  // After a failure: waits for what is queued, so that its memory may be used again. If that fails too, the device is
  // given up and this object must be leaked: the device may still use its memory. So it is at once after a deadline.
  void settle(const Status& failure) noexcept;

  std::byte* address(uint32_t buffer) const { return device_[buffer]; }
  uint32_t* statusWord(size_t step) const { return static_cast<uint32_t*>(words_.data()) + step; }
  std::byte* scratch() const { return static_cast<std::byte*>(queue_->scratch.data()); }

private:
  DeviceSide(SharedDevice& shared, const plan::Program& program, std::vector<std::byte*>& host)
      : shared_(shared), program_(program), host_(host) {}

  enum Copies : uint8_t { nowhere = 0, on_host = 1, on_device = 2 };
  enum class Mode : uint8_t { immediate, record, replay };
  // What the addresses in commands depend on.
  struct Addresses {
    uint64_t layout = 0;               // of the queue
    std::vector<uint64_t> parameters;  // by input: the copy's number; 0: none
    std::vector<std::byte*> placed;    // by buffer of the caller's: null where it lies on the host
    bool waits = true;                 // an event ends it
    bool keeps = false;                // what is derived from parameters is made outside of it
    bool operator==(const Addresses&) const = default;
  };
  struct Recording {
    ze::CommandList list;
    Addresses addresses;
    std::vector<size_t> launched;
    std::vector<uint32_t> uploads, downloads;
    Counters::OfCall counted;  // of the call that recorded it
  };

  const DeviceContext& device() const { return *shared_.device; }
  // Whether host and device have copies of their own. Once the device's address is known.
  bool transfers(uint32_t buffer) const {
    return device_[buffer] != host_[buffer] && binding_->buffer_bytes[buffer] > 0;
  }
  Status takeQueue();
  void giveQueueBack() noexcept;
  // The caller's buffers, once their addresses are known: used where they are, if kernels can.
  Status usePlaces();
  Status place(uint32_t buffer);
  Status toDevice(uint32_t buffer);
  void fillStaging(uint32_t buffer);
  Status queueToHost(uint32_t buffer, bool& queued);
  Status queueResults();
  void takeFromStaging();
  Status makeResident(uint32_t buffer);
  Status barrier();
  // The recording for these addresses, or whether to make one: they came before, and it has paid so far.
  Recording* recordingFor(const Addresses& now);
  bool worthRecording(const Addresses& now);
  Status takeLibraryCalls(const Binding& binding);
  // `append` puts the step's work into the list and signals the event.
  template <typename Append> Status queueStep(size_t step, Append append);
  // The event that the launch signals: each has one, until a call of this binding has ended well, so that a kernel that
  // hangs is named; later a few, so that progress is seen. Null: none.
  ze::Event* endOf(size_t launch);
  Status execute(const ze::CommandList& list);
  uint64_t deadline() const { return uint64_t(std::chrono::nanoseconds(shared_.deadline).count()); }
  Status drain();
  Status awaitDrained();
  Status checkWords();
  Status reserve(ze::Memory& memory, ze::Memory::Kind kind, size_t bytes, const char* what);
  // Of the binding: room for what is derived from parameters. Without it nothing is kept.
  Status takeKeptMemory();
  // Whether what was derived is used in this call, and whether it is of the parameters that the call brings.
  Status lookAtDerived();
  std::byte* staging(uint32_t buffer) const {
    return static_cast<std::byte*>(queue_->staging.data()) + binding_->device.staging_offset[buffer];
  }
  // How many of the first launches are known to have ended.
  size_t endedLaunches() const;
  // The launches that the device is at then, for messages.
  std::string unfinished(size_t ended) const;
  Status failed(const Status& status) const;

  SharedDevice& shared_;
  const plan::Program& program_;
  std::vector<std::byte*>& host_;
  const Binding* binding_ = nullptr;
  std::vector<std::shared_ptr<const ze::Product>> products_;          // of the binding, by step; empty: there are none
  std::vector<std::shared_ptr<const ze::Convolution>> convolutions_;  // likewise
  size_t scratch_bytes_ = 0;                                          // of the binding, their workspace included
  Counters::OfCall* counted_ = nullptr;
  std::span<const CallInput> inputs_;

  std::unique_ptr<DeviceQueue> queue_;       // of the call in flight
  const DeviceQueue* last_queue_ = nullptr;  // the call's before, only to be asked for again
  uint64_t layout_ = 0;                      // of the queue, when device_ was filled in

  std::vector<uint32_t> caller_buffers_;  // inputs and outputs
  std::vector<int64_t> host_step_;        // by buffer: one that uses it; -1: none
  std::vector<uint8_t> placed_;           // by buffer: the caller's lies on the device
  bool any_placed_ = false;
  std::vector<uint32_t> device_inputs_;                             // buffers of inputs that steps on the device touch
  std::vector<std::byte*> device_;                                  // by buffer
  std::vector<uint8_t> valid_;                                      // by buffer: Copies, which hold what it is now
  std::vector<std::shared_ptr<const ResidentParameter>> resident_;  // by input
  std::vector<uint32_t> uploads_, downloads_;                       // through staging
  ze::Memory words_;
  std::vector<ze::Memory>
      moved_;                     // by buffer: for what is used without copies and does not begin where kernels want it
  ze::EventPool events_;          // one per launch, and `drained_`
  std::vector<ze::Event> ended_;  // of launches, as endOf() says
  std::optional<ze::Event> drained_;
  std::vector<size_t> launched_;  // steps queued in this call, in order
  bool queued_ = false;           // something runs, or may, since the last drain
  bool copied_in_ = false;        // since the last barrier, for launches to come
  bool launched_since_ = false;   // the last barrier

  ze::Stream stream_;            // of the call
  bool placed_alone_ = false;    // nothing of the call's lies on the host that steps on the device use
  bool moved_now_ = false;       // something lies in moved_
  bool waits_ = true;            // finish() does
  bool in_flight_ = false;       // calls did not wait, and nobody did since
  std::vector<size_t> checked_;  // steps on the device with checks

  // What is derived from parameters: the buffers of those, and of what they were when it was made; in which stream.
  struct DerivedFrom {
    const void* data = nullptr;
    uint64_t storage = 0, version = 0, resident = 0;
    bool operator==(const DerivedFrom&) const = default;
  };
  ze::Memory kept_;
  std::vector<uint32_t> derived_buffers_;
  std::vector<DerivedFrom> derived_from_, derived_now_;
  uint64_t derived_generation_ = 0;
  ze::Stream derived_stream_;
  bool keeps_ = false, keeps_now_ = false;
  bool derived_fresh_ = false;

  bool proven_ = false;  // a call of this binding has ended well
  size_t launches_per_event_ = 1;
  Mode mode_ = Mode::immediate;
  ze::CommandList* list_ = nullptr;                     // what commands go into
  std::vector<Addresses> seen_;                         // of the last calls that could have been recorded
  std::vector<std::unique_ptr<Recording>> recordings_;  // complete ones, the last used first
  std::unique_ptr<Recording> recording_;                // of this call, not complete
  Recording* replayed_ = nullptr;                       // by this call
  uint64_t recorded_calls_ = 0, replayed_calls_ = 0;
};

}  // namespace zefuse::executor
