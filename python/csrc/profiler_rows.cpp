#include "python/csrc/profiler_rows.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <ATen/ops/empty.h>

#include "common/plan/plan_generated.h"

namespace zefuse::python {
namespace {

std::optional<int64_t> constantOf(const plan::Plan& plan, uint32_t index) {
  const plan::ExprNode* node = plan.exprs()->Get(index);
  return node->op() == plan::ExprOp::constant ? std::optional<int64_t>(node->value()) : std::nullopt;
}

std::optional<std::vector<int64_t>> sizesOf(const plan::Plan& plan, uint32_t value) {
  std::vector<int64_t> sizes;
  if (const auto* exprs = plan.values()->Get(value)->sizes())
    for (uint32_t index : *exprs) {
      auto size = constantOf(plan, index);
      if (!size)
        return std::nullopt;
      sizes.push_back(*size);
    }
  return sizes;
}

int64_t product(const std::vector<int64_t>& sizes) {
  int64_t result = 1;
  for (int64_t size : sizes)
    result *= size;
  return result;
}

// What a row says of a step.
struct Row {
  std::string name;
  std::vector<uint32_t> written;  // values
  const plan::KernelNote* note = nullptr;
  std::optional<int64_t> flops;  // of products
};

// Of a step's results those that somebody asks for.
std::vector<uint32_t> writtenOf(const flatbuffers::Vector<int32_t>* results) {
  std::vector<uint32_t> written;
  if (results)
    for (int32_t value : *results)
      if (value >= 0)
        written.push_back(static_cast<uint32_t>(value));
  return written;
}

Row rowOf(const plan::Plan& plan, const plan::Step& step) {
  switch (step.kind_type()) {
  case plan::StepKind::Launch: {
    const auto* launch = step.kind_as_Launch();
    Row row{launch->name() ? launch->name()->str() : "kernel", {}, launch->note(), {}};
    const size_t count = launch->args() ? launch->args()->size() : 0;
    for (size_t i = count - std::min<size_t>(count, launch->outputs()); i < count; ++i)
      row.written.push_back(launch->args()->Get(static_cast<flatbuffers::uoffset_t>(i)));
    return row;
  }
  case plan::StepKind::Matmul: {
    const auto* matmul = step.kind_as_Matmul();
    Row row{"matmul", {matmul->out()}, matmul->note(), {}};
    auto out = sizesOf(plan, matmul->out()), a = sizesOf(plan, matmul->a());
    if (out && a && !a->empty())
      row.flops = 2 * product(*out) * a->back();
    return row;
  }
  case plan::StepKind::Convolution: {
    const auto* convolution = step.kind_as_Convolution();
    Row row{"convolution", {convolution->out()}, convolution->note(), {}};
    auto out = sizesOf(plan, convolution->out()), weight = sizesOf(plan, convolution->weight());
    if (convolution->kind() == plan::ConvolutionKind::forward && out && weight && !weight->empty() && (*weight)[0] > 0)
      row.flops = 2 * product(*out) * (product(*weight) / (*weight)[0]);
    return row;
  }
  case plan::StepKind::Attention: {
    const auto* attention = step.kind_as_Attention();
    return {"attention", {attention->out()}, attention->note(), {}};
  }
  case plan::StepKind::AttentionGradient: {
    const auto* gradient = step.kind_as_AttentionGradient();
    return {"attention derivative", writtenOf(gradient->results()), gradient->note(), {}};
  }
  case plan::StepKind::GroupedMatmul: {
    const auto* grouped = step.kind_as_GroupedMatmul();
    return {"grouped matmul", {grouped->out()}, grouped->note(), {}};
  }
  case plan::StepKind::Recurrence: {
    const auto* recurrence = step.kind_as_Recurrence();
    const bool layer = recurrence->cell() == plan::RecurrentCell::lstm_layer;
    Row row{layer ? "lstm" : plan::EnumNameRecurrentCell(recurrence->cell()),
            writtenOf(recurrence->results()),
            recurrence->note(),
            {}};
    row.name += recurrence->gradient() ? " derivative" : layer ? " layer" : " steps";
    return row;
  }
  case plan::StepKind::AtenCall: {
    const auto* call = step.kind_as_AtenCall();
    return {call->op() ? call->op()->str() : "aten", {}, call->note(), {}};
  }
  case plan::StepKind::Copy: return {"copy", {step.kind_as_Copy()->destination()}, nullptr, {}};
  case plan::StepKind::NONE: break;
  }
  return {"step", {}, nullptr, {}};
}

}  // namespace

void ProfilerRows::begin(size_t step) {
  row_.emplace(at::RecordScope::FUNCTION);
  if (!row_->isActive())
    return;
  const Row row = rowOf(plan_, *plan_.steps()->Get(static_cast<flatbuffers::uoffset_t>(step)));
  const std::string name = "zefuse::" + row.name;
  if (!row_->needsInputs()) {
    row_->before(std::string_view(name));
    return;
  }
  std::vector<c10::IValue> shapes;
  for (uint32_t value : row.written)
    if (auto sizes = sizesOf(plan_, value))
      shapes.emplace_back(at::empty(*sizes, at::TensorOptions().device(at::kMeta)));
  std::unordered_map<std::string, c10::IValue> numbers;
  if (auto bytes = row.note ? constantOf(plan_, row.note->bytes()) : std::nullopt)
    numbers.emplace("bytes", *bytes);
  if (row.flops)
    numbers.emplace("flops", *row.flops);
  row_->before(std::string_view(name), c10::ArrayRef<const c10::IValue>(shapes.data(), shapes.size()), &numbers);
}

}  // namespace zefuse::python
