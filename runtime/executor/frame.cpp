#include "runtime/executor/frame.h"

#include <algorithm>
#include <utility>

namespace zefuse::executor {

Frame::Frame(Shared& shared)
    : shared_(shared), base_(shared.program.plan.buffers.size()), owners_(shared.program.plan.buffers.size()),
      launches_(std::make_unique<std::vector<LaunchState>>(shared.program.plan.steps.size())),
      library_states_(shared.program.plan.steps.size()), aten_arguments_(shared.program.plan.steps.size()) {
  if (!shared.gpu && std::ranges::count(shared.program.derived, true) > 0)
    kept_.emplace(shared.program);
}

Frame::~Frame() {
  releaseExternals();
  // What a lost device may still use is never freed.
  if (gpu_ && shared_.gpu->device->isLost()) {
    (void)gpu_.release();
    (void)launches_.release();
  }
}

Status Frame::bind(std::shared_ptr<const Binding> binding) {
  binding_.reset();  // not bound if anything below fails
  packed_ = false;
  for (AtenArguments& arguments : aten_arguments_)
    arguments.clear();
  if (shared_.program.host_steps || (shared_.gpu && shared_.gpu->device->zeroCopy()))
    ZEFUSE_RETURN_IF_ERROR(arena_.reserve(binding->arena_bytes));
  ZEFUSE_RETURN_IF_ERROR(scratch_.reserve(binding->scratch_bytes));
  const plan::PlanT& plan = shared_.program.plan;
  for (size_t i = 0; i < plan.buffers.size(); ++i)
    if (plan.buffers[i]->storage == plan::Storage::arena)
      base_[i] = arena_.data() + binding->arena_offset[i];
  shared_.counters.atLeast(shared_.counters.arena_bytes, binding->arena_bytes);
  if (!list_ && shared_.modules->host()) {
    auto list = ze::CommandList::createImmediate(*shared_.modules->host(), ze::Execution::synchronous);
    if (!list.ok())
      return list.status();
    list_ = std::move(*list);
  }
  if (shared_.gpu) {
    if (!gpu_) {
      auto gpu = DeviceSide::create(*shared_.gpu, shared_.program, base_);
      if (!gpu.ok())
        return gpu.status();
      gpu_ = std::move(*gpu);
    }
    ZEFUSE_RETURN_IF_ERROR(gpu_->bind(*binding));
  }
  has_kernels_ = !gpu_;
  binding_ = std::move(binding);
  return {};
}

Status Frame::requireKernels() {
  has_kernels_ = !shared_.modules->isPartial();
  if (has_kernels_)
    return {};
  std::vector<size_t> needed;
  for (size_t step = 0; step < shared_.program.plan.steps.size(); ++step)
    if (const auto* product = shared_.program.plan.steps[step]->kind.AsGroupedMatmul(); product && product->kernel)
      needed.push_back(product->kernel->module_);
    else if (const plan::LaunchT* launch = shared_.program.plan.steps[step]->kind.AsLaunch())
      if (binding_->launches[step].groups > 0 && !gpu_->product(step) && !gpu_->convolution(step))
        needed.push_back(launch->module_);
  const Status status = shared_.modules->require(needed);
  has_kernels_ = status.ok();
  return status;
}

void Frame::forgetWeights() {
  for (LibraryState& state : library_states_)
    state.packed.reset();
  if (kept_)
    kept_->forget();
}

Result<std::vector<CallOutput>> Frame::run(std::span<const CallInput> inputs, const AllocateOutput& allocate,
                                           StepObserver* observer, const CallPlace& place) {
  counted_ = {};
  try {
    Status status = prepare(inputs, allocate, place);
    if (status.ok() && kept_)
      takeKept(inputs);
    if (status.ok() && !packed_)
      status = packWeights(inputs);
    if (status.ok())
      status = runSteps(inputs, observer);
    if (gpu_ && !status.ok())
      gpu_->settle(status);  // the first failure is the one to tell of
    Result<std::vector<CallOutput>> outputs = status.ok() ? collectOutputs() : Result<std::vector<CallOutput>>(status);
    releaseExternals();
    shared_.counters.add(counted_);
    return outputs;
  } catch (...) {  // no memory, or what `allocate` and ATen throw
    if (gpu_)
      gpu_->settle({});
    releaseExternals();
    throw;
  }
}

Status Frame::prepare(std::span<const CallInput> inputs, const AllocateOutput& allocate, const CallPlace& place) {
  const plan::PlanT& plan = shared_.program.plan;
  if (!has_kernels_) [[unlikely]]
    ZEFUSE_RETURN_IF_ERROR(requireKernels());
  if (gpu_)
    ZEFUSE_RETURN_IF_ERROR(gpu_->takePlaces(inputs, place));
  else if (place.results == Place::device)
    return {Code::unsupported, "the results are wanted on a device, and the plan is for the CPU"};
  else
    for (size_t i = 0; i < inputs.size(); ++i)
      if (inputs[i].is_tensor && inputs[i].tensor.place == Place::device)
        return {Code::unsupported, "input " + std::to_string(i) + " '" + plan.inputs[i]->name +
                                       "' lies on a device, and the plan is for the CPU"};
  for (size_t i = 0; i < plan.buffers.size(); ++i)
    if (plan.buffers[i]->storage == plan::Storage::input)
      base_[i] = static_cast<std::byte*>(inputs[plan.buffers[i]->index].tensor.data);
  for (size_t number = 0; number < shared_.program.output_buffers.size(); ++number) {
    const uint32_t buffer = shared_.program.output_buffers[number];
    const size_t bytes = binding_->buffer_bytes[buffer];
    Result<void*> memory = allocate({number, bytes, place.results});
    if (!memory.ok())
      return memory.status();
    if (!*memory && bytes > 0)
      return {Code::out_of_memory,
              "no memory for output buffer " + std::to_string(number) + " of " + std::to_string(bytes) + " bytes"};
    base_[buffer] = static_cast<std::byte*>(*memory);
  }
  return {};
}

Status Frame::runSteps(std::span<const CallInput> inputs, StepObserver* observer) {
  const plan::PlanT& plan = shared_.program.plan;
  const bool timed = shared_.timer.on();
  if (gpu_) {
    ZEFUSE_RETURN_IF_ERROR(gpu_->begin(inputs, counted_, timed));
    if (gpu_->mustDerive())
      ZEFUSE_RETURN_IF_ERROR(gpu_->derive([&](size_t step) -> Status {
        const Status status = runStep(step, inputs);
        return status.ok() ? status
                           : Status(status.code(), plan::stepOfProgram(shared_.program, step) + ": " + status.message(),
                                    status.place());
      }));
    else if (gpu_->keeps())
      counted_.weight_packs_reused += uint64_t(std::ranges::count(shared_.program.derived, true));
    if (gpu_->replays())
      return gpu_->finish();
  }
  const bool leaves_out = gpu_ ? gpu_->keeps() : use_of_kept_ == KeptWeights::Use::reuse;
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    if (leaves_out && shared_.program.derived[i])
      continue;
    StepTimer::Moment start;
    if (timed) [[unlikely]]
      start = StepTimer::now();
    if (gpu_)
      ZEFUSE_RETURN_IF_ERROR(gpu_->before(i));
    if (observer) [[unlikely]]
      observer->begin(i);
    const Status status = runStep(i, inputs);
    if (observer) [[unlikely]]
      observer->end();
    if (timed) [[unlikely]] {
      if (gpu_)  // what is only queued has no time yet
        ZEFUSE_RETURN_IF_ERROR(gpu_->wait());
      shared_.timer.add(i, start);
    }
    if (!status.ok()) [[unlikely]]
      return {status.code(), plan::stepOfProgram(shared_.program, i) + ": " + status.message(), status.place()};
    if (gpu_)
      gpu_->after(i);
    // A GPU that works in the host's memory may have yet to read it: released at the end then.
    if (gpu_ && shared_.program.on_device[i] && shared_.gpu->device->zeroCopy())
      continue;
    for (uint32_t buffer : shared_.program.released_after[i])
      if (void* owner = std::exchange(owners_[buffer], nullptr))
        shared_.aten.bridge()->release(owner);
  }
  if (use_of_kept_ != KeptWeights::Use::none)
    countKept();
  return gpu_ ? gpu_->finish() : Status();
}

