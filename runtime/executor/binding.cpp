#include "runtime/executor/binding.h"

#include <algorithm>

#include "common/base/number_list.h"
#include "common/plan/dtype.h"
#include "common/plan/recurrence.h"
#include "runtime/executor/arena.h"
#include "runtime/executor/launch_order.h"
#include "runtime/executor/library_calls.h"
#include "runtime/executor/library_convolutions.h"
#include "runtime/executor/library_products.h"
#include "runtime/primitives/core/team.h"

namespace zefuse::executor {
namespace {

constexpr double grain_nanoseconds = 1500;  // what lowering counts as one (schedule/core/context.cpp, min_group_cost)
constexpr int64_t max_bytes = int64_t(1) << 47;  // the address space of a process

class Binder {
public:
  Binder(const plan::Program& program, Binding& binding) : program_(program), plan_(program.plan), binding_(binding) {}

  Status run() {
    reservePool();
    ZEFUSE_RETURN_IF_ERROR(sizeChecks());
    ZEFUSE_RETURN_IF_ERROR(inputs());
    ZEFUSE_RETURN_IF_ERROR(values());
    ZEFUSE_RETURN_IF_ERROR(arena());
    placeKept();
    if (plan::leavesHost(plan_))
      ZEFUSE_RETURN_IF_ERROR(placeOnDevice());
    binding_.launches.resize(plan_.steps.size());
    binding_.library_calls.resize(plan_.steps.size());
    for (size_t i = 0; i < plan_.steps.size(); ++i) {
      const plan::StepKindUnion& kind = plan_.steps[i]->kind;
      Status status;
      if (const auto* launch = kind.AsLaunch())
        status = bindLaunch(*launch, program_.on_device[i], binding_.launches[i]);
      else if (const auto* matmul = kind.AsMatmul())
        addMatmul(i, *matmul);
      else if (const auto* convolution = kind.AsConvolution())
        addConvolution(i, *convolution);
      else if (const auto* attention = kind.AsAttention())
        addAttention(i, *attention);
      else if (const auto* gradient = kind.AsAttentionGradient())
        addAttentionGradient(i, *gradient);
      else if (const auto* recurrence = kind.AsRecurrence())
        addRecurrence(i, *recurrence);
      else if (const auto* grouped = kind.AsGroupedMatmul())
        status = bindGroupedMatmul(i, *grouped);
      else if (const auto* copy = kind.AsCopy())
        status = bindCopy(*copy);
      else if (const auto* call = kind.AsAtenCall())
        status = bindAtenCall(*call);
      if (!status.ok())
        return inStep(i, status);
    }
    ZEFUSE_RETURN_IF_ERROR(bindLibraryCalls());
    for (const auto& output : plan_.outputs)
      if (output->kind == plan::OutputKind::integer)
        ZEFUSE_RETURN_IF_ERROR(value(output->value, "an integer output").status());
    return {};
  }

private:
  Status inStep(size_t step, const Status& status) const {
    return {status.code(), plan::stepName(plan_, step) + ": " + status.message(), status.place()};
  }

  // The spans in inputs and values point into the pool, so it must not grow afterwards.
  void reservePool() {
    size_t total = 0;
    for (const auto& input : plan_.inputs)
      total += 2 * input->sizes.size();
    for (const auto& value : plan_.values)
      total += 2 * value->sizes.size();
    binding_.pool.reserve(total);
  }

  Result<int64_t> value(uint32_t expr, const char* what) const {
    if (!binding_.exprs.valid(expr))
      return Status{Code::invalid_argument, std::string(what) + " has no value for symbols " +
                                                numberList(binding_.symbols) + " (overflow or division by zero)"};
    return binding_.exprs[expr];
  }

  Status sizeChecks() const {
    for (const auto& check : plan_.size_checks) {
      const Result<int64_t> least = value(check->value, "what a check of sizes looks at");
      if (!least.ok())
        return least.status();
      if (*least < 0)
        return plan::checkStatus(check->error, messageOf(*check));
    }
    return {};
  }

  std::string messageOf(const plan::SizeCheckT& check) const {
    std::string text = check.message;
    size_t from = 0;
    for (uint32_t expr : check.numbers) {
      const size_t at = text.find("{}", from);
      if (at == std::string::npos)
        break;
      const std::string number = binding_.exprs.valid(expr) ? std::to_string(binding_.exprs[expr]) : "?";
      text.replace(at, 2, number);
      from = at + number.size();
    }
    return check.source.empty() ? text : text + "\nof " + check.source;
  }

