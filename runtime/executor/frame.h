// The state of one call in flight: memory, addresses, kernel handles with their arguments, ATen
// argument lists. Reused from call to call, so that the steady path allocates nothing. One thread
// at a time.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "runtime/executor/aten_calls.h"
#include "runtime/executor/binding.h"
#include "runtime/executor/counters.h"
#include "runtime/executor/derived_weights.h"
#include "runtime/executor/device_side.h"
#include "runtime/executor/host_memory.h"
#include "runtime/executor/kept_weights.h"
#include "runtime/executor/kernel_modules.h"
#include "runtime/executor/step_timer.h"
#include "runtime/ze/command_list.h"

namespace zefuse::executor {

// What all frames of an executable share. Outlives them.
struct Shared {
  plan::Program program;
  std::unique_ptr<KernelModules> modules;
  std::unique_ptr<SharedDevice> gpu;  // of a plan for one
  AtenOps aten;
  DerivedWeights weights;
  Counters counters;
  StepTimer timer;
};

class Frame {
public:
  explicit Frame(Shared& shared);
  ~Frame();
  Frame(const Frame&) = delete;

  const Binding* binding() const { return binding_.get(); }
  // Makes room for this binding's memory and forgets what depended on another one.
  Status bind(std::shared_ptr<const Binding> binding);
  // What this binding's launches need that no library does. run() asks for it, where nobody has before.
  Status requireKernels();

  // Inputs must have been checked against the binding.
  Result<std::vector<CallOutput>> run(std::span<const CallInput> inputs, const AllocateOutput& allocate,
                                      StepObserver* observer, const CallPlace& place);

  void forgetWeights();
  size_t bytes() const { return arena_.bytes() + scratch_.bytes() + streamed_.bytes() + (kept_ ? kept_->bytes() : 0); }
  // DeviceSide::tellEarlier, after the streams were waited for.
  Status tellEarlier() { return gpu_ ? gpu_->tellEarlier(true) : Status(); }

private:
  struct LaunchState {
    std::optional<ze::Kernel> kernel;
    std::vector<uint64_t> arguments;  // as last set
    bool set = false;                 // whether arguments holds what the handle has
  };
  struct LibraryState {
    std::shared_ptr<const PackedWeight> packed;           // null: packed for each use, until a copy is kept
    std::shared_ptr<const primitives::Primitive> packer;  // whom `packed` was looked up for
    bool asked = false;                                   // by this call's packWeights, which has counted it
    std::vector<const void*> operands;
    std::vector<void*> results;  // of a call with several
  };

  Status prepare(std::span<const CallInput> inputs, const AllocateOutput& allocate, const CallPlace& place);
  // What this call does about kept_, and so where those buffers are.
  void takeKept(std::span<const CallInput> inputs);
  void countKept();  // its launches have run, or were left out
  Status packWeights(std::span<const CallInput> inputs);
  // By what the copy of the step's weight is known to be fresh, a parameter or what is kept of parameters.
  WeightStamp stampOf(const BoundLibraryCall& bound, std::span<const CallInput> inputs);
  // Looks for the packed copy of the step's weight, whose first element is `b`.
  Status packFor(size_t step, uint32_t view, const void* b, std::span<const CallInput> inputs,
                 Counters::OfCall& counted);
  Status runSteps(std::span<const CallInput> inputs, StepObserver* observer);
  Status runStep(size_t step, std::span<const CallInput> inputs);
  Status runLaunch(size_t step, const plan::LaunchT& launch);
  Status makeKernel(size_t step, const plan::LaunchT& launch, LaunchState& state);
  Status runMatmul(size_t step, const plan::MatmulT& matmul, std::span<const CallInput> inputs);
  Status runAttention(size_t step, const plan::AttentionT& attention);
  Status runAttentionGradient(size_t step, const plan::AttentionGradientT& gradient);
  Status runGroupedMatmul(size_t step, const plan::GroupedMatmulT& product);
  Status runRecurrence(size_t step, const plan::RecurrenceT& recurrence, std::span<const CallInput> inputs);
  Status runConvolution(size_t step, const plan::ConvolutionT& convolution, std::span<const CallInput> inputs);
  // The packed form of the step's weight: a kept copy, or one made for this use.
  Result<const void*> packedOrStreamed(size_t step, uint32_t view, std::span<const CallInput> inputs);
  // `b`: the value that the primitive may want packed.
  Status runLibraryCall(size_t step, primitives::Primitive::Arguments arguments, uint32_t b,
                        const std::vector<std::unique_ptr<plan::PostOpT>>& post_ops, std::span<const CallInput> inputs);
  Status runAtenCall(size_t step, const plan::AtenCallT& call, std::span<const CallInput> inputs);
  Status takeResult(uint32_t value, AtenResult& result);
  Status runCopy(size_t step, const plan::CopyT& copy);
  Result<std::vector<CallOutput>> collectOutputs();
  void releaseExternals();

  std::byte* address(uint32_t value) const {
    const BoundValue& bound = binding_->values[value];
    return base_[bound.buffer] + bound.offset_bytes;
  }
  std::byte* deviceAddress(uint32_t value) const {
    const BoundValue& bound = binding_->values[value];
    return gpu_->address(bound.buffer) + bound.offset_bytes;
  }

  Shared& shared_;
  std::shared_ptr<const Binding> binding_;
  HostMemory arena_, scratch_;
  HostMemory streamed_;                                 // a weight packed for one use
  std::vector<std::byte*> base_;                        // by buffer
  std::vector<void*> owners_;                           // by buffer: of external buffers alive now
  std::unique_ptr<std::vector<LaunchState>> launches_;  // by step; on the heap, to be left there with a lost device
  std::vector<LibraryState> library_states_;
  std::vector<AtenArguments> aten_arguments_;
  std::optional<ze::CommandList> list_;
  std::unique_ptr<DeviceSide> gpu_;  // in a plan for a GPU
  std::optional<KeptWeights> kept_;  // in a plan for the CPU that makes something of parameters alone
  KeptWeights::Use use_of_kept_ = KeptWeights::Use::none;
  bool has_kernels_ = false;  // requireKernels found all for this binding
  bool packed_ = false;       // packWeights found or made all copies for this binding
  uint32_t status_word_ = 0;
  Counters::OfCall counted_;
};

}  // namespace zefuse::executor
