#include "runtime/package/plan_description.h"

#include <bit>
#include <set>

#include "common/plan/dtype.h"
#include "common/plan/expr_types.h"
#include "common/plan/program.h"

namespace zefuse::package {
namespace {

std::string exprText(const plan::Plan& plan, uint32_t index, int depth = 0) {
  const plan::ExprNode& node = *plan.exprs()->Get(index);
  if (node.op() == plan::ExprOp::constant)
    return std::to_string(node.value());
  if (node.op() == plan::ExprOp::symbol)
    return flatbuffers::GetString(plan.symbols()->Get(uint32_t(node.value()))->name());
  if (depth > 6)  // a damaged plan's text must not explode
    return "...";
  if (node.op() == plan::ExprOp::real)
    return std::to_string(std::bit_cast<double>(node.value()));
  static constexpr const char* infix[] = {"", "", " + ", " * ", " // ", " ceildiv ", " % "};
  const std::string a = exprText(plan, node.lhs(), depth + 1);
  if (plan::typeOf(node.op()).operands == 1)
    return std::string(plan::EnumNameExprOp(node.op())) + "(" + a + ")";
  const std::string b = exprText(plan, node.rhs(), depth + 1);
  if (size_t(node.op()) >= std::size(infix))
    return std::string(plan::EnumNameExprOp(node.op())) + "(" + a + ", " + b + ")";
  const std::string text = a + infix[size_t(node.op())] + b;
  return depth ? "(" + text + ")" : text;
}

int64_t constantOr(const plan::Plan& plan, uint32_t index, int64_t otherwise) {
  const plan::ExprNode& node = *plan.exprs()->Get(index);
  return node.op() == plan::ExprOp::constant ? node.value() : otherwise;
}

template <typename List>
void describeSizes(const plan::Plan& plan, const List* exprs, std::vector<int64_t>& sizes,
                   std::vector<std::string>* text = nullptr) {
  for (uint32_t i = 0; exprs && i < exprs->size(); ++i) {
    sizes.push_back(constantOr(plan, exprs->Get(i), -1));
    if (text)
      text->push_back(exprText(plan, exprs->Get(i)));
  }
}

}  // namespace

bool describe(const Manifest& manifest, const PlanEntry& entry, const plan::Plan& plan, std::vector<TensorInfo>& inputs,
              std::vector<TensorInfo>& outputs) {
  const size_t num_inputs = plan.inputs() ? plan.inputs()->size() : 0,
               num_outputs = plan.outputs() ? plan.outputs()->size() : 0;
  if (num_inputs != entry.inputs.size() || num_outputs != entry.outputs.size())
    return false;
  inputs.resize(manifest.input_names.size());
  for (size_t i = 0; i < inputs.size(); ++i)
    inputs[i].name = manifest.input_names[i];
  for (size_t i = 0; i < num_inputs; ++i) {
    const InputSlot& slot = entry.inputs[i];
    if (slot.is_weight)
      continue;
    const plan::Input& input = *plan.inputs()->Get(uint32_t(i));
    TensorInfo& info = inputs[slot.user];
    info.integer = input.kind() == plan::InputKind::integer;
    info.constant = slot.constant;
    info.dtype = info.integer ? plan::DType::i64 : input.dtype();
    describeSizes(plan, input.sizes(), info.sizes, &info.size_text);
    describeSizes(plan, input.strides(), info.strides);
  }
  for (size_t i = 0; i < num_outputs; ++i) {
    const OutputSlot& slot = entry.outputs[i];
    if (slot.kind != OutputSlot::Kind::user)
      continue;
    const plan::Output& output = *plan.outputs()->Get(uint32_t(i));
    TensorInfo info{.name = manifest.output_names[slot.user]};
    if (output.kind() == plan::OutputKind::tensor) {
      const plan::Value& value = *plan.values()->Get(output.value());
      info.dtype = value.dtype();
      describeSizes(plan, value.sizes(), info.sizes, &info.size_text);
    } else {
      info.dtype = plan::DType::i64;
      info.integer = true;
    }
    outputs.push_back(std::move(info));
  }
  return true;
}

bool writesOnlyWhatItChanges(const PlanEntry& entry, const plan::Plan& plan) {
  std::set<std::string_view> weights;
  std::set<size_t> users;
  for (const OutputSlot& slot : entry.outputs)
    if (slot.kind == OutputSlot::Kind::weight)
      weights.insert(slot.weight);
    else if (slot.kind == OutputSlot::Kind::mutates)
      users.insert(slot.user);
  for (size_t i = 0; i < entry.inputs.size(); ++i) {
    const InputSlot& slot = entry.inputs[i];
    if (plan.inputs()->Get(uint32_t(i))->written() &&
        !(slot.is_weight ? weights.contains(slot.weight) : slot.written || users.contains(slot.user)))
      return false;
  }
  return true;
}

Result<PlanDescription> describePlan(std::span<const std::byte> bytes, const Manifest& manifest,
                                     const PlanEntry& entry) {
  Result<PlanDescription> description = describeSteps(bytes);
  if (description.ok() &&
      !describe(manifest, entry, *plan::GetPlan(bytes.data()), description->inputs, description->outputs))
    return Status{Code::damaged, "the manifest and plan '" + entry.section + "' do not belong together"};
  return description;
}

Result<PlanDescription> describeSteps(std::span<const std::byte> bytes) {
  Result<plan::Program> program = plan::loadProgram(bytes);
  if (!program.ok())
    return program.status();
  PlanDescription description;
  for (const auto& step : program->plan.steps) {
    const auto type = step->kind.type;
    description.kernels += type == plan::StepKind::Launch;
    description.library_calls += type == plan::StepKind::Matmul || type == plan::StepKind::Convolution ||
                                 type == plan::StepKind::Attention || type == plan::StepKind::Recurrence ||
                                 type == plan::StepKind::AttentionGradient || type == plan::StepKind::GroupedMatmul;
    if (const auto* call = step->kind.AsAtenCall())
      description.aten.push_back(call->op + (call->overload.empty() ? "" : "." + call->overload));
  }
  return description;
}

std::string text(const TensorInfo& info) {
  std::string text = std::string(plan::dtypeName(info.dtype)) + "[";
  for (size_t d = 0; d < info.size_text.size(); ++d)
    text += (d ? ", " : "") + info.size_text[d];
  return info.constant ? "a constant" : info.integer ? "an integer" : text + "]";
}

}  // namespace zefuse::package