  Result<std::span<const int64_t>> evaluate(const std::vector<uint32_t>& exprs) {
    const size_t start = binding_.pool.size();
    for (uint32_t expr : exprs) {
      Result<int64_t> number = value(expr, "a size");
      if (!number.ok())
        return number.status();
      if (*number < 0)
        return Status{Code::invalid_argument, "a size or stride is negative (" + std::to_string(*number) +
                                                  ") for symbols " + numberList(binding_.symbols)};
      binding_.pool.push_back(*number);
    }
    return std::span<const int64_t>(binding_.pool.data() + start, exprs.size());
  }

  Status inputs() {
    binding_.inputs.resize(plan_.inputs.size());
    input_reach_.resize(plan_.inputs.size());
    for (size_t i = 0; i < plan_.inputs.size(); ++i) {
      const plan::InputT& input = *plan_.inputs[i];
      auto sizes = evaluate(input.sizes);
      if (!sizes.ok())
        return sizes.status();
      auto strides = evaluate(input.strides);
      if (!strides.ok())
        return strides.status();
      binding_.inputs[i] = {*sizes, *strides};
      ZEFUSE_RETURN_IF_ERROR(bytesOf(*sizes, *strides, 0, input.dtype, "input '" + input.name + "'", input_reach_[i]));
    }
    return {};
  }

  static Status bytesOf(std::span<const int64_t> sizes, std::span<const int64_t> strides, int64_t offset,
                        plan::DType dtype, const std::string& where, size_t& out) {
    const std::optional<int64_t> elements = reach(sizes, strides);
    int64_t end = 0;
    if (!elements || __builtin_add_overflow(*elements, offset, &end) ||
        __builtin_mul_overflow(end, int64_t(plan::elementSize(dtype)), &end) || end > max_bytes)
      return {Code::invalid_argument, where + " of sizes " + numberList(sizes) + " and strides " + numberList(strides) +
                                          " exceeds the address space"};
    out = *elements == 0 ? 0 : size_t(end);
    return {};
  }

  Status values() {
    binding_.values.resize(plan_.values.size());
    binding_.buffer_bytes.assign(plan_.buffers.size(), 0);
    for (size_t i = 0; i < plan_.values.size(); ++i) {
      const plan::ValueT& value = *plan_.values[i];
      const std::string where = "value " + std::to_string(i);
      BoundValue& bound = binding_.values[i];
      bound.buffer = value.buffer;
      bound.dtype = value.dtype;
      auto sizes = evaluate(value.sizes);
      if (!sizes.ok())
        return sizes.status();
      auto strides = evaluate(value.strides);
      if (!strides.ok())
        return strides.status();
      Result<int64_t> offset = this->value(value.offset, "an offset");
      if (!offset.ok())
        return offset.status();
      if (*offset < 0 || *offset > max_bytes)
        return {Code::invalid_argument, where + " has the offset " + std::to_string(*offset) + " in its buffer"};
      bound.sizes = *sizes;
      bound.strides = *strides;
      bound.offset = *offset;
      bound.offset_bytes = size_t(*offset) * plan::elementSize(value.dtype);
      bound.elements = 1;
      for (int64_t size : *sizes)
        if (__builtin_mul_overflow(bound.elements, size, &bound.elements))
          return {Code::invalid_argument, where + " has more than 2^63 elements"};
      size_t end = 0;
      ZEFUSE_RETURN_IF_ERROR(bytesOf(*sizes, *strides, *offset, value.dtype, where, end));
      // An empty value may start anywhere, but its pointer is still passed on: keep it inside.
      if (bound.elements == 0)
        bound.offset = 0, bound.offset_bytes = 0;
      const plan::BufferT& buffer = *plan_.buffers[value.buffer];
      size_t limit = SIZE_MAX;
      if (buffer.storage == plan::Storage::input) {
        limit = input_reach_[buffer.index];
      } else if (buffer.storage == plan::Storage::arena) {
        Result<int64_t> bytes = this->value(buffer.bytes, "a buffer's size");
        if (!bytes.ok())
          return bytes.status();
        limit = *bytes < 0 ? 0 : size_t(*bytes);
      }
      if (end > limit)
        return {Code::damaged, "plan: " + where + " of sizes " + numberList(*sizes) + ", strides " +
                                   numberList(*strides) + ", offset " + std::to_string(*offset) + " leaves buffer " +
                                   std::to_string(value.buffer) + " of " + std::to_string(limit) +
                                   " bytes; compile the model again"};
      size_t& bytes = binding_.buffer_bytes[value.buffer];
      bytes = std::max(bytes, end);
    }
    return {};
  }

