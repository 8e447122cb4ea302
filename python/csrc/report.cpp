// The plan's notes and the executor's counters as Python dicts, for explain and tests.
#include <pybind11/pybind11.h>

#include "common/plan/plan_generated.h"
#include "python/csrc/compiled_graph.h"
#include "runtime/reports/reports.h"

namespace py = pybind11;

namespace zefuse::python {
py::dict reportOf(const plan::Plan& plan) {
  return py::module_::import("zefuse.reports").attr("of_plan")(reports::ofPlan(plan));
}

py::dict CompiledGraph::report() const {
  py::dict report = reportOf(executable_->plan());
  report["dump_folder"] = origin_.dump_folder;
  report["host_steps"] = executable_->hasHostSteps();  // copies of tensors that lie differently among them
  report["place"] = origin_.place ? origin_.place->str() : "cpu";
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
  result["replays"] = counters.replays;
  result["native_cache_hits"] = counters.native_cache_hits;
  result["native_cache_misses"] = counters.native_cache_misses;
  result["kernels_lowered"] = origin_.kernels_lowered;
  result["arena_bytes"] = counters.arena_bytes;
  result["cache_failure"] = counters.cache_failure;
  return result;
}

}  // namespace zefuse::python
