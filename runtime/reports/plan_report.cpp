#include <algorithm>
#include <string>
#include <string_view>

#include "runtime/reports/json_text.h"
#include "runtime/reports/reports.h"

namespace zefuse::reports {
namespace {

using json::List;
using json::Object;
using Strings = flatbuffers::Vector<flatbuffers::Offset<flatbuffers::String>>;

std::string text(const flatbuffers::String* string) { return string ? string->str() : std::string(); }

List strings(const Strings* vector) {
  List list;
  if (vector)
    for (const flatbuffers::String* each : *vector)
      list.add(each->str());
  return list;
}

/// An expression's value where it does not depend on a symbol.
json::Text constantOf(const plan::Plan& plan, uint32_t index) {
  const plan::ExprNode* node = plan.exprs()->Get(index);
  return node->op() == plan::ExprOp::constant ? json::of(node->value()) : json::null;
}

Object noted(const plan::Plan& plan, int step, const plan::KernelNote* note) {
  Object entry;
  entry.add("step", step)
      .add("ops", strings(note ? note->ops() : nullptr))
      .add("sources", strings(note ? note->sources() : nullptr))
      .add("modules", strings(note ? note->modules() : nullptr))
      .add("bytes", note ? constantOf(plan, note->bytes()) : json::null);
  return entry;
}

List names(const flatbuffers::Vector<flatbuffers::Offset<plan::PostOp>>* post_ops) {
  List list;
  if (post_ops)
    for (const plan::PostOp* post_op : *post_ops)
      list.add(plan::EnumNamePostOpKind(post_op->kind()));
  return list;
}

class PlanReport {
public:
  explicit PlanReport(const plan::Plan& plan) : plan_(plan) {}

  std::string text() {
    int number = -1;
    if (plan_.steps())
      for (const plan::Step* step : *plan_.steps())
        add(++number, *step);
    List symbols;
    if (plan_.symbols())
      for (const plan::Symbol* symbol : *plan_.symbols())
        symbols.add(reports::text(symbol->name()));
    Object report;
    report.add("device", reports::text(plan_.device()))
        .add("steps", number + 1)
        .add("kernels", kernels_)
        .add("calls", calls_)
        .add("fallbacks", fallbacks_)
        .add("copies", copies_)
        .add("symbols", symbols)
        .add("modules", plan_.modules() ? plan_.modules()->size() : 0u)
        .add("inputs", plan_.inputs() ? plan_.inputs()->size() : 0u)
        .add("outputs", plan_.outputs() ? plan_.outputs()->size() : 0u)
        .add("details", reports::text(plan_.report()));
    return report.text().json;
  }

private:
  void add(int number, const plan::Step& step) {
    if (auto* launch = step.kind_as_Launch()) {
      const plan::KernelModule* module = plan_.modules()->Get(launch->module_());
      Object entry = noted(plan_, number, launch->note());
      entry.add("name", reports::text(launch->name()))
          .add("schedule", launch->note() ? reports::text(launch->note()->schedule()) : "")
          .add("target", reports::text(module->target()))
          .add("library", launch->library() != nullptr || launch->library_convolution() != nullptr)
          .add("module", reports::text(module->id()));
      kernels_.add(entry);
      addHostStep(entry, reports::text(launch->name()), launch->note());
    } else if (auto* matmul = step.kind_as_Matmul()) {
      addLibraryCall(number, "matmul", *matmul);
    } else if (auto* convolution = step.kind_as_Convolution()) {
      const plan::DType input = plan_.values()->Get(convolution->input())->dtype();
      const bool codes = input == plan::DType::u8 || input == plan::DType::i8;
      addLibraryCall(number, codes ? (isLinear(*convolution) ? "int8 linear" : "int8 convolution") : "convolution",
                     *convolution);
    } else if (auto* attention = step.kind_as_Attention()) {
      calls_.add(noted(plan_, number, attention->note()).add("kind", "attention"));
    } else if (auto* gradient = step.kind_as_AttentionGradient()) {
      calls_.add(noted(plan_, number, gradient->note()).add("kind", "attention derivative"));
    } else if (auto* grouped = step.kind_as_GroupedMatmul()) {
      calls_.add(noted(plan_, number, grouped->note()).add("kind", "grouped matmul"));
    } else if (auto* recurrence = step.kind_as_Recurrence()) {
      const bool layer = recurrence->cell() == plan::RecurrentCell::lstm_layer;
      const std::string cell = layer ? "lstm" : plan::EnumNameRecurrentCell(recurrence->cell());
      Object entry = noted(plan_, number, recurrence->note());
      entry.add("kind", cell + (recurrence->gradient() ? " derivative" : layer ? " layer" : " steps"));
      calls_.add(entry);
      addHostStep(entry, cell, recurrence->note());
    } else if (auto* aten = step.kind_as_AtenCall()) {
      const std::string overload = reports::text(aten->overload());
      Object entry = noted(plan_, number, aten->note());
      entry.add("op", reports::text(aten->op()) + (overload.empty() ? "" : "." + overload))
          .add("reason", reports::text(aten->reason()))
          .add("kind", aten->draw() ? "draw" : "aten");
      (aten->draw() ? calls_ : fallbacks_).add(entry);
    } else if (step.kind_as_Copy()) {
      copies_.add(Object());
    }
  }

  /// Whether a linear layer became this convolution, by the operators that it was made of.
  static bool isLinear(const plan::Convolution& convolution) {
    const plan::KernelNote* note = convolution.note();
    return note && note->ops() && std::ranges::any_of(*note->ops(), [](const flatbuffers::String* op) {
             return op->string_view().find("quantized_linear") != std::string_view::npos;
           });
  }

  template <typename Call> void addLibraryCall(int number, const char* kind, const Call& call) {
    Object entry = noted(plan_, number, call.note());
    entry.add("kind", kind).add("post_ops", names(call.post_ops()));
    if (const plan::KernelNote* note = call.note(); note && note->schedule() && note->schedule()->size() != 0)
      entry.add("schedule", note->schedule()->str());
    // Why it did not take what follows it (docs/ir.md, zefuse.left_out).
    if (const plan::KernelNote* note = call.note(); note && note->left_out() && note->left_out()->size() != 0)
      entry.add("left_out", note->left_out()->str());
    calls_.add(entry);
    addHostStep(entry, kind, call.note());
  }

  /// A step that runs on the host although the plan is for a GPU is a fallback.
  void addHostStep(const Object& step, const std::string& name, const plan::KernelNote* note) {
    if (!note || !note->host() || note->host()->size() == 0)
      return;
    Object entry = step;  // of equal names, readers take the last
    entry.add("op", name).add("kind", "host").add("reason", "runs on the host: " + note->host()->str());
    fallbacks_.add(entry);
  }

  const plan::Plan& plan_;
  List kernels_, calls_, fallbacks_, copies_;
};

}  // namespace

std::string ofPlan(const plan::Plan& plan) { return PlanReport(plan).text(); }

}  // namespace zefuse::reports