  Status arena() {
    std::vector<ArenaBuffer> buffers;
    std::vector<uint32_t> numbers;
    int64_t total = 0;
    for (size_t i = 0; i < plan_.buffers.size(); ++i) {
      const plan::BufferT& buffer = *plan_.buffers[i];
      if (buffer.storage != plan::Storage::arena)
        continue;
      Result<int64_t> bytes = value(buffer.bytes, "a buffer's size");
      if (!bytes.ok())
        return bytes.status();
      if (*bytes < 0 || *bytes > max_bytes || (total += *bytes) > max_bytes)
        return {Code::invalid_argument, "the plan needs more memory than a process can address (" +
                                            std::to_string(*bytes) + " bytes for buffer " + std::to_string(i) + ")"};
      binding_.buffer_bytes[i] = size_t(*bytes);
      buffers.push_back({size_t(*bytes), buffer.first_step, buffer.last_step});
      numbers.push_back(uint32_t(i));
    }
    const ArenaLayout layout = placeBuffers(buffers);
    binding_.arena_bytes = layout.bytes;
    binding_.arena_offset.assign(plan_.buffers.size(), 0);
    for (size_t i = 0; i < numbers.size(); ++i)
      binding_.arena_offset[numbers[i]] = layout.offsets[i];
    return {};
  }

  // Buffers that the device touches, parameters apart: inputs come at the start, outputs and inputs with a
  // new value stay until the end.
  Status placeOnDevice() {
    std::vector<uint8_t> touched(plan_.buffers.size());                             // 1: on the host, 2: on the device
    std::vector<uint32_t> first(plan_.buffers.size()), last(plan_.buffers.size());  // steps that touch it
    for (uint32_t step = 0; step < plan_.steps.size(); ++step)
      for (const plan::Program::Touch& touch : program_.touches[step]) {
        if (!touched[touch.buffer])
          first[touch.buffer] = step;
        last[touch.buffer] = step;
        touched[touch.buffer] |= program_.on_device[step] ? 2 : 1;
      }
    DeviceLayout& layout = binding_.device;
    layout.offset.assign(plan_.buffers.size(), 0);
    layout.staging_offset.assign(plan_.buffers.size(), 0);
    std::vector<ArenaBuffer> buffers;
    std::vector<uint32_t> numbers;
    size_t total = 0;  // of which staging takes a part
    for (size_t i = 0; i < plan_.buffers.size(); ++i) {
      const plan::BufferT& buffer = *plan_.buffers[i];
      const bool input = buffer.storage == plan::Storage::input, output = buffer.storage == plan::Storage::output;
      if (!(touched[i] & 2) || program_.isUnwrittenParameter(buffer) || (program_.callers_places && (input || output)))
        continue;
      const size_t bytes = binding_.buffer_bytes[i];
      total += (bytes + arena_alignment - 1) / arena_alignment * arena_alignment;
      if (total > size_t(max_bytes))  // each is below it: no overflow
        return {Code::invalid_argument, "the plan needs more memory on its device than a process can address (" +
                                            std::to_string(bytes) + " bytes for buffer " + std::to_string(i) + ")"};
      const bool returned = output || (input && plan_.inputs[buffer.index]->written);
      buffers.push_back({bytes, input ? 0 : first[i], returned ? uint32_t(plan_.steps.size()) : last[i]});
      numbers.push_back(uint32_t(i));
      if (buffer.storage != plan::Storage::arena || touched[i] == 3) {
        layout.staging_offset[i] = layout.staging_bytes;
        layout.staging_bytes += (bytes + arena_alignment - 1) / arena_alignment * arena_alignment;
      }
    }
    const ArenaLayout placed = placeBuffers(buffers);
    layout.bytes = placed.bytes;
    for (size_t i = 0; i < numbers.size(); ++i)
      layout.offset[numbers[i]] = placed.offsets[i];
    layout.waits = launchesThatWait(program_, layout, binding_.buffer_bytes);
    return {};
  }

