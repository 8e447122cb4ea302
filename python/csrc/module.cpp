// zefuse._C: the compiler and the executor as seen from Python. Thin: python/zefuse gives it its public shape.
#include <dlfcn.h>

#include <chrono>

#include <ATen/Context.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/autograd/python_variable.h>

#include "common/base/build_id.h"
#include "common/base/variables.h"
#include "common/plan/plan_generated.h"
#include "common/toolchain/targets.h"
#include "compiler/disassemble.h"
#include "compiler/dump.h"
#include "compiler/import/errors.h"
#include "core/attached_package.h"
#include "core/compiler_id.h"
#include "core/core_interface_generated.h"
#include "core/imported_graph.h"
#include "core/interface.h"
#include "core/spills.h"
#include "python/csrc/bound_call.h"
#include "python/csrc/cache.h"
#include "python/csrc/code_hash.h"
#include "python/csrc/compiled_graph.h"
#include "python/csrc/errors.h"
#include "python/csrc/gil.h"
#include "python/csrc/interrupts.h"
#include "python/csrc/kept_memory.h"
#include "python/csrc/package.h"
#include "python/csrc/plan_loading.h"
#include "python/csrc/watch.h"
#include "python/import/fx_reader.h"
#include "runtime/cache/file_cache.h"
#include "runtime/executor/aten_calls.h"
#include "runtime/executor/vendor_code.h"
#include "runtime/package/ahead.h"
#include "runtime/ze/device.h"

namespace py = pybind11;

