// Frame's steps: how each kind runs, with the addresses and numbers of this call.
#include <algorithm>
#include <utility>

#include "common/base/number_list.h"
#include "common/plan/dtype.h"
#include "common/plan/recurrence.h"
#include "runtime/executor/frame.h"
#include "runtime/executor/library_convolutions.h"
#include "runtime/executor/strided_copy.h"
#include "runtime/primitives/matmul/grouped_matmul.h"

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

Status Frame::runStep(size_t step, std::span<const CallInput> inputs) {
  const plan::StepKindUnion& kind = shared_.program.plan.steps[step]->kind;
  switch (kind.type) {
  case plan::StepKind::Launch: return runLaunch(step, *kind.AsLaunch());
  case plan::StepKind::Matmul: return runMatmul(step, *kind.AsMatmul(), inputs);
  case plan::StepKind::Convolution: return runConvolution(step, *kind.AsConvolution(), inputs);
  case plan::StepKind::Attention: return runAttention(step, *kind.AsAttention());
  case plan::StepKind::AttentionGradient: return runAttentionGradient(step, *kind.AsAttentionGradient());
  case plan::StepKind::Recurrence: return runRecurrence(step, *kind.AsRecurrence(), inputs);
  case plan::StepKind::GroupedMatmul: return runGroupedMatmul(step, *kind.AsGroupedMatmul());
  case plan::StepKind::AtenCall: return runAtenCall(step, *kind.AsAtenCall(), inputs);
  case plan::StepKind::Copy: return runCopy(step, *kind.AsCopy());
  case plan::StepKind::NONE: return {};
  }
  return {};
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
  primitives::Primitive::Arguments arguments{};
  arguments.a = address(matmul.a);
  arguments.bias = matmul.bias >= 0 ? address(uint32_t(matmul.bias)) : nullptr;
  arguments.out = address(matmul.out);
  return runLibraryCall(step, arguments, matmul.b, matmul.post_ops, inputs);
}

Status Frame::runConvolution(size_t step, const plan::ConvolutionT& convolution, std::span<const CallInput> inputs) {
  primitives::Primitive::Arguments arguments{};
  arguments.a = address(convolution.input);
  arguments.bias = convolution.bias >= 0 ? address(uint32_t(convolution.bias)) : nullptr;
  arguments.out = address(convolution.out);
  return runLibraryCall(step, arguments, convolution.weight, convolution.post_ops, inputs);
}

Status Frame::runAttention(size_t step, const plan::AttentionT& attention) {
  const void* operands[] = {address(attention.value),
                            attention.mask >= 0 ? address(uint32_t(attention.mask)) : nullptr};
  primitives::Primitive::Arguments arguments{};
  arguments.a = address(attention.query);
  arguments.b = address(attention.key);
  arguments.out = address(attention.out);
  arguments.post_op_operands = operands;
  void* sums = attention.log_sums >= 0 ? address(uint32_t(attention.log_sums)) : nullptr;
  arguments.results = {&sums, 1};
  arguments.scratch = scratch_.data();
  ++counted_.library_calls;
  return binding_->library_calls[step].primitive->run(arguments);
}

Status Frame::runAttentionGradient(size_t step, const plan::AttentionGradientT& gradient) {
  const void* operands[] = {address(gradient.query),    address(gradient.key),      address(gradient.value),
                            address(gradient.gradient), address(gradient.log_sums), address(gradient.row_sums)};
  void* results[3];
  for (size_t i = 0; i < std::size(results); ++i)
    results[i] = gradient.results[i] >= 0 ? address(uint32_t(gradient.results[i])) : nullptr;
  primitives::Primitive::Arguments arguments{};
  arguments.operands = operands;
  arguments.results = results;
  arguments.scratch = scratch_.data();
  ++counted_.library_calls;
  return binding_->library_calls[step].primitive->run(arguments);
}

Status Frame::runGroupedMatmul(size_t step, const plan::GroupedMatmulT& product) {
  const auto& groups = static_cast<const primitives::GroupedMatmul&>(*binding_->library_calls[step].primitive);
  const BoundValue &offsets = binding_->values[product.offsets], &matrices = binding_->values[product.b];
  const auto* ends = reinterpret_cast<const int32_t*>(address(product.offsets));
  primitives::Primitive::Arguments arguments{};
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
  primitives::Primitive::Arguments arguments{};
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

Status Frame::runLibraryCall(size_t step, primitives::Primitive::Arguments arguments, uint32_t b,
                             const std::vector<std::unique_ptr<plan::PostOpT>>& post_ops,
                             std::span<const CallInput> inputs) {
  const BoundLibraryCall& bound = binding_->library_calls[step];
  LibraryState& state = library_states_[step];
  arguments.b = address(b);
  if (bound.packed_input >= 0 || bound.packed_kept >= 0) {
    Result<const void*> packed = packedOrStreamed(step, b, inputs);
    if (!packed.ok())
      return packed.status();
    arguments.b = *packed;
    arguments.b_given = *packed == address(b);
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

}  // namespace zefuse::executor