  void placeKept() {
    constexpr size_t small = size_t(16) << 20;  // bytes, of vectors, tables and masks
    KeptLayout& layout = binding_.kept;
    layout.offset.assign(plan_.buffers.size(), 0);
    std::vector<bool> read(plan_.buffers.size());
    for (size_t step = 0; step < plan_.steps.size(); ++step)
      if (program_.derived[step])
        for (const plan::Program::Touch& touch : program_.touches[step])
          read[touch.buffer] = true;
    size_t parameters = small;
    for (size_t i = 0; i < plan_.buffers.size(); ++i) {
      if (read[i] && program_.isUnwrittenParameter(*plan_.buffers[i]))
        parameters += binding_.buffer_bytes[i];
      // An empty one's address lies in the block as well, not behind it.
      if (!program_.kept[i] || binding_.buffer_bytes[i] == 0)
        continue;
      layout.offset[i] = layout.bytes;
      layout.bytes += (binding_.buffer_bytes[i] + arena_alignment - 1) / arena_alignment * arena_alignment;
    }
    if (layout.bytes > parameters)
      layout.bytes = 0;
  }

  Status bindLaunch(const plan::LaunchT& launch, bool on_device, BoundLaunch& bound) {
    Result<int64_t> extent = value(launch.extent, "the extent");
    if (!extent.ok())
      return extent.status();
    if (*extent < 0)
      return {Code::invalid_argument, "the extent is " + std::to_string(*extent)};
    const int64_t groups = *extent / launch.grain + (*extent % launch.grain != 0);
    if (launch.distribution == plan::Distribution::chunked) {
      const int threads = primitives::threadsWorth(double(groups) * grain_nanoseconds, std::max(1, binding_.threads));
      bound.groups = *extent == 0 ? 0 : uint32_t(std::clamp<int64_t>(groups, 1, threads));
    } else {
      if (groups > INT32_MAX)
        return {Code::unsupported, std::to_string(groups) + " work-groups in one launch"};
      bound.groups = uint32_t(groups);
    }
    Result<int64_t> per_group = value(launch.scratch_bytes, "the scratch memory");
    if (!per_group.ok())
      return per_group.status();
    size_t scratch = 0;
    if (*per_group < 0 || __builtin_mul_overflow(size_t(*per_group), size_t(bound.groups), &scratch) ||
        scratch > size_t(max_bytes))
      return {Code::invalid_argument,
              "the scratch memory of " + std::to_string(*per_group) + " bytes a group exceeds the address space"};
    for (uint32_t argument : launch.args)
      if (size_t offset = binding_.values[argument].offset_bytes; on_device && offset % buffer_alignment != 0)
        return {Code::damaged, "value " + std::to_string(argument) + " begins at byte " + std::to_string(offset) +
                                   " of its buffer, between the boundaries that kernels on a GPU count on"};
    size_t& needed = on_device ? binding_.device.scratch_bytes : binding_.scratch_bytes;
    needed = std::max(needed, scratch);
    for (uint32_t symbol : launch.symbols) {
      Result<int64_t> number = value(symbol, "a kernel's size argument");
      if (!number.ok())
        return number.status();
      bound.symbols.push_back(*number);
    }
    if (on_device && launch.library && bound.groups > 0)
      bound.product = libraryProduct(binding_, *launch.library, launch.library_work);
    if (on_device && launch.library_convolution && bound.groups > 0)
      bound.convolution = libraryConvolution(binding_, *launch.library_convolution, launch.library_work);
    return {};
  }

  Status bindCopy(const plan::CopyT& copy) {
    const BoundValue& source = binding_.values[copy.source];
    const BoundValue& destination = binding_.values[copy.destination];
    if (!std::ranges::equal(source.sizes, destination.sizes))
      return {Code::invalid_argument,
              "copies sizes " + numberList(source.sizes) + " into sizes " + numberList(destination.sizes)};
    return {};
  }

  Status bindAtenCall(const plan::AtenCallT& call) {
    for (int32_t index : call.outputs) {
      if (index < 0)
        continue;
      const BoundValue& result = binding_.values[size_t(index)];
      if (plan_.buffers[result.buffer]->storage != plan::Storage::external)
        continue;
      if (result.offset != 0)
        return {Code::damaged, "its result has the offset " + std::to_string(result.offset)};
      // Every view of the external buffer must stay within what this result covers.
      size_t made = 0;
      ZEFUSE_RETURN_IF_ERROR(bytesOf(result.sizes, result.strides, 0, result.dtype, "its result", made));
      if (binding_.buffer_bytes[result.buffer] > made)
        return {Code::damaged, "a view reaches byte " + std::to_string(binding_.buffer_bytes[result.buffer]) +
                                   " of its result of " + std::to_string(made) + " bytes"};
    }
    for (const auto& argument : call.args)
      ZEFUSE_RETURN_IF_ERROR(argumentIntegers(*argument));
    return {};
  }

