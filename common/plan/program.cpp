#include "common/plan/program.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "common/plan/dtype.h"
#include "common/plan/expanded_size.h"
#include "common/plan/plan_check.h"

namespace zefuse::plan {

// Whether nothing about the launch depends on symbols.
static bool isFixed(const PlanT& plan, const LaunchT& launch) {
  auto fixed = [&](uint32_t expr) { return plan.exprs[expr].op() == ExprOp::constant; };
  return std::ranges::all_of(launch.symbols, fixed) && fixed(launch.extent) &&
         std::ranges::all_of(launch.args, [&](uint32_t argument) {
           const ValueT& value = *plan.values[argument];
           return std::ranges::all_of(value.sizes, fixed) && std::ranges::all_of(value.strides, fixed) &&
                  fixed(value.offset);
         });
}

// Bytes of the values that the launch is given. All of them are fixed.
static int64_t bytesOf(const PlanT& plan, const LaunchT& launch) {
  double bytes = 0;
  for (uint32_t argument : launch.args) {
    double elements = double(elementSize(plan.values[argument]->dtype));
    for (uint32_t size : plan.values[argument]->sizes)
      elements *= double(plan.exprs[size].value());
    bytes += elements;
  }
  return int64_t(std::min(bytes, 1e18));
}

// On the host looking whether parameters are what they were takes time as well, about as long as reading their samples
// from memory. Launches that belong together (one reads what another makes) and take less than that are run in each
// call.
static void refuseCheapOnes(Program& program) {
  constexpr int64_t ns_a_launch = 1000, bytes_a_ns = 16, ns_a_parameter = 500;
  const PlanT& plan = program.plan;
  std::vector<size_t> group(plan.steps.size());  // by step: another of its group, or itself
  std::iota(group.begin(), group.end(), size_t(0));
  auto root = [&](size_t step) {
    while (group[step] != step)
      step = group[step];
    return step;
  };
  std::vector<std::optional<size_t>> user(plan.buffers.size());
  for (size_t step = 0; step < plan.steps.size(); ++step)
    for (const Program::Touch& touch : program.touches[step])
      if (program.derived[step] && plan.buffers[touch.buffer]->storage == Storage::arena) {
        if (user[touch.buffer])
          group[root(step)] = root(*user[touch.buffer]);
        user[touch.buffer] = step;
      }
  std::vector<int64_t> saved(plan.steps.size());
  std::vector<std::set<uint32_t>> parameters(plan.steps.size());
  for (size_t step = 0; step < plan.steps.size(); ++step) {
    if (!program.derived[step])
      continue;
    saved[root(step)] += ns_a_launch + bytesOf(plan, *plan.steps[step]->kind.AsLaunch()) / bytes_a_ns;
    for (const Program::Touch& touch : program.touches[step])
      if (plan.buffers[touch.buffer]->storage == Storage::input)
        parameters[root(step)].insert(touch.buffer);
  }
  for (size_t step = 0; step < plan.steps.size(); ++step)
    if (program.derived[step])
      program.derived[step] = saved[root(step)] > ns_a_parameter * int64_t(parameters[root(step)].size());
}

// Steps that read nothing but parameters and what such steps make. A buffer that another step writes, or that one
// elsewhere touches, is none of theirs.
static void findDerived(Program& program) {
  const PlanT& plan = program.plan;
  program.derived.assign(plan.steps.size(), false);
  program.kept.assign(plan.buffers.size(), false);
  if (!plan.kept_weights)
    return;
  const bool on_host = !leavesHost(plan);
  std::vector<bool> refused(plan.buffers.size());
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t step = 0; step < plan.steps.size(); ++step) {
      const auto* launch = plan.steps[step]->kind.AsLaunch();
      const bool here = on_host || program.on_device[step];
      program.derived[step] = here && launch && isFixed(plan, *launch) &&
                              std::ranges::all_of(program.touches[step], [&](const Program::Touch& touch) {
                                const BufferT& buffer = *plan.buffers[touch.buffer];
                                return (buffer.storage == Storage::arena && !refused[touch.buffer]) ||
                                       (!touch.written && program.isUnwrittenParameter(buffer));
                              });
      for (const Program::Touch& touch : program.touches[step])
        if (!refused[touch.buffer] && ((touch.written && !program.derived[step]) || !here))
          refused[touch.buffer] = changed = true;
    }
  }
  if (on_host)
    refuseCheapOnes(program);
  for (size_t step = 0; step < plan.steps.size(); ++step)
    for (const Program::Touch& touch : program.touches[step])
      if (program.derived[step] && touch.written)
        program.kept[touch.buffer] = true;
}

