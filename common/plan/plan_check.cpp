#include "common/plan/plan_check.h"

#include <algorithm>

#include "common/plan/expr_types.h"
#include "common/plan/recurrence.h"

namespace zefuse::plan {
namespace {

Status damaged(std::string message, std::source_location place = std::source_location::current()) {
  return {Code::damaged, std::move(message), place};
}

std::string number(size_t value) { return std::to_string(value); }

template <typename Enum> bool inRange(Enum value, Enum last) {
  return static_cast<uint8_t>(value) <= static_cast<uint8_t>(last);
}

}  // namespace

Status PlanCheck::run() {
  ZEFUSE_RETURN_IF_ERROR(exprs());
  ZEFUSE_RETURN_IF_ERROR(inputs());
  ZEFUSE_RETURN_IF_ERROR(symbols());
  ZEFUSE_RETURN_IF_ERROR(buffers());
  ZEFUSE_RETURN_IF_ERROR(values());
  ZEFUSE_RETURN_IF_ERROR(modules());
  ZEFUSE_RETURN_IF_ERROR(producers());
  ZEFUSE_RETURN_IF_ERROR(steps());
  ZEFUSE_RETURN_IF_ERROR(sizeChecks());
  return outputs();
}

Status PlanCheck::expr(uint32_t index, const std::string& where) const {
  if (index >= plan_.exprs.size())
    return damaged(where + " refers to expression " + number(index) + " of " + number(plan_.exprs.size()));
  if (plan::typeOf(plan_.exprs[index].op()).gives_real)
    return damaged(where + " refers to expression " + number(index) + ", which is a real number, for an integer");
  return {};
}

Status PlanCheck::shape(const std::vector<uint32_t>& sizes, const std::vector<uint32_t>& strides,
                        const std::string& where) const {
  if (sizes.size() != strides.size())
    return damaged(where + " has " + number(sizes.size()) + " sizes and " + number(strides.size()) + " strides");
  if (sizes.size() > max_rank)
    return damaged(where + " has " + number(sizes.size()) + " dimensions; at most " + number(max_rank) +
                   " are possible");
  for (uint32_t index : sizes)
    ZEFUSE_RETURN_IF_ERROR(expr(index, where));
  for (uint32_t index : strides)
    ZEFUSE_RETURN_IF_ERROR(expr(index, where));
  return {};
}

Status PlanCheck::exprs() {
  for (size_t i = 0; i < plan_.exprs.size(); ++i) {
    const plan::ExprNode& node = plan_.exprs[i];
    const std::string where = "expression " + number(i);
    if (!inRange(node.op(), plan::ExprOp::MAX))
      return damaged(where + " has the unknown operator " + number(size_t(node.op())));
    const plan::ExprType type = plan::typeOf(node.op());
    if (node.op() == plan::ExprOp::symbol) {
      if (node.value() < 0 || uint64_t(node.value()) >= plan_.symbols.size())
        return damaged(where + " refers to symbol " + std::to_string(node.value()) + " of " +
                       number(plan_.symbols.size()));
      continue;
    }
    for (int number = 0; number < type.operands; ++number) {
      const uint32_t operand = number == 0 ? node.lhs() : node.rhs();
      if (operand >= i)
        return damaged(where + " does not refer backwards");
      if (plan::typeOf(plan_.exprs[operand].op()).gives_real != type.takes_real)
        return damaged(where + " (" + plan::EnumNameExprOp(node.op()) + ") takes " +
                       (type.takes_real ? "real numbers, not an integer" : "integers, not a real number"));
    }
  }
  return {};
}

Status PlanCheck::inputs() {
  for (size_t i = 0; i < plan_.inputs.size(); ++i) {
    const plan::InputT& input = *plan_.inputs[i];
    const std::string where = "input " + number(i) + " '" + input.name + "'";
    if (!inRange(input.kind, plan::InputKind::MAX))
      return damaged(where + " has an unknown kind");
    if (!inRange(input.dtype, plan::DType::MAX))
      return damaged(where + " has an unknown dtype");
    ZEFUSE_RETURN_IF_ERROR(shape(input.sizes, input.strides, where));
  }
  return {};
}

Status PlanCheck::symbols() {
  for (size_t i = 0; i < plan_.symbols.size(); ++i) {
    const plan::SymbolT& symbol = *plan_.symbols[i];
    const std::string where = "symbol " + number(i) + " '" + symbol.name + "'";
    if (symbol.input >= plan_.inputs.size())
      return damaged(where + " is read from input " + number(symbol.input) + " of " + number(plan_.inputs.size()));
    const plan::InputT& input = *plan_.inputs[symbol.input];
    const bool number = input.kind == plan::InputKind::integer || input.kind == plan::InputKind::real;
    if (symbol.dim < -1 || (symbol.dim == -1) != number || (!number && size_t(symbol.dim) >= input.sizes.size()))
      return damaged(where + " is read from dimension " + std::to_string(symbol.dim) + " of input '" + input.name +
                     "', which has none such");
  }
  return {};
}

Status PlanCheck::sizeChecks() {
  for (size_t i = 0; i < plan_.size_checks.size(); ++i) {
    const plan::SizeCheckT& check = *plan_.size_checks[i];
    const std::string where = "size check " + number(i);
    if (!inRange(check.error, plan::ErrorClass::MAX))
      return damaged(where + " has an unknown class of error");
    ZEFUSE_RETURN_IF_ERROR(expr(check.value, where));
    for (uint32_t index : check.numbers)
      ZEFUSE_RETURN_IF_ERROR(expr(index, where));
  }
  return {};
}

Status PlanCheck::buffers() {
  const size_t outputs = size_t(std::count_if(plan_.buffers.begin(), plan_.buffers.end(), [](const auto& buffer) {
    return buffer->storage == plan::Storage::output;
  }));
  program_.buffers.resize(plan_.buffers.size());
  program_.output_buffers.assign(outputs, UINT32_MAX);
  for (size_t i = 0; i < plan_.buffers.size(); ++i) {
    const plan::BufferT& buffer = *plan_.buffers[i];
    const std::string where = "buffer " + number(i);
    switch (buffer.storage) {
    case plan::Storage::input:
      if (buffer.index >= plan_.inputs.size() || plan_.inputs[buffer.index]->kind == plan::InputKind::integer ||
          plan_.inputs[buffer.index]->kind == plan::InputKind::real ||
          plan_.inputs[buffer.index]->kind == plan::InputKind::unused)
        return damaged(where + " is no tensor input: " + number(buffer.index));
      break;
    case plan::Storage::output:
      if (buffer.index >= outputs || program_.output_buffers[buffer.index] != UINT32_MAX)
        return damaged(where + " has the output number " + number(buffer.index) +
                       "; they must count up from 0 without repeating");
      program_.output_buffers[buffer.index] = uint32_t(i);
      break;
    case plan::Storage::arena: ZEFUSE_RETURN_IF_ERROR(expr(buffer.bytes, where)); [[fallthrough]];
    case plan::Storage::external:
      if (buffer.first_step > buffer.last_step || buffer.last_step >= plan_.steps.size())
        return damaged(where + " lives from step " + number(buffer.first_step) + " to " + number(buffer.last_step) +
                       " of " + number(plan_.steps.size()));
      break;
    default: return damaged(where + " has an unknown storage");
    }
  }
  return {};
}

Status PlanCheck::values() {
  for (size_t i = 0; i < plan_.values.size(); ++i) {
    const plan::ValueT& value = *plan_.values[i];
    const std::string where = "value " + number(i);
    if (value.buffer >= plan_.buffers.size())
      return damaged(where + " views buffer " + number(value.buffer) + " of " + number(plan_.buffers.size()));
    if (!inRange(value.dtype, plan::DType::MAX))
      return damaged(where + " has an unknown dtype");
    ZEFUSE_RETURN_IF_ERROR(shape(value.sizes, value.strides, where));
    ZEFUSE_RETURN_IF_ERROR(expr(value.offset, where));
  }
  return {};
}

Status PlanCheck::modules() {
  for (size_t i = 0; i < plan_.modules.size(); ++i) {
    const plan::KernelModuleT& module = *plan_.modules[i];
    if (module.id.empty() || module.entry.empty() || module.target.empty())
      return damaged("kernel module " + number(i) + " lacks its id, target or entry point");
  }
  return {};
}

Status PlanCheck::producers() {
  for (size_t step = 0; step < plan_.steps.size(); ++step) {
    const auto* call = plan_.steps[step]->kind.AsAtenCall();
    if (!call)
      continue;
    for (int32_t value : call->outputs) {
      if (value < 0 || size_t(value) >= plan_.values.size())
        continue;  // refused in atenCall
      const uint32_t buffer = plan_.values[size_t(value)]->buffer;
      if (plan_.buffers[buffer]->storage != plan::Storage::external)
        continue;
      if (program_.buffers[buffer].producer >= 0)
        return damaged("external buffer " + number(buffer) + " is made twice, by " +
                       stepName(plan_, size_t(program_.buffers[buffer].producer)) + " and " + stepName(plan_, step));
      program_.buffers[buffer].producer = int32_t(step);
      program_.buffers[buffer].produced_value = uint32_t(value);
    }
  }
  return {};
}

Status PlanCheck::touches(size_t step, int64_t value, const char* role, bool writes) const {
  if (value < 0 || uint64_t(value) >= plan_.values.size())
    return damaged(stepName(plan_, step) + ": " + role + " is value " + std::to_string(value) + " of " +
                   number(plan_.values.size()));
  const uint32_t index = plan_.values[size_t(value)]->buffer;
  const plan::BufferT& buffer = *plan_.buffers[index];
  const bool bounded = buffer.storage == plan::Storage::arena || buffer.storage == plan::Storage::external;
  if (bounded && (step < buffer.first_step || step > buffer.last_step))
    return damaged(stepName(plan_, step) + ": " + role + " uses buffer " + number(index) + ", which lives from step " +
                   number(buffer.first_step) + " to " + number(buffer.last_step));
  auto& touches = program_.touches[step];
  LastTouch& last = last_touch_[index];
  if (last.step != step) {
    last = {step, touches.size()};
    touches.push_back({index, false});
  }
  touches[last.at].written |= writes;
  return {};
}

Status PlanCheck::reads(size_t step, int64_t value, const char* role) const {
  ZEFUSE_RETURN_IF_ERROR(touches(step, value, role, false));
  const uint32_t index = plan_.values[size_t(value)]->buffer;
  if (plan_.buffers[index]->storage != plan::Storage::external)
    return {};
  const int32_t producer = program_.buffers[index].producer;
  if (producer < 0 || size_t(producer) >= step)
    return damaged(stepName(plan_, step) + ": " + role + " reads external buffer " + number(index) +
                   " before any ATen step makes it");
  return {};
}

Status PlanCheck::writes(size_t step, int64_t value, const char* role) const {
  ZEFUSE_RETURN_IF_ERROR(touches(step, value, role, true));
  const uint32_t index = plan_.values[size_t(value)]->buffer;
  const plan::Storage storage = plan_.buffers[index]->storage;
  if (storage == plan::Storage::input && !plan_.inputs[plan_.buffers[index]->index]->written)
    return damaged(stepName(plan_, step) + ": " + role + " writes an input's memory");
  if (storage == plan::Storage::external && !plan_.steps[step]->kind.AsAtenCall())
    return damaged(stepName(plan_, step) + ": " + role + " writes external buffer " + number(index) +
                   "; only an ATen step makes one");
  return {};
}

Status PlanCheck::steps() {
  program_.touches.resize(plan_.steps.size());
  last_touch_.resize(plan_.buffers.size());
  program_.on_device.resize(plan_.steps.size());
  program_.host_steps = false;
  for (size_t i = 0; i < plan_.steps.size(); ++i) {
    const plan::StepKindUnion& kind = plan_.steps[i]->kind;
    if (kind.type == plan::StepKind::NONE || !inRange(kind.type, plan::StepKind::MAX) || !kind.value)
      return damaged("step " + number(i) + " has no known kind");
    switch (kind.type) {
    case plan::StepKind::Launch: ZEFUSE_RETURN_IF_ERROR(launch(i, *kind.AsLaunch())); break;
    case plan::StepKind::Matmul: ZEFUSE_RETURN_IF_ERROR(matmul(i, *kind.AsMatmul())); break;
    case plan::StepKind::Convolution: ZEFUSE_RETURN_IF_ERROR(convolution(i, *kind.AsConvolution())); break;
    case plan::StepKind::Attention: ZEFUSE_RETURN_IF_ERROR(attention(i, *kind.AsAttention())); break;
    case plan::StepKind::AttentionGradient:
      ZEFUSE_RETURN_IF_ERROR(attentionGradient(i, *kind.AsAttentionGradient()));
      break;
    case plan::StepKind::Recurrence: ZEFUSE_RETURN_IF_ERROR(recurrence(i, *kind.AsRecurrence())); break;
    case plan::StepKind::GroupedMatmul: ZEFUSE_RETURN_IF_ERROR(groupedMatmul(i, *kind.AsGroupedMatmul())); break;
    case plan::StepKind::AtenCall: ZEFUSE_RETURN_IF_ERROR(atenCall(i, *kind.AsAtenCall())); break;
    case plan::StepKind::Copy: ZEFUSE_RETURN_IF_ERROR(copy(i, *kind.AsCopy())); break;
    case plan::StepKind::NONE: break;
    }
    const auto* launch = kind.AsLaunch();
    program_.on_device[i] = launch && leavesHost(plan_) && !runsOnHost(plan_.modules[launch->module_]->target);
    program_.host_steps |= !program_.on_device[i];
  }
  return writtenInputs();
}

Status PlanCheck::writtenInputs() {
  std::vector<uint8_t> written(plan_.buffers.size()), buffers_of(plan_.inputs.size());
  for (const auto& touches : program_.touches)
    for (const Program::Touch& touch : touches)
      written[touch.buffer] |= touch.written;
  for (size_t i = 0; i < plan_.buffers.size(); ++i) {
    const plan::BufferT& buffer = *plan_.buffers[i];
    if (buffer.storage != plan::Storage::input || !plan_.inputs[buffer.index]->written)
      continue;
    // On a device of its own memory each buffer would be another copy.
    if (buffers_of[buffer.index]++)
      return damaged("input " + number(buffer.index) + ", which steps may write, has two buffers");
    if (written[i])
      program_.written_inputs.push_back(uint32_t(i));
  }
  return {};
}

Status PlanCheck::launch(size_t step, const plan::LaunchT& launch) {
  const std::string where = stepName(plan_, step);
  if (launch.module_ >= plan_.modules.size())
    return damaged(where + " uses kernel module " + number(launch.module_) + " of " + number(plan_.modules.size()));
  if (launch.outputs > launch.args.size())
    return damaged(where + " writes " + number(launch.outputs) + " of " + number(launch.args.size()) + " arguments");
  const size_t inputs = launch.args.size() - launch.outputs;
  for (size_t i = 0; i < launch.args.size(); ++i)
    ZEFUSE_RETURN_IF_ERROR(i < inputs ? reads(step, launch.args[i], "an argument")
                                      : writes(step, launch.args[i], "a result"));
  for (uint32_t symbol : launch.symbols)
    ZEFUSE_RETURN_IF_ERROR(expr(symbol, where));
  ZEFUSE_RETURN_IF_ERROR(expr(launch.extent, where));
  ZEFUSE_RETURN_IF_ERROR(expr(launch.scratch_bytes, where));
  if (!inRange(launch.distribution, plan::Distribution::MAX))
    return damaged(where + " has an unknown distribution");
  if (launch.grain == 0)
    return damaged(where + " has grain 0");
  if (launch.group_size.size() > 3 || std::any_of(launch.group_size.begin(), launch.group_size.end(),
                                                  [](uint32_t size) { return size == 0 || size > 1024; }))
    return damaged(where + " has an impossible group size");
  if (launch.distribution == plan::Distribution::chunked &&
      std::any_of(launch.group_size.begin(), launch.group_size.end(), [](uint32_t size) { return size != 1; }))
    return damaged(where + " is chunked and has a group size above 1");
  for (const auto& check : launch.checks)
    if (!inRange(check->error, plan::ErrorClass::MAX))
      return damaged(where + " has a check with an unknown error class");
  if (launch.library && launch.library_convolution)
    return damaged(where + " has calls of two libraries");
  if (launch.library_convolution)
    return convolution(step, *launch.library_convolution);
  return launch.library ? matmul(step, *launch.library) : Status();
}

Status PlanCheck::matmul(size_t step, const plan::MatmulT& matmul) {
  ZEFUSE_RETURN_IF_ERROR(reads(step, matmul.a, "operand a"));
  ZEFUSE_RETURN_IF_ERROR(reads(step, matmul.b, "operand b"));
  if (matmul.bias != -1)
    ZEFUSE_RETURN_IF_ERROR(reads(step, matmul.bias, "the bias"));
  ZEFUSE_RETURN_IF_ERROR(writes(step, matmul.out, "the result"));
  const std::string where = stepName(plan_, step);
  if (rank(matmul.a) < 2 || rank(matmul.a) != rank(matmul.b) || rank(matmul.a) != rank(matmul.out))
    return damaged(where + " has operands of rank " + number(rank(matmul.a)) + ", " + number(rank(matmul.b)) + " and " +
                   number(rank(matmul.out)) + "; they must be equal and at least 2");
  if (matmul.bias != -1 && rank(uint32_t(matmul.bias)) > rank(matmul.out))
    return damaged(where + " has a bias of higher rank than its result");
  return postOps(step, matmul.post_ops, matmul.out);
}

Status PlanCheck::convolution(size_t step, const plan::ConvolutionT& convolution) {
  ZEFUSE_RETURN_IF_ERROR(reads(step, convolution.input, "the input"));
  ZEFUSE_RETURN_IF_ERROR(reads(step, convolution.weight, "the weight"));
  if (convolution.bias != -1)
    ZEFUSE_RETURN_IF_ERROR(reads(step, convolution.bias, "the bias"));
  ZEFUSE_RETURN_IF_ERROR(writes(step, convolution.out, "the result"));
  const std::string where = stepName(plan_, step);
  if (!inRange(convolution.kind, plan::ConvolutionKind::MAX))
    return damaged(where + " has an unknown kind");
  // What depends on sizes is checked with them, when the step is bound.
  return postOps(step, convolution.post_ops, convolution.out);
}

Status PlanCheck::attention(size_t step, const plan::AttentionT& attention) {
  ZEFUSE_RETURN_IF_ERROR(reads(step, attention.query, "the query"));
  ZEFUSE_RETURN_IF_ERROR(reads(step, attention.key, "the key"));
  ZEFUSE_RETURN_IF_ERROR(reads(step, attention.value, "the value"));
  if (attention.mask != -1)
    ZEFUSE_RETURN_IF_ERROR(reads(step, attention.mask, "the mask"));
  if (attention.log_sums >= 0)
    ZEFUSE_RETURN_IF_ERROR(writes(step, uint32_t(attention.log_sums), "the rows' sums"));
  return writes(step, attention.out, "the result");  // sizes and strides are checked when the step is bound
}

Status PlanCheck::attentionGradient(size_t step, const plan::AttentionGradientT& gradient) {
  ZEFUSE_RETURN_IF_ERROR(reads(step, gradient.query, "the query"));
  ZEFUSE_RETURN_IF_ERROR(reads(step, gradient.key, "the key"));
  ZEFUSE_RETURN_IF_ERROR(reads(step, gradient.value, "the value"));
  ZEFUSE_RETURN_IF_ERROR(reads(step, gradient.gradient, "the result's gradient"));
  ZEFUSE_RETURN_IF_ERROR(reads(step, gradient.log_sums, "the rows' logarithms"));
  ZEFUSE_RETURN_IF_ERROR(reads(step, gradient.row_sums, "the rows' sums"));
  if (gradient.results.size() != 3)
    return damaged(stepName(plan_, step) + " has " + std::to_string(gradient.results.size()) + " results");
  for (int32_t result : gradient.results)
    if (result >= 0)
      ZEFUSE_RETURN_IF_ERROR(writes(step, uint32_t(result), "a gradient"));
  return {};
}

Status PlanCheck::recurrence(size_t step, const plan::RecurrenceT& recurrence) {
  const std::string where = stepName(plan_, step);
  if (!inRange(recurrence.cell, plan::RecurrentCell::MAX))
    return damaged(where + " has an unknown cell");
  if (recurrence.projected && recurrence.cell != plan::RecurrentCell::lstm)
    return damaged(where + " has a projection of another cell than an LSTM's");
  if (recurrence.cell == plan::RecurrentCell::lstm_layer && recurrence.packed)
    return damaged(where + " is a layer with its input that is of packed sequences");
  const RecurrenceArity arity = arityOf(recurrence.cell, recurrence.gradient, recurrence.packed, recurrence.projected);
  if (recurrence.operands.size() != arity.operands || recurrence.results.size() != arity.results)
    return damaged(where + " has " + number(recurrence.operands.size()) + " operands and " +
                   number(recurrence.results.size()) + " results; wanted are " + number(arity.operands) + " and " +
                   number(arity.results));
  for (uint32_t operand : recurrence.operands)
    ZEFUSE_RETURN_IF_ERROR(reads(step, operand, "an operand"));
  for (int32_t result : recurrence.results)
    if (result != -1)
      ZEFUSE_RETURN_IF_ERROR(writes(step, result, "a result"));
  return {};  // sizes and strides are checked when the step is bound
}

Status PlanCheck::groupedMatmul(size_t step, const plan::GroupedMatmulT& product) {
  const std::string where = stepName(plan_, step);
  if ((product.index != -1) != (product.kernel != nullptr))
    return damaged(where + " has one of the kernel that makes a group's matrix and the number that it reads, not both");
  if (product.kernel) {
    ZEFUSE_RETURN_IF_ERROR(writes(step, product.index, "the group's number"));
    const plan::ValueT& index = *plan_.values[size_t(product.index)];
    if (index.dtype != plan::DType::i64 || !index.sizes.empty())
      return damaged(where + " has a group's number that is no i64 without dimensions");
    ZEFUSE_RETURN_IF_ERROR(launch(step, *product.kernel));
    if (!runsOnHost(plan_.modules[product.kernel->module_]->target))
      return damaged(where + " has a kernel that does not run on the host");
  }
  ZEFUSE_RETURN_IF_ERROR(reads(step, product.a, "operand a"));
  ZEFUSE_RETURN_IF_ERROR(reads(step, product.b, "operand b"));
  ZEFUSE_RETURN_IF_ERROR(reads(step, product.offsets, "the offsets"));
  ZEFUSE_RETURN_IF_ERROR(writes(step, product.out, "the result"));
  if (rank(product.a) != 2 || rank(product.b) != (product.kernel ? 2u : 3u) || rank(product.offsets) != 1 ||
      rank(product.out) != 2)
    return damaged(where + " has operands of rank " + number(rank(product.a)) + ", " + number(rank(product.b)) +
                   " and " + number(rank(product.offsets)) + " and a result of rank " + number(rank(product.out)));
  if (plan_.values[product.offsets]->dtype != plan::DType::i32)
    return damaged(where + " has offsets that are not i32");
  return {};  // sizes and strides are checked when the step is bound
}

Status PlanCheck::postOps(size_t step, const std::vector<std::unique_ptr<plan::PostOpT>>& post_ops, uint32_t out) {
  const std::string where = stepName(plan_, step);
  for (const auto& op : post_ops) {
    if (!inRange(op->kind, plan::PostOpKind::MAX))
      return damaged(where + " has an unknown post-op");
    const bool binary = op->kind == plan::PostOpKind::add || op->kind == plan::PostOpKind::mul;
    if (binary != (op->operand != -1))
      return damaged(where + " has a post-op " + plan::EnumNamePostOpKind(op->kind) + (binary ? " without" : " with") +
                     " an operand");
    if (!binary)
      continue;
    ZEFUSE_RETURN_IF_ERROR(reads(step, op->operand, "a post-op's operand"));
    if (rank(uint32_t(op->operand)) > rank(out))
      return damaged(where + " has a post-op operand of higher rank than its result");
  }
  return {};
}

Status PlanCheck::argument(size_t step, const plan::ArgumentT& argument, int depth) {
  const std::string where = stepName(plan_, step);
  if (!inRange(argument.kind, plan::ArgumentKind::MAX))
    return damaged(where + " has an argument of unknown kind");
  switch (argument.kind) {
  case plan::ArgumentKind::tensor: return reads(step, argument.value, "an argument");
  case plan::ArgumentKind::formula:
  case plan::ArgumentKind::integer: return expr(argument.value, where);
  case plan::ArgumentKind::list:
    if (depth > 8)
      return damaged(where + " has lists nested more than 8 deep");
    for (const auto& item : argument.items)
      ZEFUSE_RETURN_IF_ERROR(this->argument(step, *item, depth + 1));
    return {};
  default: return {};
  }
}

Status PlanCheck::atenCall(size_t step, const plan::AtenCallT& call) {
  if (call.op.find("::") == std::string::npos)
    return damaged("step " + number(step) + " calls '" + call.op + "', which is no operator name");
  for (const auto& item : call.args)
    ZEFUSE_RETURN_IF_ERROR(argument(step, *item, 0));
  for (int32_t value : call.outputs) {
    if (value == -1)
      continue;
    ZEFUSE_RETURN_IF_ERROR(writes(step, value, "a result"));
  }
  return {};
}

Status PlanCheck::copy(size_t step, const plan::CopyT& copy) {
  ZEFUSE_RETURN_IF_ERROR(reads(step, copy.source, "the source"));
  ZEFUSE_RETURN_IF_ERROR(writes(step, copy.destination, "the destination"));
  const plan::ValueT& source = *plan_.values[copy.source];
  const plan::ValueT& destination = *plan_.values[copy.destination];
  if (source.dtype != destination.dtype || source.sizes.size() != destination.sizes.size())
    return damaged(stepName(plan_, step) + " copies between different dtypes or ranks");
  return {};
}

Status PlanCheck::outputs() {
  for (size_t i = 0; i < plan_.outputs.size(); ++i) {
    const plan::OutputT& output = *plan_.outputs[i];
    const std::string where = "output " + number(i);
    switch (output.kind) {
    case plan::OutputKind::none: break;
    case plan::OutputKind::integer: ZEFUSE_RETURN_IF_ERROR(expr(output.value, where)); break;
    case plan::OutputKind::tensor: {
      if (output.value >= plan_.values.size())
        return damaged(where + " is value " + number(output.value) + " of " + number(plan_.values.size()));
      const uint32_t buffer = plan_.values[output.value]->buffer;
      if (plan_.buffers[buffer]->storage == plan::Storage::arena)
        return damaged(where + " is arena buffer " + number(buffer) + ", which is reused by the next call");
      if (plan_.buffers[buffer]->storage == plan::Storage::external && program_.buffers[buffer].producer < 0)
        return damaged(where + " is external buffer " + number(buffer) + ", which no step makes");
      program_.buffers[buffer].escapes = true;
      break;
    }
    default: return damaged(where + " has an unknown kind");
    }
  }
  program_.released_after.resize(plan_.steps.size());
  for (size_t i = 0; i < plan_.buffers.size(); ++i)
    if (plan_.buffers[i]->storage == plan::Storage::external && !program_.buffers[i].escapes)
      program_.released_after[plan_.buffers[i]->last_step].push_back(uint32_t(i));
  return {};
}

}  // namespace zefuse::plan