  Status argumentIntegers(const plan::ArgumentT& argument) {
    if (argument.kind == plan::ArgumentKind::integer)
      return value(argument.value, "an integer argument").status();
    if (argument.kind == plan::ArgumentKind::formula)
      return value(argument.value, "a real argument").status();
    for (const auto& item : argument.items)
      ZEFUSE_RETURN_IF_ERROR(argumentIntegers(*item));
    return {};
  }

  primitives::TensorDesc describe(uint32_t index) const {
    const BoundValue& value = binding_.values[index];
    return {value.dtype, {value.sizes.begin(), value.sizes.end()}, {value.strides.begin(), value.strides.end()}};
  }

  void addMatmul(size_t step, const plan::MatmulT& matmul) {
    primitives::MatmulDesc desc;
    desc.a = describe(matmul.a);
    desc.b = describe(matmul.b);
    desc.out = describe(matmul.out);
    desc.alpha = matmul.alpha;
    desc.fpmath = matmul.bf16_math ? primitives::FpMath::bf16 : primitives::FpMath::strict;
    desc.way = matmul.way;
    if (matmul.bias >= 0)
      desc.bias = describe(uint32_t(matmul.bias));
    desc.post_ops = describe(matmul.post_ops);
    const Weight weight = weightBehind(matmul.b);
    desc.pack_b = bool(weight);
    addCall(step, std::move(desc), weight);
  }

  void addConvolution(size_t step, const plan::ConvolutionT& convolution) {
    primitives::ConvolutionDesc desc;
    desc.kind = convolution.kind;
    desc.input = describe(convolution.input);
    desc.weight = describe(convolution.weight);
    desc.out = describe(convolution.out);
    if (convolution.bias >= 0)
      desc.bias = describe(uint32_t(convolution.bias));
    desc.stride.assign(convolution.stride.begin(), convolution.stride.end());
    desc.padding.assign(convolution.padding.begin(), convolution.padding.end());
    desc.dilation.assign(convolution.dilation.begin(), convolution.dilation.end());
    desc.groups = convolution.groups;
    desc.way = convolution.way;
    desc.post_ops = describe(convolution.post_ops);
    const Weight weight = weightBehind(convolution.weight);
    desc.pack_weight = weight && desc.kind != plan::ConvolutionKind::weights;
    desc.weight_changes = !plan_.kept_weights;  // as those of training do
    addCall(step, std::move(desc), weight);
  }

  void addAttention(size_t step, const plan::AttentionT& attention) {
    primitives::AttentionDesc desc{describe(attention.query), describe(attention.key), describe(attention.value),
                                   describe(attention.out),   attention.scale,         attention.causal};
    if (attention.log_sums >= 0)
      desc.log_sums = describe(uint32_t(attention.log_sums));
    if (attention.mask >= 0)
      desc.mask = describe(uint32_t(attention.mask));
    addCall(step, std::move(desc), {});
  }

  void addAttentionGradient(size_t step, const plan::AttentionGradientT& gradient) {
    primitives::AttentionGradientDesc desc{describe(gradient.query),    describe(gradient.key),
                                           describe(gradient.value),    describe(gradient.gradient),
                                           describe(gradient.log_sums), describe(gradient.row_sums)};
    primitives::TensorDesc* results[] = {&desc.query_gradient, &desc.key_gradient, &desc.value_gradient};
    for (size_t i = 0; i < std::size(results); ++i)
      if (gradient.results[i] >= 0)
        *results[i] = describe(uint32_t(gradient.results[i]));
    desc.scale = gradient.scale;
    desc.causal = gradient.causal;
    addCall(step, std::move(desc), {});
  }

  Status bindGroupedMatmul(size_t step, const plan::GroupedMatmulT& product) {
    primitives::GroupedMatmulDesc desc{describe(product.a), describe(product.b), describe(product.out),
                                       product.bf16_math ? primitives::FpMath::bf16 : primitives::FpMath::strict};
    if (product.kernel) {
      ZEFUSE_RETURN_IF_ERROR(bindLaunch(*product.kernel, false, binding_.launches[step]));
    } else {
      const BoundValue &b = binding_.values[product.b], &offsets = binding_.values[product.offsets];
      if (b.sizes[0] != offsets.sizes[0])
        return {Code::invalid_argument, "has matrices of " + std::to_string(b.sizes[0]) + " groups and offsets of " +
                                            std::to_string(offsets.sizes[0])};
      desc.b.sizes.erase(desc.b.sizes.begin());
      desc.b.strides.erase(desc.b.strides.begin());
    }
    addCall(step, std::move(desc), {});
    return {};
  }