Result<Program> loadProgram(std::span<const std::byte> bytes) {
  const auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
  if (bytes.size() < 16 || bytes.size() >= FLATBUFFERS_MAX_BUFFER_SIZE)
    return Status{Code::damaged,
                  "plan: " + std::to_string(bytes.size()) + " bytes are no plan; compile the model again"};
  if (!plan::PlanBufferHasIdentifier(data))
    return Status{Code::damaged, "plan: the identifier 'ZFPL' is missing: not a zefuse plan"};
  if (!expandsToAtMost(bytes, plan::PlanTypeTable(), 4 * bytes.size()))
    return Status{Code::damaged, "plan: its parts are referred to so often that it stands for more than four times its "
                                 "size, which no compiler writes; compile the model again"};
  flatbuffers::Verifier verifier(data, bytes.size(), /*max_depth=*/32, /*max_tables=*/10'000'000);
  if (!plan::VerifyPlanBuffer(verifier))
    return Status{Code::damaged, "plan: the flatbuffers verifier found broken offsets; compile the "
                                 "model again"};
  const plan::Plan* root = plan::GetPlan(data);
  if (root->version() > plan_version)
    return Status{Code::unsupported, "plan: version " + std::to_string(root->version()) +
                                         " is newer than this runtime, which reads up to " +
                                         std::to_string(plan_version) +
                                         "; use a newer zefuse or compile the model again"};
  Program program;
  root->UnPackTo(&program.plan);
  for (auto& module : program.plan.modules)
    std::vector<uint32_t>().swap(module->spirv);
  if (Status status = PlanCheck(program).run(); !status.ok())
    return Status{status.code(), "plan: " + status.message(), status.place()};
  findDerived(program);
  return program;
}

Status checkFailed(const plan::LaunchT& launch, uint32_t word) {
  if (word > launch.checks.size())
    return {Code::internal,
            "the kernel reported check " + std::to_string(word) + " of " + std::to_string(launch.checks.size())};
  const plan::KernelCheckT& check = *launch.checks[word - 1];
  return checkStatus(check.error, check.message);
}

Status checkStatus(plan::ErrorClass error, std::string message) {
  switch (error) {
  case plan::ErrorClass::index_error: return {Code::index_error, std::move(message)};
  case plan::ErrorClass::value_error: return {Code::invalid_argument, std::move(message)};
  case plan::ErrorClass::runtime_error: break;
  }
  return {Code::device, std::move(message)};
}

std::string stepName(const plan::PlanT& plan, size_t step) {
  const plan::StepKindUnion& kind = plan.steps[step]->kind;
  std::string what = plan::EnumNameStepKind(kind.type);
  if (const auto* launch = kind.AsLaunch(); launch && !launch->name.empty())
    what += " '" + launch->name + "'";
  if (const auto* call = kind.AsAtenCall())
    what += " " + call->op + (call->overload.empty() ? "" : "." + call->overload);
  return "step " + std::to_string(step) + " (" + what + ")";
}

static const KernelNoteT* noteOf(const StepKindUnion& kind) {
  switch (kind.type) {
  case StepKind::Launch: return kind.AsLaunch()->note.get();
  case StepKind::Matmul: return kind.AsMatmul()->note.get();
  case StepKind::Convolution: return kind.AsConvolution()->note.get();
  case StepKind::Attention: return kind.AsAttention()->note.get();
  case StepKind::AttentionGradient: return kind.AsAttentionGradient()->note.get();
  case StepKind::Recurrence: return kind.AsRecurrence()->note.get();
  case StepKind::GroupedMatmul: return kind.AsGroupedMatmul()->note.get();
  case StepKind::AtenCall: return kind.AsAtenCall()->note.get();
  default: return nullptr;
  }
}

static std::string listed(const std::string& before, std::span<const std::string> all) {
  constexpr size_t kMost = 3;  // a fused kernel may come from dozens of lines
  std::string text;
  for (size_t i = 0; i < std::min(all.size(), kMost); ++i)
    text += (i == 0 ? before : ", ") + all[i];
  return all.size() > kMost ? text + ", ..." : text;
}

std::string stepOfProgram(const Program& program, size_t step) {
  const plan::PlanT& plan = program.plan;
  std::string text = stepName(plan, step);
  if (const KernelNoteT* note = noteOf(plan.steps[step]->kind))
    text += listed(" of ", note->sources);
  std::vector<std::string> inputs;
  for (const Program::Touch& touch : program.touches[step])
    if (const BufferT& buffer = *plan.buffers[touch.buffer]; buffer.storage == Storage::input && !touch.written)
      if (const std::string& name = plan.inputs[buffer.index]->name; !name.empty())
        inputs.push_back(name);
  return text + listed(", which reads ", inputs);
}

// Whether the elements of two values lie in the same order, one behind the other, whatever the symbols are.
static bool lieAlike(const PlanT& plan, const ValueT& a, const ValueT& b) {
  if (a.sizes != b.sizes || a.strides != b.strides)
    return false;
  std::vector<std::pair<int64_t, int64_t>> dims;  // stride, size
  for (size_t d = 0; d < a.sizes.size(); ++d) {
    const ExprNode &size = plan.exprs[a.sizes[d]], &stride = plan.exprs[a.strides[d]];
    if (size.op() != ExprOp::constant || stride.op() != ExprOp::constant)
      return false;
    if (size.value() != 1)
      dims.emplace_back(stride.value(), size.value());
  }
  std::ranges::sort(dims);
  int64_t next = 1;
  for (const auto& [stride, size] : dims) {
    if (stride != next)
      return false;
    next *= size;
  }
  return true;
}

void takeCallersPlaces(Program& program) {
  const PlanT& plan = program.plan;
  program.callers_places = true;
  program.host_steps = false;
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    if (const auto* copy = plan.steps[i]->kind.AsCopy(); copy && leavesHost(plan))
      program.on_device[i] = lieAlike(plan, *plan.values[copy->source], *plan.values[copy->destination]);
    program.host_steps |= !program.on_device[i];
  }
  findDerived(program);
}

}  // namespace zefuse::plan
