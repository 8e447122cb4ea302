// zefuse._C: the compiler and the executor as seen from Python. Thin: python/zefuse gives it its public shape.
#include <dlfcn.h>

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/autograd/python_variable.h>

#include "common/base/build_id.h"
#include "common/plan/plan_generated.h"
#include "common/toolchain/targets.h"
#include "core/compiler_id.h"
#include "core/core_interface_generated.h"
#include "core/interface.h"
#include "core/spills.h"
#include "python/csrc/bound_call.h"
#include "python/csrc/cache.h"
#include "python/csrc/code_hash.h"
#include "python/csrc/compiled_graph.h"
#include "python/csrc/compiling.h"
#include "python/csrc/errors.h"
#include "python/csrc/gil.h"
#include "python/csrc/kept_memory.h"
#include "python/csrc/meanwhile.h"
#include "python/csrc/package.h"
#include "python/csrc/plan_loading.h"
#include "python/csrc/settings.h"
#include "python/csrc/watch.h"
#include "runtime/cache/file_cache.h"
#include "runtime/executor/aten_calls.h"
#include "runtime/package/ahead.h"
#include "runtime/ze/device.h"

namespace py = pybind11;

namespace zefuse::python {
namespace {

py::dict toDict(const package::GraphKey& key) {
  py::dict fields, result;
  for (const auto& [name, value] : key.fields)
    fields[py::str(name)] = value;
  result["fields"] = fields;
  result["inputs"] = py::cast(key.inputs);
  result["outputs"] = py::cast(key.outputs);
  result["arguments"] = py::cast(key.arguments);
  result["symbols"] = py::cast(key.symbols);
  result["unread"] = py::cast(key.unread);
  return result;
}

/// What a package keeps of a graph to find its plan again.
py::dict graphKeyOf(const py::object& graph_module, const std::vector<unsigned>& parameters, const py::dict& options) {
  const Settings settings = settingsOf(options);
  return toDict(import(graph_module, parameters).graph.packageKey(settings.compile));
}

/// What a measurement on a device holds for: the device's model, what it is compiled for, its driver's build. Raises
/// not_found, with the devices that there are.
std::vector<std::pair<std::string, std::string>> deviceFields(const std::string& name) {
  const auto device = unwrap(withoutGil([&] { return ze::Device::find(name); }));
  std::vector<std::pair<std::string, std::string>> fields = {
      {"name", device.description},
      {"target", device.isCpu() ? std::string(cpuTargets()[hostCpuLevel()].name) : device.product()}};
  for (auto& field : device.nativeFields())
    fields.push_back(std::move(field));
  return fields;
}

/// A plan for a target that this machine need not have: {"plan": bytes, "constants": tensors that follow the user's
/// inputs, "report"}. options["target"] names a product.
py::dict compilePlan(const py::object& graph_module, const std::vector<unsigned>& parameters, const py::dict& options) {
  Settings settings = settingsOf(options);
  const std::optional<InstalledCompiler> compiler = deviceCompiler(settings);
  Imported imported = import(graph_module, parameters, true, &settings.compile);
  Compilation compilation;
  {
    py::gil_scoped_release released;
    const FileCache cache(settings.compile.cache_dir, settings.run.cache_limit);
    const CacheKey key = imported.graph.planKey(settings.compile);
    if (auto stored = cache.load(key)) {
      compilation.plan = std::move(*stored);
      compilation.ok = true;
    } else {
      const SpillSurvey spills = compiler ? core::spillSurvey(settings.compile.target, *compiler, cache,
                                                              settings.run.build_threads, settings.run.cancelled)
                                          : nullptr;
      compilation = compilingWith(
          settings, [&] { return imported.graph.compile(settings.compile, {}, spills, settings.run.cancelled); });
      if (compilation.ok)
        (void)cache.store(key, compilation.plan);  // best effort
    }
  }
  if (!compilation.ok)
    raise("unsupported", "cannot compile the graph for " + settings.compile.target + ": " + compilation.error);
  py::dict result;
  result["plan"] = py::bytes(reinterpret_cast<const char*>(compilation.plan.data()), compilation.plan.size());
  result["constants"] = imported.constants;
  result["report"] = reportOf(*plan::GetPlan(compilation.plan.data()));
  return result;
}

/// The stage-1 text of a graph, for tests of the importer.
std::string importToText(const py::object& graph_module, const std::vector<unsigned>& parameters) {
  return import(graph_module, parameters).graph.text();
}

/// For docs/operators.md: "" or why a graph has no kernels for the target ("cpu", "dg2-g11").
std::string whyNotLowered(const py::object& graph_module, const std::string& target_name) {
  auto target = TargetDescription::named(target_name);
  if (!target)
    raise("not_found", target_name + " is no known target");
  return import(graph_module, {}).graph.whyNotLowered(*target);
}

/// The file of this module.
std::string ownFile() {
  Dl_info info{};
  return dladdr(reinterpret_cast<const void*>(&ownFile), &info) && info.dli_fname ? info.dli_fname : "";
}

/// Before anything else of the core library is called: a class that another build of it lays out differently would be
/// read wrongly, or crash.
void requireOwnCore() {
  if (core::interfaceHash() != std::string_view(ZEFUSE_CORE_INTERFACE))
    throw py::import_error(ownFile() + " and " + core::libraryFile() + " are of different builds of zefuse");
}

/// This build of the compiler, and of this module, which reads graphs and guards.
std::string buildId() {
  static const char digits[] = "0123456789abcdef";
  std::string id = core::compilerId() + "-";
  for (const unsigned char byte : buildIdOf(reinterpret_cast<const void*>(&ownFile)).substr(0, 8))
    id += {digits[byte >> 4], digits[byte & 15]};
  return id;
}

}  // namespace
}  // namespace zefuse::python