  void addRecurrence(size_t step, const plan::RecurrenceT& recurrence) {
    recurrence::RecurrenceDesc desc{
        recurrence.cell, recurrence.gradient, recurrence.reverse, recurrence.packed, {}, {}, recurrence.projected};
    for (uint32_t operand : recurrence.operands)
      desc.operands.push_back(describe(operand));
    for (int32_t result : recurrence.results)
      desc.results.push_back(result >= 0 ? describe(uint32_t(result)) : primitives::TensorDesc());
    const uint32_t weight = recurrence.operands[plan::arityOf(desc.cell, desc.gradient, desc.packed).weight];
    addCall(step, std::move(desc), weightBehind(weight));
  }

  std::vector<primitives::PostOpDesc> describe(const std::vector<std::unique_ptr<plan::PostOpT>>& post_ops) const {
    std::vector<primitives::PostOpDesc> described;
    for (const auto& op : post_ops) {
      primitives::PostOpDesc post{op->kind, std::nullopt};
      if (op->operand >= 0)
        post.operand = describe(uint32_t(op->operand));
      described.push_back(std::move(post));
    }
    return described;
  }

  // What lies behind a value that may be packed once: a parameter (its input), or what is kept of parameters (its
  // buffer).
  struct Weight {
    int32_t input = -1, kept = -1;
    explicit operator bool() const { return input >= 0 || kept >= 0; }
  };
  Weight weightBehind(uint32_t value) const {
    const uint32_t number = binding_.values[value].buffer;
    const plan::BufferT& buffer = *plan_.buffers[number];
    if (buffer.storage == plan::Storage::input && plan_.inputs[buffer.index]->kind == plan::InputKind::parameter)
      return {.input = int32_t(buffer.index)};
    if (program_.kept[number] && binding_.kept.bytes > 0 && !plan::leavesHost(plan_))
      return {.kept = int32_t(number)};
    return {};
  }

  void addCall(size_t step, CallDesc desc, Weight weight) {
    steps_of_calls_.push_back(step);
    weights_.push_back(weight);
    descs_.push_back(std::move(desc));
  }

  Status bindLibraryCalls() {
    auto primitives = getAll(descs_);  // checks that the shapes fit together
    for (size_t i = 0; i < primitives.size(); ++i) {
      if (!primitives[i].ok())
        return inStep(steps_of_calls_[i], primitives[i].status());
      BoundLibraryCall& bound = binding_.library_calls[steps_of_calls_[i]];
      bound.primitive = std::move(*primitives[i]);
      binding_.scratch_bytes = std::max(binding_.scratch_bytes, bound.primitive->scratchBytes());
      if (bound.primitive->packedBytes() > 0)
        bound.packed_input = weights_[i].input, bound.packed_kept = weights_[i].kept;
    }
    return {};
  }

  const plan::Program& program_;
  const plan::PlanT& plan_;
  Binding& binding_;
  std::vector<size_t> input_reach_;
  // The library calls: step, descriptor, and what lies behind what may be packed.
  std::vector<size_t> steps_of_calls_;
  std::vector<CallDesc> descs_;
  std::vector<Weight> weights_;
};

}  // namespace

std::optional<int64_t> reach(std::span<const int64_t> sizes, std::span<const int64_t> strides) {
  int64_t last = 0;
  for (int64_t size : sizes)
    if (size <= 0)
      return size == 0 ? std::optional<int64_t>(0) : std::nullopt;
  for (size_t i = 0; i < sizes.size(); ++i) {
    int64_t span;
    if (strides[i] < 0 || __builtin_mul_overflow(sizes[i] - 1, strides[i], &span) ||
        __builtin_add_overflow(last, span, &last))
      return std::nullopt;
  }
  return last == INT64_MAX ? std::nullopt : std::optional(last + 1);
}

Result<std::shared_ptr<const Binding>> Binding::make(const plan::Program& program, std::span<const int64_t> symbols,
                                                     int threads) {
  auto binding = std::make_shared<Binding>();
  binding->symbols.assign(symbols.begin(), symbols.end());
  binding->threads = threads;
  binding->exprs = plan::ExprValues(program.plan.exprs, symbols);
  ZEFUSE_RETURN_IF_ERROR(Binder(program, *binding).run());
  return std::shared_ptr<const Binding>(std::move(binding));
}

}  // namespace zefuse::executor
