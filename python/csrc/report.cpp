// The plan's notes and the executor's counters as Python dicts, for explain and tests.
#include <pybind11/pybind11.h>

#include "common/plan/plan_generated.h"
#include "python/csrc/compiled_graph.h"

namespace py = pybind11;

namespace zefuse::python {
namespace {

/// An expression's value where it does not depend on a symbol, else None.
py::object constantOf(const plan::Plan& plan, uint32_t index) {
  const plan::ExprNode* node = plan.exprs()->Get(index);
  if (node->op() == plan::ExprOp::constant)
    return py::int_(node->value());
  return py::none();
}

py::list strings(const flatbuffers::Vector<flatbuffers::Offset<flatbuffers::String>>* vector) {
  py::list list;
  if (vector)
    for (const flatbuffers::String* text : *vector)
      list.append(text->str());
  return list;
}

py::dict noted(const plan::Plan& plan, int step, const plan::KernelNote* note) {
  py::dict entry;
  entry["step"] = step;
  entry["ops"] = strings(note ? note->ops() : nullptr);
  entry["sources"] = strings(note ? note->sources() : nullptr);
  entry["bytes"] = note ? constantOf(plan, note->bytes()) : py::none();
  return entry;
}

/// Why a library call did not take what follows it (docs/ir.md, zefuse.left_out).
void addLeftOut(py::dict& entry, const plan::KernelNote* note) {
  if (note && note->left_out() && note->left_out()->size() != 0)
    entry["left_out"] = note->left_out()->str();
}

py::list names(const flatbuffers::Vector<flatbuffers::Offset<plan::PostOp>>* post_ops) {
  py::list list;
  if (post_ops)
    for (const plan::PostOp* post_op : *post_ops)
      list.append(plan::EnumNamePostOpKind(post_op->kind()));
  return list;
}

/// A step that runs on the host although the plan is for a GPU is a fallback.
void addHostStep(py::list& fallbacks, const py::dict& step, const std::string& name, const plan::KernelNote* note) {
  if (!note || !note->host() || note->host()->size() == 0)
    return;
  py::dict entry = py::reinterpret_steal<py::dict>(PyDict_Copy(step.ptr()));
  entry["op"] = name;
  entry["kind"] = "host";
  entry["reason"] = "runs on the host: " + note->host()->str();
  fallbacks.append(entry);
}

std::string text(const flatbuffers::String* string) { return string ? string->str() : std::string(); }

}  // namespace

py::dict reportOf(const plan::Plan& plan) {
  py::list kernels, calls, fallbacks, copies;
  if (plan.steps()) {
    int number = -1;
    for (const plan::Step* step : *plan.steps()) {
      ++number;
      if (auto* launch = step->kind_as_Launch()) {
        py::dict entry = noted(plan, number, launch->note());
        entry["name"] = text(launch->name());
        entry["schedule"] = launch->note() ? text(launch->note()->schedule()) : "";
        const plan::KernelModule* module = plan.modules()->Get(launch->module_());
        entry["target"] = text(module->target());
        entry["module"] = text(module->id());
        kernels.append(entry);
        addHostStep(fallbacks, entry, text(launch->name()), launch->note());
      } else if (auto* matmul = step->kind_as_Matmul()) {
        py::dict entry = noted(plan, number, matmul->note());
        entry["kind"] = "matmul";
        entry["post_ops"] = names(matmul->post_ops());
        addLeftOut(entry, matmul->note());
        calls.append(entry);
        addHostStep(fallbacks, entry, "matmul", matmul->note());
      } else if (auto* convolution = step->kind_as_Convolution()) {
        py::dict entry = noted(plan, number, convolution->note());
        entry["kind"] = "convolution";
        entry["post_ops"] = names(convolution->post_ops());
        addLeftOut(entry, convolution->note());
        calls.append(entry);
        addHostStep(fallbacks, entry, "convolution", convolution->note());
      } else if (auto* attention = step->kind_as_Attention()) {
        py::dict entry = noted(plan, number, attention->note());
        entry["kind"] = "attention";
        calls.append(entry);
      } else if (auto* aten = step->kind_as_AtenCall()) {
        py::dict entry = noted(plan, number, aten->note());
        std::string overload = text(aten->overload());
        entry["op"] = text(aten->op()) + (overload.empty() ? "" : "." + overload);
        entry["reason"] = text(aten->reason());
        entry["kind"] = aten->draw() ? "draw" : "aten";
        (aten->draw() ? calls : fallbacks).append(entry);
      } else if (step->kind_as_Copy()) {
        copies.append(py::dict());
      }
    }
  }
  py::dict report;
  report["device"] = text(plan.device());
  report["steps"] = plan.steps() ? plan.steps()->size() : 0;
  report["kernels"] = kernels;
  report["calls"] = calls;
  report["fallbacks"] = fallbacks;
  report["copies"] = copies;
  py::list symbols;
  if (plan.symbols())
    for (const plan::Symbol* symbol : *plan.symbols())
      symbols.append(text(symbol->name()));
  report["symbols"] = symbols;
  report["modules"] = plan.modules() ? plan.modules()->size() : 0;
  report["inputs"] = plan.inputs() ? plan.inputs()->size() : 0;
  report["outputs"] = plan.outputs() ? plan.outputs()->size() : 0;
  py::object parse = py::module_::import("json").attr("loads");
  std::string compiled = text(plan.report());
  py::dict details = compiled.empty() ? py::dict() : py::dict(parse(compiled));
  for (auto item : details)
    report[item.first] = item.second;
  report["stages"] = py::dict();
  return report;
}

py::dict CompiledGraph::report() const {
  py::dict report = reportOf(executable_->plan());
  report["dump_folder"] = origin_.dump_folder;
  py::dict stages;
  for (const auto& [name, seconds] : origin_.stages)
    stages[py::str(name)] = seconds;
  report["stages"] = stages;
  report["package"] =
      origin_.package_miss.empty() ? origin_.sources.empty() ? "" : "taken from it" : origin_.package_miss;
  return report;
}

py::list CompiledGraph::stepTimes() const {
  py::list times;
  for (const StepTime& time : executable_->stepTimes())
    times.append(py::make_tuple(time.calls, time.seconds, time.thread_seconds));
  return times;
}

py::dict CompiledGraph::counters() const {
  ExecutionCounters counters = executable_->counters();
  py::dict result;
  result["calls"] = counters.calls;
  result["launches"] = counters.launches;
  result["library_calls"] = counters.library_calls;
  result["aten_calls"] = counters.aten_calls;
  result["copies"] = counters.copies;
  result["weights_packed"] = counters.weights_packed;
  result["weight_packs_reused"] = counters.weight_packs_reused;
  result["weights_streamed"] = counters.weights_streamed;
  result["copies_to_device"] = counters.copies_to_device;
  result["copies_to_host"] = counters.copies_to_host;
  result["bytes_to_device"] = counters.bytes_to_device;
  result["bytes_to_host"] = counters.bytes_to_host;
  result["parameters_uploaded"] = counters.parameters_uploaded;
  result["host_steps"] = counters.host_steps;
  result["native_cache_hits"] = counters.native_cache_hits;
  result["native_cache_misses"] = counters.native_cache_misses;
  result["kernels_lowered"] = origin_.kernels_lowered;
  result["arena_bytes"] = counters.arena_bytes;
  result["cache_failure"] = counters.cache_failure;
  return result;
}

}  // namespace zefuse::python