PYBIND11_MODULE(_C, module) {
  using namespace zefuse::python;
  requireOwnCore();
  const std::string file = ownFile();
  zefuse::setAtenBridgeFolder(file.substr(0, file.rfind('/')));  // compiled for the same torch
  module.doc() = "The compiled part of zefuse. Use the package zefuse instead.";
  py::class_<SavedBlock, std::shared_ptr<SavedBlock>>(module, "SavedBlock")
      .def_property_readonly("numbers", &SavedBlock::numbers)
      .def_property_readonly("bytes", [](const SavedBlock& block) { return block.bytes; })
      .def("shapes",
           [](const SavedBlock& block) {
             py::list shapes;
             for (const SavedBlock::Entry& entry : block.entries)
               shapes.append(py::tuple(py::cast(entry.sizes)));
             return shapes;
           })
      .def("tensors", [](const SavedBlock& block, const py::object& bytes) {
        py::list made;
        for (const at::Tensor& tensor : block.tensors(THPVariable_Unpack(bytes.ptr())))
          made.append(py::reinterpret_steal<py::object>(THPVariable_Wrap(tensor)));
        return made;
      });
  py::class_<CompiledGraph> compiled_graph(module, "CompiledGraph");
  compiled_graph.attr("_boxed_call") = true;  // AOTAutograd: takes one list and empties it
  compiled_graph.def("__call__", &CompiledGraph::call, py::arg("arguments"))
      .def("bind", &BoundCall::bind, py::arg("before"), py::arg("open"), py::arg("after"), py::keep_alive<0, 1>())
      .def("report", &CompiledGraph::report)
      .def("counters", &CompiledGraph::counters)
      .def("time_steps", &CompiledGraph::timeSteps, py::arg("on"))
      .def("step_times", &CompiledGraph::stepTimes)
      .def("plan_json", &CompiledGraph::planJson)
      .def("plan_bytes", &CompiledGraph::planBytes)
      .def("output_strides", &CompiledGraph::outputStrides)
      .def("constants", &CompiledGraph::constantTensors)
      .def("save_in_block", &CompiledGraph::saveInBlock, py::arg("outputs"))
      .def("take_from_block", &CompiledGraph::takeFromBlock, py::arg("block"), py::arg("arguments"))
      .def("invalidate_weights", &CompiledGraph::invalidateWeights)
      .def("free_idle_memory", &CompiledGraph::freeIdleMemory)
      .def("synchronize", &CompiledGraph::synchronize)
      .def_property_readonly("package_miss", &CompiledGraph::packageMiss)
      .def_property_readonly("dump_folder", &CompiledGraph::dumpFolder);
  py::class_<BoundCall>(module, "BoundCall").def("__call__", &BoundCall::call, py::arg("arguments"));
  py::class_<Compiling>(module, "Compiling").def("take", &Compiling::take);
  module.def(
      "compile",
      [](const py::object& graph_module, const std::vector<unsigned>& parameters, const py::dict& options) {
        return Compiling(graph_module, parameters, options).take();
      },
      py::arg("graph_module"), py::arg("parameters"), py::arg("options"));
  module.def(
      "begin",
      [](const py::object& graph_module, const std::vector<unsigned>& parameters, const py::dict& options) {
        auto compiling = std::make_unique<Compiling>(graph_module, parameters, options);
        compiling->begin();
        return compiling;
      },
      py::arg("graph_module"), py::arg("parameters"), py::arg("options"));
  // Before static objects go, which compilers use.
  py::module_::import("atexit").attr("register")(py::cpp_function([] {
    Compiling::endAll();
    withoutGil([] { zefuse::endBuilding(); });
  }));
  module.def("compile_plan", &compilePlan, py::arg("graph_module"), py::arg("parameters"), py::arg("options"));
  module.def("device_fields", &deviceFields, py::arg("device"));
  module.def("set_meanwhile", &setMeanwhile, py::arg("function"));
  module.def("build_id", &buildId);
  module.def("code_hash", &codeHash, py::arg("code"));
  module.def("kept_memory", [] {
    const kept_memory::Figures figures = kept_memory::figures();
    py::dict dict;
    dict["in_use"] = figures.in_use;
    dict["kept"] = figures.kept;
    dict["taken_again"] = figures.taken_again;
    return dict;
  });
  py::class_<Watch>(module, "Watch").def(py::init<const py::list&>()).def("unchanged", &Watch::unchanged);
  py::class_<PlanLoading>(module, "PlanLoading")
      .def(py::init([](std::string plan, const py::dict& options) {
             Settings settings = settingsOf(options);
             return std::make_unique<PlanLoading>(std::move(plan), settings.run, settings.place);
           }),
           py::arg("plan"), py::arg("options"))
      .def("take", &PlanLoading::take);
  module.def("graph_key", &graphKeyOf, py::arg("graph_module"), py::arg("parameters"), py::arg("options"));
  module.def("package_write", &writePackage, py::arg("path"), py::arg("sections"));
  module.def(
      "package_natives",
      [](const py::bytes& plan, const std::vector<std::string>& targets, const py::dict& options,
         const py::object& progress) { return nativeSections(plan, targets, settingsOf(options).run, progress); },
      py::arg("plan"), py::arg("targets"), py::arg("options"), py::arg("progress"));
  module.def(
      "package_load",
      [](const std::string& path, const py::dict& options) {
        const Settings settings = settingsOf(options);
        return loadPackage(openPackage(path), settings.run, settings.place);
      },
      py::arg("path"), py::arg("options"));
  module.def(
      "package_load_bytes",
      [](const py::buffer& bytes, const py::dict& options) {
        const Settings settings = settingsOf(options);
        return loadPackage(copyPackage(bytes), settings.run, settings.place);
      },
      py::arg("bytes"), py::arg("options"));
  defineCacheFunctions(module);
  module.def("lowered_targets", &zefuse::core::loweredOperators);
  module.def("why_not_lowered", &whyNotLowered, py::arg("graph_module"), py::arg("target"));
  module.def("import_to_text", &importToText, py::arg("graph_module"), py::arg("parameters"));
}
