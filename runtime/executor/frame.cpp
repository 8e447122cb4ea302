#include "runtime/executor/frame.h"

#include "runtime/executor/library_convolutions.h"

#include <algorithm>
#include <cstring>

#include "common/base/number_list.h"
#include "common/plan/dtype.h"
#include "common/plan/recurrence.h"
#include "runtime/executor/strided_copy.h"
#include "runtime/onednn/grouped_matmul.h"
#include "runtime/onednn/team.h"

namespace zefuse::executor {
namespace {

// Dimensions of one element have no stride to speak of.
bool sameStrides(std::span<const int64_t> sizes, std::span<const int64_t> a, std::span<const int64_t> b) {
  if (std::find(sizes.begin(), sizes.end(), 0) != sizes.end())
    return true;
  for (size_t i = 0; i < sizes.size(); ++i)
    if (sizes[i] != 1 && a[i] != b[i])
      return false;
  return true;
}

}  // namespace

Frame::Frame(Shared& shared)
    : shared_(shared), base_(shared.program.plan.buffers.size()), owners_(shared.program.plan.buffers.size()),
      launches_(std::make_unique<std::vector<LaunchState>>(shared.program.plan.steps.size())),
      library_states_(shared.program.plan.steps.size()), aten_arguments_(shared.program.plan.steps.size()) {}

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
}