Result<std::vector<CallOutput>> Frame::collectOutputs() {
  const plan::PlanT& plan = shared_.program.plan;
  std::vector<CallOutput> outputs(plan.outputs.size());
  Status status;
  for (size_t i = 0; i < plan.outputs.size() && status.ok(); ++i) {
    const plan::OutputT& output = *plan.outputs[i];
    CallOutput& out = outputs[i];
    if (output.kind == plan::OutputKind::none)
      continue;
    if (output.kind == plan::OutputKind::integer) {
      out.kind = CallOutput::Kind::integer;
      out.integer = binding_->exprs[output.value];
      continue;
    }
    const BoundValue& value = binding_->values[output.value];
    const plan::BufferT& buffer = *plan.buffers[value.buffer];
    out.dtype = value.dtype;
    out.sizes.assign(value.sizes.begin(), value.sizes.end());
    out.strides.assign(value.strides.begin(), value.strides.end());
    out.offset = value.offset;
    out.index = buffer.index;
    switch (buffer.storage) {
    case plan::Storage::output: out.kind = CallOutput::Kind::output_buffer; break;
    case plan::Storage::input: out.kind = CallOutput::Kind::input; break;
    case plan::Storage::external: {
      // The caller owns what it gets, so each output that views the buffer needs a handle of its
      // own; all handles are the whole result, whose first element `offset` counts from.
      const BoundValue& whole = binding_->values[shared_.program.buffers[value.buffer].produced_value];
      TensorRef tensor;
      tensor.data = base_[value.buffer];
      tensor.owner = owners_[value.buffer];
      tensor.dtype = whole.dtype;
      tensor.sizes = whole.sizes;
      tensor.strides = whole.strides;
      const bool last =
          std::none_of(plan.outputs.begin() + ptrdiff_t(i) + 1, plan.outputs.end(), [&](const auto& other) {
            return other->kind == plan::OutputKind::tensor && plan.values[other->value]->buffer == value.buffer;
          });
      if (last) {
        out.owner = std::exchange(owners_[value.buffer], nullptr);
      } else if (auto alias = shared_.aten.alias(tensor); alias.ok()) {
        out.owner = alias->owner;
      } else {
        status = alias.status();
        break;
      }
      out.kind = CallOutput::Kind::external;
      break;
    }
    case plan::Storage::arena: break;  // refused by the plan's check
    }
  }
  if (status.ok())
    return outputs;
  for (const CallOutput& out : outputs)
    if (out.owner)
      shared_.aten.bridge()->release(out.owner);
  return status;
}

void Frame::releaseExternals() {
  for (void*& owner : owners_)
    if (owner)
      shared_.aten.bridge()->release(std::exchange(owner, nullptr));
}

}  // namespace zefuse::executor