namespace zefuse::python {
namespace {

std::string environmentOr(const char* variable, const std::string& otherwise) {
  const char* value = std::getenv(variable);
  return value && *value ? value : otherwise;
}

/// What kernels for a device are compiled for.
std::string targetOf(const std::string& device_name) {
  if (device_name == "cpu")
    return "cpu";
  auto device = unwrap(ze::Device::find(device_name));
  std::string product = device.product();
  if (product.empty())
    raise("not_found", executor::whyNotCovered(device, ""));
  if (!findGpuTarget(product))
    raise("not_found",
          std::string(ze::kGpuTargetVariable) + "='" + product + "': no such target; `zefuse targets` lists them");
  return product;
}

struct Settings {
  Interrupts interrupts;  // run.cancelled asks it
  Options compile;
  ExecutableOptions run;
  TorchPlace place;           // where the graph's tensors lie
  std::string package;        // whose plans are taken for graphs that they were made of; empty: none
  bool package_only = false;  // and nothing else may run
};

/// From the dict that zefuse.options made and checked: None means that the environment decides.
Settings settingsOf(const py::dict& given) {
  Settings settings;
  settings.run.cancelled = settings.interrupts.asked();
  auto text = [&](const char* name, const std::string& otherwise) {
    return given.contains(name) && !given[name].is_none() ? py::cast<std::string>(given[name]) : otherwise;
  };
  auto flag = [&](const char* name, bool otherwise) {
    return given.contains(name) ? py::cast<bool>(given[name]) : otherwise;
  };
  settings.run.device = text("device", "cpu");
  settings.compile.device = settings.run.device == "cpu" ? "cpu" : "gpu";  // a plan is for every device of a kind
  settings.compile.target = text("target", "");
  if (settings.compile.target.empty())
    settings.compile.target = targetOf(settings.run.device);
  settings.compile.strict = flag("strict", false);
  settings.compile.fuse = flag("fuse", true);
  settings.compile.library_products = text("library_products", "auto");
  settings.compile.library_convolutions = text("library_convolutions", "auto");
  settings.compile.kept_weights = flag("kept_weights", false) && settings.compile.target != "cpu";
  settings.compile.tuning = text("tuning", "");
  settings.compile.list_decisions = flag("list_decisions", false);
  settings.compile.dump_dir = text("dump_dir", environmentOr(kDumpVariable, ""));
  settings.compile.cache_dir = settings.run.cache_dir = text("cache_dir", environmentOr(kCacheVariable, ""));
  const std::string jit = text("jit", environmentOr(kJitVariable, "never"));
  if (jit != "never" && jit != "warn" && jit != "allow")
    raise("invalid_argument", std::string(kJitVariable) + "='" + jit + "': expected never, warn or allow");
  settings.run.jit = jit == "never" ? JitConsent::never : jit == "warn" ? JitConsent::warn : JitConsent::allow;
  if (given.contains("jit_timeout_s"))
    settings.run.jit_timeout_s = py::cast<int>(given["jit_timeout_s"]);
  settings.run.jit_progress = [jit](const std::string& device, const std::string& kernel, size_t number, size_t count) {
    py::gil_scoped_acquire acquired;
    try {
      py::module_::import("zefuse.targets").attr("jit_progress")(jit, device, kernel, number, count);
      return true;
    } catch (py::error_already_set& error) {
      error.discard_as_unraisable("zefuse: progress of the driver's compiler");
      return false;
    }
  };
  if (const std::string place = text("place", ""); !place.empty()) {
    settings.place = c10::Device(place);
    settings.run.in_streams = true;
  }
  settings.run.synchronous = flag("synchronous", false);
  settings.package = text("package", environmentOr(kPackageVariable, ""));
  settings.package_only = flag("package_only", false);
  if (given.contains("cache_limit_mb") && !given["cache_limit_mb"].is_none())
    settings.run.cache_limit = py::cast<uint64_t>(given["cache_limit_mb"]) << 20;
  if (given.contains("build_threads"))
    settings.compile.build_threads = settings.run.build_threads = py::cast<int>(given["build_threads"]);
  if (given.contains("device_timeout_s"))
    settings.run.device_timeout_s = py::cast<int>(given["device_timeout_s"]);
  return settings;
}

/// With the GIL released: `work`. Outside compilers may run in it where it is for a GPU, and Ctrl-C ends them.
template <typename Work> auto compiling(Settings& settings, const Work& work) {
  return settings.compile.target == "cpu" ? work() : settings.interrupts.run(work);
}

struct Imported {
  core::ImportedGraph graph;
  std::vector<py::object> constants;  // the graph's inputs of kind "constant", after the placeholders
};

/// `measured`: options that say what was measured of operators, and whether to list what there is to measure; null: the
/// graph as it is, as packages know it.
Imported import(const py::object& graph_module, const std::vector<unsigned>& parameters, bool host_calls = true,
                const Options* measured = nullptr) {
  Imported imported;
  try {
    FxGraph read = readGraph(imported.graph.context(), graph_module);
    const bool medium = at::globalContext().float32MatmulPrecision() == at::Float32MatmulPrecision::MEDIUM;
    ImportOptions options{parameters, host_calls, medium};
    if (measured) {
      options.tuning = measured->tuning;
      options.eager_operators = !measured->strict;
      options.list_operators = measured->list_decisions;
    }
    imported.graph.import(read.graph, options);
    imported.constants = std::move(read.constants);
  } catch (const ImportError& error) {
    raise("unsupported", error.what());
  }
  return imported;
}

/// What exists only after the plan is built: itself as JSON, and each kernel's machine code.
void dumpBuilt(const CompiledGraph& compiled) {
  Dump::writeInto(compiled.dumpFolder(), "plan.json", compiled.planJson());
  auto natives = compiled.executable().nativeBinaries();
  if (!natives.ok())
    return Dump::writeInto(compiled.dumpFolder(), "native.error", natives.status().toString());
  const auto* steps = compiled.executable().plan().steps();
  if (!steps)
    return;
  for (const plan::Step* step : *steps)
    if (auto* launch = step->kind_as_Launch())
      Dump::writeInto(compiled.dumpFolder(), launch->name()->str() + "/kernel.s",
                      disassemble((*natives)[launch->module_()]));
}

double secondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// The host for a device that nobody has kernels for: compileModule says so.
TargetDescription describedTarget(const Options& options) {
  return TargetDescription::named(options.target).value_or(TargetDescription::cpu());
}

/// The compiler that makes a device's native code, which is part of the plan's key since the plan depends on what it
/// spills; none: whoever compiles the kernels says what is missing.
std::optional<InstalledCompiler> deviceCompiler(Settings& settings) {
  if (describedTarget(settings.compile).on_host)
    return std::nullopt;
  Result<InstalledCompiler> compiler = withoutGil([&] {
    return settings.interrupts.run([&] {
      return installedCompilerFor(settings.compile.target, compiler_answer_deadline, settings.run.cancelled);
    });
  });
  if (!compiler.ok())
    return std::nullopt;
  settings.compile.device_compiler = compiler->identity();
  return std::move(*compiler);
}

/// The graph's plan from the attached package. Failed where it is of no use, and origin.package_miss says why; raises
/// that where nothing else may run, and what is wrong with the package itself.
Result<std::unique_ptr<Executable>> fromPackage(Settings& settings, const core::ImportedGraph& graph, Origin& origin) {
  const auto start = std::chrono::steady_clock::now();
  auto package = unwrap(withoutGil([&] { return core::AttachedPackage::open(settings.package); }));
  Result<std::unique_ptr<Executable>> executable = Status(Code::not_found, "");
  core::AttachedPackage::Match match;
  if (!settings.compile.dump_dir.empty()) {
    match.reason = package->name() + " is not used: dump_dir is set, and a dump shows every stage of compiling";
  } else {
    withoutGil([&] {
      match = package->find(graph.packageKey(settings.compile));
      if (!match.section.empty())
        executable = compiling(settings, [&] { return package->create(match, settings.run, !settings.package_only); });
    });
  }
  if (executable.ok()) {
    origin.stages.emplace_back("package", secondsSince(start));
    origin.sources = std::move(match.sources);
    return executable;
  }
  origin.package_miss = match.section.empty() ? match.reason : executable.status().message();
  if (settings.package_only)
    raise("not_found", origin.package_miss + " (package_only is set, so it is not compiled here)");
  return executable;
}

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

std::unique_ptr<CompiledGraph> compile(const py::object& graph_module, const std::vector<unsigned>& parameters,
                                       const py::dict& options) {
  Settings settings = settingsOf(options);
  auto start = std::chrono::steady_clock::now();
  std::optional<InstalledCompiler> compiler;
  if (!describedTarget(settings.compile).on_host && !unwrap(ze::Device::find(settings.run.device)).hasOurCompiler())
    compiler = deviceCompiler(settings);
  const bool as_it_is = !settings.package.empty();
  std::optional<Imported> imported(
      import(graph_module, parameters, !settings.place, as_it_is ? nullptr : &settings.compile));
  std::vector<at::Tensor> constants;
  for (const py::object& constant : imported->constants)
    constants.push_back(THPVariable_Unpack(constant.ptr()));
  Origin origin;
  origin.place = settings.place;
  origin.stages = {{"import", secondsSince(start)}};
  auto sinceImport = [&] { return secondsSince(start) - origin.stages.front().second; };
  Result<std::unique_ptr<Executable>> executable = Status(Code::internal, "not built");
  if (!settings.package.empty())
    executable = fromPackage(settings, imported->graph, origin);
  if (!executable.ok() && as_it_is && !settings.compile.tuning.empty())
    imported.emplace(import(graph_module, parameters, !settings.place, &settings.compile));
  Compilation compilation;
  compilation.ok = executable.ok();
  if (!executable.ok()) {
    py::gil_scoped_release released;
    compiling(settings, [&] {
      // A dump shows every stage, so there is nothing to take from the cache.
      const FileCache cache(settings.compile.dump_dir.empty() ? settings.compile.cache_dir : "",
                            settings.run.cache_limit);
      std::optional<CacheKey> key;
      if (!cache.directory().empty())
        key = imported->graph.planKey(settings.compile);
      auto native = std::chrono::steady_clock::now();
      if (auto stored = key ? cache.load(*key) : std::nullopt) {
        origin.stages.emplace_back("cached plan", sinceImport());
        native = std::chrono::steady_clock::now();
        executable = Executable::create(*stored, settings.run);
      }
      if (!executable.ok() && !settings.run.cancelled()) {
        compilation =
            imported->graph.compile(settings.compile, {{"import", origin.stages.front().second}},
                                    compiler ? core::spillSurvey(settings.compile.target, *compiler, cache,
                                                                 settings.run.build_threads, settings.run.cancelled)
                                             : nullptr,
                                    settings.run.cancelled);
        origin.stages.clear();
        imported->graph.clear();  // LLVM takes as much memory as the graph and its context do
        for (const StageTime& time : compilation.times)
          origin.stages.emplace_back(time.name, time.seconds);
        native = std::chrono::steady_clock::now();
        if (compilation.ok) {
          // Best effort; the kernels' counters say why when it fails. Not what was cancelled: it knows of no spills.
          if (key && !settings.run.cancelled())
            (void)cache.store(*key, compilation.plan);
          executable = Executable::create(compilation.plan, settings.run);
          if (const auto* modules = plan::GetPlan(compilation.plan.data())->modules())
            origin.kernels_lowered = modules->size();
        }
      } else {
        compilation.ok = true;
      }
      origin.stages.emplace_back("native", secondsSince(native));
    });
  }
  if (!compilation.ok)
    raise(settings.compile.strict && compilation.error.find("runs in ATen") != std::string::npos ? "fallback"
                                                                                                 : "unsupported",
          "cannot compile the graph: " + compilation.error);
  origin.dump_folder = compilation.dump_folder;
  auto compiled =
      std::make_unique<CompiledGraph>(unwrap(std::move(executable)), std::move(constants), std::move(origin));
  if (!compiled->dumpFolder().empty())
    dumpBuilt(*compiled);
  return compiled;
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
      compilation = compiling(
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
  module.def("compile", &compile, py::arg("graph_module"), py::arg("parameters"), py::arg("options"));
  module.def("compile_plan", &compilePlan, py::arg("graph_module"), py::arg("parameters"), py::arg("options"));
  module.def("device_fields", &deviceFields, py::arg("device"));
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