Result<std::vector<CallOutput>> Frame::run(std::span<const CallInput> inputs, const AllocateOutput& allocate,
                                           StepObserver* observer, const CallPlace& place) {
  counted_ = {};
  try {
    Status status = prepare(inputs, allocate, place);
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

Status Frame::runStep(size_t step, std::span<const CallInput> inputs) {
  const plan::StepKindUnion& kind = shared_.program.plan.steps[step]->kind;
  switch (kind.type) {
  case plan::StepKind::Launch: return runLaunch(step, *kind.AsLaunch());
  case plan::StepKind::Matmul: return runMatmul(step, *kind.AsMatmul(), inputs);
  case plan::StepKind::Convolution: return runConvolution(step, *kind.AsConvolution(), inputs);
  case plan::StepKind::Attention: return runAttention(step, *kind.AsAttention());
  case plan::StepKind::Recurrence: return runRecurrence(step, *kind.AsRecurrence(), inputs);
  case plan::StepKind::GroupedMatmul: return runGroupedMatmul(step, *kind.AsGroupedMatmul());
  case plan::StepKind::AtenCall: return runAtenCall(step, *kind.AsAtenCall(), inputs);
  case plan::StepKind::Copy: return runCopy(step, *kind.AsCopy());
  case plan::StepKind::NONE: return {};
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
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    if (gpu_ && gpu_->keeps() && shared_.program.derived[i])
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
  return gpu_ ? gpu_->finish() : Status();
}

Status Frame::makeKernel(size_t step, const plan::LaunchT& launch, LaunchState& state) {
  const plan::KernelModuleT& module = *shared_.program.plan.modules[launch.module_];
  auto kernel = ze::Kernel::create(shared_.modules->module(launch.module_), module.entry.c_str());
  if (!kernel.ok())
    return {kernel.status().code(), "entry point '" + module.entry + "': " + kernel.status().message()};
  const size_t count = launch.args.size() + !launch.checks.empty() + plan::hasScratch(shared_.program.plan, launch) +
                       launch.symbols.size();
  // A missing argument would be an address nobody chose.
  if (kernel->argumentCount() != count)
    return {Code::damaged, "entry point '" + module.entry + "' takes " + std::to_string(kernel->argumentCount()) +
                               " arguments and the plan passes " + std::to_string(count)};
  uint32_t group[3] = {1, 1, 1};
  std::copy(launch.group_size.begin(), launch.group_size.end(), group);
  ZEFUSE_RETURN_IF_ERROR(kernel->setGroupSize(group[0], group[1], group[2]));
  state.arguments.assign(count, 0);
  state.set = false;
  state.kernel = std::move(*kernel);
  return {};
}

Status Frame::runLaunch(size_t step, const plan::LaunchT& launch) {
  const BoundLaunch& bound = binding_->launches[step];
  if (bound.groups == 0)
    return {};
  if (gpu_ && gpu_->product(step)) {
    const plan::MatmulT& library = *launch.library;
    ++counted_.library_calls;
    return gpu_->multiply(step, {deviceAddress(library.a), deviceAddress(library.b),
                                 library.bias >= 0 ? deviceAddress(uint32_t(library.bias)) : nullptr,
                                 deviceAddress(library.out), nullptr});
  }
  if (gpu_ && gpu_->convolution(step)) {
    const plan::ConvolutionT& library = *launch.library_convolution;
    ++counted_.library_calls;
    const void* residual = nullptr;
    for (const auto& op : library.post_ops)
      if (op->operand >= 0)
        residual = deviceAddress(uint32_t(op->operand));
    return gpu_->convolve(step,
                          libraryOperands(library.kind, deviceAddress(library.input), deviceAddress(library.weight),
                                          library.bias >= 0 ? deviceAddress(uint32_t(library.bias)) : nullptr, residual,
                                          deviceAddress(library.out)));
  }
  LaunchState& state = (*launches_)[step];
  if (!state.kernel) [[unlikely]]
    ZEFUSE_RETURN_IF_ERROR(makeKernel(step, launch, state));

  const bool on_device = shared_.program.on_device[step];
  uint32_t index = 0;
  auto pass = [&](uint64_t argument) -> Status {
    const uint32_t at = index++;
    if (state.set && state.arguments[at] == argument)
      return {};
    state.arguments[at] = argument;
    return state.kernel->setArgument(at, sizeof argument, &argument);
  };
  auto passAll = [&]() -> Status {
    for (uint32_t value : launch.args)
      ZEFUSE_RETURN_IF_ERROR(pass(reinterpret_cast<uint64_t>(on_device ? deviceAddress(value) : address(value))));
    if (!launch.checks.empty())
      ZEFUSE_RETURN_IF_ERROR(pass(reinterpret_cast<uint64_t>(on_device ? gpu_->statusWord(step) : &status_word_)));
    if (plan::hasScratch(shared_.program.plan, launch))
      ZEFUSE_RETURN_IF_ERROR(pass(reinterpret_cast<uint64_t>(on_device ? gpu_->scratch() : scratch_.data())));
    for (int64_t symbol : bound.symbols)
      ZEFUSE_RETURN_IF_ERROR(pass(uint64_t(symbol)));
    return {};
  };
  const Status passed = passAll();
  state.set = passed.ok();  // after a failure nobody knows what the handle holds
  ZEFUSE_RETURN_IF_ERROR(passed);

  if (on_device) {
    ++counted_.launches;
    return gpu_->launch(step, *state.kernel, bound.groups);
  }
  status_word_ = 0;
  ZEFUSE_RETURN_IF_ERROR(list_->launch(*state.kernel, bound.groups));
  ++counted_.launches;
  // Checked here and not at the end: a later step must not see what a failed check left behind.
  if (launch.checks.empty())
    return {};
  const uint32_t failed = *static_cast<volatile uint32_t*>(&status_word_);
  return failed == 0 ? Status() : plan::checkFailed(launch, failed);
}

Status Frame::runMatmul(size_t step, const plan::MatmulT& matmul, std::span<const CallInput> inputs) {
  onednn::Primitive::Arguments arguments{};
  arguments.a = address(matmul.a);
  arguments.bias = matmul.bias >= 0 ? address(uint32_t(matmul.bias)) : nullptr;
  arguments.out = address(matmul.out);
  return runLibraryCall(step, arguments, matmul.b, matmul.post_ops, inputs);
}

Status Frame::runConvolution(size_t step, const plan::ConvolutionT& convolution, std::span<const CallInput> inputs) {
  onednn::Primitive::Arguments arguments{};
  arguments.a = address(convolution.input);
  arguments.bias = convolution.bias >= 0 ? address(uint32_t(convolution.bias)) : nullptr;
  arguments.out = address(convolution.out);
  return runLibraryCall(step, arguments, convolution.weight, convolution.post_ops, inputs);
}

Status Frame::runAttention(size_t step, const plan::AttentionT& attention) {
  const void* value = address(attention.value);
  onednn::Primitive::Arguments arguments{};
  arguments.a = address(attention.query);
  arguments.b = address(attention.key);
  arguments.out = address(attention.out);
  arguments.post_op_operands = {&value, 1};
  arguments.scratch = scratch_.data();
  ++counted_.library_calls;
  return binding_->library_calls[step].primitive->run(arguments);
}

Status Frame::runGroupedMatmul(size_t step, const plan::GroupedMatmulT& product) {
  const auto& groups = static_cast<const onednn::GroupedMatmul&>(*binding_->library_calls[step].primitive);
  const BoundValue &offsets = binding_->values[product.offsets], &matrices = binding_->values[product.b];
  const auto* ends = reinterpret_cast<const int32_t*>(address(product.offsets));
  onednn::Primitive::Arguments arguments{};
  arguments.a = address(product.a);
  arguments.out = address(product.out);
  arguments.scratch = scratch_.data();
  int64_t first = 0;
  for (int64_t group = 0; group < offsets.sizes[0]; ++group) {
    const int64_t end = ends[group * offsets.strides[0]];
    if (end < first || end > groups.rows())
      return {Code::invalid_argument, "group " + std::to_string(group) + " of rows ends at " + std::to_string(end) +
                                          ", not between " + std::to_string(first) + " and " +
                                          std::to_string(groups.rows())};
    if (end == first)
      continue;
    if (product.kernel) {
      *reinterpret_cast<int64_t*>(address(uint32_t(product.index))) = group;
      ZEFUSE_RETURN_IF_ERROR(runLaunch(step, *product.kernel));
      arguments.b = address(product.b);
    } else {
      arguments.b = address(product.b) + group * matrices.strides[0] * int64_t(plan::elementSize(matrices.dtype));
    }
    ++counted_.library_calls;
    ZEFUSE_RETURN_IF_ERROR(groups.runGroup(arguments, first, end - first));
    first = end;
  }
  return {};
}

Status Frame::runRecurrence(size_t step, const plan::RecurrenceT& recurrence, std::span<const CallInput> inputs) {
  LibraryState& state = library_states_[step];
  const uint32_t weight =
      recurrence.operands[plan::arityOf(recurrence.cell, recurrence.gradient, recurrence.packed).weight];
  onednn::Primitive::Arguments arguments{};
  Result<const void*> packed = packedOrStreamed(step, weight, inputs);
  if (!packed.ok())
    return packed.status();
  arguments.b = *packed;
  state.operands.clear();
  for (uint32_t operand : recurrence.operands)
    state.operands.push_back(address(operand));
  state.results.clear();
  for (int32_t result : recurrence.results)
    state.results.push_back(result >= 0 ? address(uint32_t(result)) : nullptr);
  arguments.operands = state.operands;
  arguments.results = state.results;
  arguments.scratch = scratch_.data();
  ++counted_.library_calls;
  return binding_->library_calls[step].primitive->run(arguments);
}

Status Frame::packFor(size_t step, uint32_t view, const void* b, std::span<const CallInput> inputs,
                      Counters::OfCall& counted) {
  const BoundLibraryCall& bound = binding_->library_calls[step];
  const size_t number = size_t(bound.packed_input);
  LibraryState& state = library_states_[step];
  const bool asked = std::exchange(state.asked, false);
  if (asked && !state.packed)
    return {};
  const TensorRef& weight = inputs[number].tensor;
  const BoundInput& shape = binding_->inputs[number];
  const size_t bytes =
      size_t(*reach(shape.sizes, shape.strides)) * plan::elementSize(shared_.program.plan.inputs[number]->dtype);
  const WeightStamp stamp{weight.data, weight.version, fingerprint(weight.data, bytes), shared_.weights.generation()};
  if (state.packed && state.packed->stamp == stamp && state.packer == bound.primitive) {
    counted.weight_packs_reused += !asked;
    return {};
  }
  state.packed.reset();  // its memory may serve again
  auto packed =
      shared_.weights.get(uint32_t(bound.packed_input), binding_->values[view], b, stamp, bound.primitive, counted);
  if (!packed.ok())
    return packed.status();
  state.packed = std::move(*packed);
  state.packer = bound.primitive;
  return {};
}

// The copies that are kept all at once, each by one thread: one after the other by the whole team, threads wait for
// each other at every page that is touched for the first time. (MiniLM's 42 MB: 12 ms, 7 so.)
Status Frame::packWeights(std::span<const CallInput> inputs) {
  const plan::PlanT& plan = shared_.program.plan;
  struct Weight {
    size_t step;
    uint32_t view;
    size_t bytes;
  };
  std::vector<Weight> weights;
  size_t total = 0;
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    const BoundLibraryCall& bound = binding_->library_calls[i];
    // One that the plan writes is packed when its step comes.
    if (bound.packed_input < 0 || plan.inputs[size_t(bound.packed_input)]->written || library_states_[i].packed)
      continue;
    const plan::StepKindUnion& kind = plan.steps[i]->kind;
    uint32_t view;
    if (const auto* matmul = kind.AsMatmul())
      view = matmul->b;
    else if (const auto* convolution = kind.AsConvolution())
      view = convolution->weight;
    else if (const auto* recurrence = kind.AsRecurrence())
      view = recurrence->operands[plan::arityOf(recurrence->cell, recurrence->gradient, recurrence->packed).weight];
    else
      continue;  // no other call packs anything
    weights.push_back({i, view, bound.primitive->packedBytes()});
    total += weights.back().bytes;
  }
  const size_t lanes = size_t(std::max(1, onednn::maxThreads()));
  std::vector<std::vector<Weight>> of_lane(lanes);
  size_t before = 0;
  for (const Weight& weight : weights) {
    of_lane[std::min(lanes - 1, before * lanes / std::max<size_t>(total, 1))].push_back(weight);
    before += weight.bytes;
  }
  std::vector<Status> statuses(lanes);
  std::vector<Counters::OfCall> counted(lanes);
  onednn::overTeam(int64_t(lanes), 1, [&](int64_t begin, int64_t end) {
    for (size_t lane = size_t(begin); lane < size_t(end); ++lane)
      for (const Weight& weight : of_lane[lane]) {
        statuses[lane] = packFor(weight.step, weight.view, address(weight.view), inputs, counted[lane]);
        if (!statuses[lane].ok())
          break;
        library_states_[weight.step].asked = true;
      }
  });
  for (const Counters::OfCall& each : counted) {
    counted_.weights_packed += each.weights_packed;
    counted_.weight_packs_reused += each.weight_packs_reused;
  }
  for (Status& status : statuses)
    ZEFUSE_RETURN_IF_ERROR(status);
  size_t streamed_bytes = 0;
  for (const Weight& weight : weights)
    if (!library_states_[weight.step].packed)
      streamed_bytes = std::max(streamed_bytes, weight.bytes);
  packed_ = streamed_bytes == 0;
  if (packed_)
    streamed_ = {};
  return streamed_.reserve(streamed_bytes);
}

Result<const void*> Frame::packedOrStreamed(size_t step, uint32_t view, std::span<const CallInput> inputs) {
  const BoundLibraryCall& bound = binding_->library_calls[step];
  const void* weight = address(view);
  if (bound.packed_input >= 0) {
    ZEFUSE_RETURN_IF_ERROR(packFor(step, view, weight, inputs, counted_));
    if (const auto& packed = library_states_[step].packed)
      return static_cast<const void*>(packed->memory.data());
  }
  ZEFUSE_RETURN_IF_ERROR(streamed_.reserve(bound.primitive->packedBytes()));
  ZEFUSE_RETURN_IF_ERROR(bound.primitive->packB(weight, streamed_.data()));
  ++counted_.weights_streamed;
  return static_cast<const void*>(streamed_.data());
}

Status Frame::runLibraryCall(size_t step, onednn::Primitive::Arguments arguments, uint32_t b,
                             const std::vector<std::unique_ptr<plan::PostOpT>>& post_ops,
                             std::span<const CallInput> inputs) {
  const BoundLibraryCall& bound = binding_->library_calls[step];
  LibraryState& state = library_states_[step];
  arguments.b = address(b);
  if (bound.packed_input >= 0) {
    Result<const void*> packed = packedOrStreamed(step, b, inputs);
    if (!packed.ok())
      return packed.status();
    arguments.b = *packed;
  }
  state.operands.clear();
  for (const auto& op : post_ops)
    state.operands.push_back(op->operand >= 0 ? address(uint32_t(op->operand)) : nullptr);
  arguments.post_op_operands = state.operands;
  arguments.scratch = scratch_.data();
  ++counted_.library_calls;
  return bound.primitive->run(arguments);
}

Status Frame::runAtenCall(size_t step, const plan::AtenCallT& call, std::span<const CallInput> inputs) {
  AtenArguments& arguments = aten_arguments_[step];
  if (!arguments.built())
    arguments.build(call, *binding_);
  const plan::PlanT& plan = shared_.program.plan;
  auto filled = arguments.fill([&](uint32_t value, TensorRef& tensor) {
    const uint32_t buffer = binding_->values[value].buffer;
    tensor.data = address(value);
    tensor.owner = nullptr;
    tensor.version = 0;
    if (plan.buffers[buffer]->storage == plan::Storage::external) {
      tensor.owner = owners_[buffer];
    } else if (plan.buffers[buffer]->storage == plan::Storage::input) {
      const TensorRef& input = inputs[plan.buffers[buffer]->index].tensor;
      tensor.owner = input.owner;
      tensor.version = input.version;
    }
  });
  auto results = shared_.aten.op(step).call(filled);
  ++counted_.aten_calls;
  if (!results.ok())
    return results.status();

  Status status;
  for (size_t i = 0; i < std::max(results->size(), call.outputs.size()); ++i) {
    const int32_t value = i < call.outputs.size() ? call.outputs[i] : -1;
    if (value >= 0 && status.ok()) {
      if (i >= results->size() || !(*results)[i].owner)
        status = {Code::unsupported, "result " + std::to_string(i) + " is no tensor"};
      else if (status = takeResult(uint32_t(value), (*results)[i]); !status.ok())
        status = {status.code(), "result " + std::to_string(i) + status.message()};
    }
    if (i < results->size() && (*results)[i].is_tensor && (*results)[i].owner)
      shared_.aten.bridge()->release((*results)[i].owner);
  }
  return status;
}

// Keeps the result as the external buffer it stands for, or copies it where its value lies. Sets
// result.owner to nullptr when it was kept.
Status Frame::takeResult(uint32_t value, AtenResult& result) {
  const BoundValue& bound = binding_->values[value];
  if (result.dtype != bound.dtype || !std::ranges::equal(result.sizes, bound.sizes))
    return {Code::unsupported, std::string(" has dtype ") + plan::dtypeName(result.dtype) + " and sizes " +
                                   numberList(result.sizes) + ", the plan expects " + plan::dtypeName(bound.dtype) +
                                   " and " + numberList(bound.sizes) +
                                   "; the operator's shape rule disagrees with its kernel"};
  const bool external = shared_.program.plan.buffers[bound.buffer]->storage == plan::Storage::external;
  if (external && sameStrides(bound.sizes, result.strides, bound.strides)) {
    base_[bound.buffer] = static_cast<std::byte*>(result.data);
    owners_[bound.buffer] = std::exchange(result.owner, nullptr);
    return {};
  }
  if (external) {
    auto fresh = shared_.aten.emptyStrided(bound);
    if (!fresh.ok())
      return {fresh.status().code(), ": " + fresh.status().message()};
    base_[bound.buffer] = static_cast<std::byte*>(fresh->data);
    owners_[bound.buffer] = fresh->owner;
  }
  stridedCopy(address(value), bound.strides, result.data, result.strides, bound.sizes, plan::elementSize(bound.dtype));
  ++counted_.copies;
  return {};
}

Status Frame::runCopy(size_t step, const plan::CopyT& copy) {
  const BoundValue& source = binding_->values[copy.source];
  const BoundValue& destination = binding_->values[copy.destination];
  ++counted_.copies;
  if (shared_.program.on_device[step])
    return source.elements == 0 ? Status()
                                : gpu_->copy(step, deviceAddress(copy.destination), deviceAddress(copy.source),
                                             size_t(source.elements) * plan::elementSize(source.dtype));
  stridedCopy(address(copy.destination), destination.strides, address(copy.source), source.strides, source.sizes,
              plan::elementSize(source.dtype));
  return {};
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
