#include "python/csrc/compiling.h"

#include <unistd.h>

#include <unordered_set>

#include <ATen/Context.h>
#include <torch/csrc/autograd/python_variable.h>

#include "common/plan/plan_generated.h"
#include "common/toolchain/targets.h"
#include "compiler/disassemble.h"
#include "compiler/dump.h"
#include "compiler/import/errors.h"
#include "core/attached_package.h"
#include "core/spills.h"
#include "python/csrc/errors.h"
#include "python/csrc/gil.h"
#include "python/import/fx_reader.h"
#include "runtime/cache/file_cache.h"
#include "runtime/ze/device.h"

namespace py = pybind11;

namespace zefuse::python {
namespace {

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
    if (auto* grouped = step->kind_as_GroupedMatmul(); grouped && grouped->kernel())
      Dump::writeInto(compiled.dumpFolder(), grouped->kernel()->name()->str() + "/kernel.s",
                      disassemble((*natives)[grouped->kernel()->module_()]));
    else if (auto* launch = step->kind_as_Launch())
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
        executable =
            compilingWith(settings, [&] { return package->create(match, settings.run, !settings.package_only); });
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

/// Those that were begun and not taken. With the GIL held.
std::unordered_set<Compiling*>& begun() {
  static auto* all = new std::unordered_set<Compiling*>;  // never destroyed: the interpreter may outlive static objects
  return *all;
}

}  // namespace

Imported import(const py::object& graph_module, const std::vector<unsigned>& parameters, bool host_calls,
                const Options* measured) {
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

Compiling::Compiling(const py::object& graph_module, const std::vector<unsigned>& parameters, const py::dict& options)
    : settings_(settingsOf(options)), process_(getpid()) {
  if (!describedTarget(settings_.compile).on_host && !unwrap(ze::Device::find(settings_.run.device)).hasOurCompiler())
    compiler_ = deviceCompiler(settings_);
  const bool as_it_is = !settings_.package.empty();
  imported_.emplace(import(graph_module, parameters, !settings_.place, as_it_is ? nullptr : &settings_.compile));
  for (const py::object& constant : imported_->constants)
    constants_.push_back(THPVariable_Unpack(constant.ptr()));
  origin_.place = settings_.place;
  origin_.stages = {{"import", secondsSince(start_)}};
  if (!settings_.package.empty())
    executable_ = fromPackage(settings_, imported_->graph, origin_);
  if (!executable_.ok() && as_it_is && !settings_.compile.tuning.empty())
    imported_.emplace(import(graph_module, parameters, !settings_.place, &settings_.compile));
  compilation_.ok = executable_.ok();
}

Compiling::~Compiling() {
  if (!thread_)
    return;
  begun().erase(this);
  if (process_ != getpid()) {
    (void)thread_.release();  // it is the parent's: nothing here would end a wait for it
    return;
  }
  settings_.interrupts.cancel();
  withoutGil([&] { thread_.reset(); });
}

void Compiling::begin() {
  if (executable_.ok())
    return;
  begun().insert(this);
  withoutGil([&] { thread_ = std::make_unique<primitives::TeamThread<void>>([this] { work(); }); });
}

std::unique_ptr<CompiledGraph> Compiling::take() {
  if (std::exchange(taken_, true))
    raise(Status(Code::internal, "a compiled graph was taken twice"));
  if (!thread_) {
    if (!executable_.ok())
      withoutGil([&] { compilingWith(settings_, [&] { work(); }); });
    return finish();
  }
  if (process_ != getpid())
    return nullptr;
  withoutGil([&] { settings_.interrupts.wait(*thread_); });
  begun().erase(this);
  thread_.reset();
  return finish();
}

void Compiling::endAll() {
  for (Compiling* each : begun())
    each->settings_.interrupts.cancel();
  for (Compiling* each : std::exchange(begun(), {}))
    if (each->process_ == getpid())
      withoutGil([&] {
        while (!each->thread_->endsWithin(std::chrono::seconds(1)))
          continue;
      });
}

double Compiling::sinceImport() const { return secondsSince(start_) - origin_.stages.front().second; }

void Compiling::work() {
  // A dump shows every stage, so there is nothing to take from the cache.
  const FileCache cache(settings_.compile.dump_dir.empty() ? settings_.compile.cache_dir : "",
                        settings_.run.cache_limit);
  std::optional<CacheKey> key;
  if (!cache.directory().empty())
    key = imported_->graph.planKey(settings_.compile);
  auto native = std::chrono::steady_clock::now();
  if (auto stored = key ? cache.load(*key) : std::nullopt) {
    origin_.stages.emplace_back("cached plan", sinceImport());
    native = std::chrono::steady_clock::now();
    executable_ = Executable::create(*stored, settings_.run);
  }
  if (!executable_.ok() && !settings_.run.cancelled()) {
    compilation_ =
        imported_->graph.compile(settings_.compile, {{"import", origin_.stages.front().second}},
                                 compiler_ ? core::spillSurvey(settings_.compile.target, *compiler_, cache,
                                                               settings_.run.build_threads, settings_.run.cancelled)
                                           : nullptr,
                                 settings_.run.cancelled);
    origin_.stages.clear();
    imported_->graph.clear();  // LLVM takes as much memory as the graph and its context do
    for (const StageTime& time : compilation_.times)
      origin_.stages.emplace_back(time.name, time.seconds);
    native = std::chrono::steady_clock::now();
    if (compilation_.ok) {
      // Best effort; the kernels' counters say why when it fails. Not what was cancelled: it knows of no spills.
      if (key && !settings_.run.cancelled())
        (void)cache.store(*key, compilation_.plan);
      executable_ = Executable::create(compilation_.plan, settings_.run);
      if (const auto* modules = plan::GetPlan(compilation_.plan.data())->modules())
        origin_.kernels_lowered = modules->size();
    }
  } else {
    compilation_.ok = true;
  }
  origin_.stages.emplace_back("native", secondsSince(native));
}

std::unique_ptr<CompiledGraph> Compiling::finish() {
  if (!compilation_.ok)
    raise(settings_.compile.strict && compilation_.error.find("runs in ATen") != std::string::npos ? "fallback"
                                                                                                   : "unsupported",
          "cannot compile the graph: " + compilation_.error);
  origin_.dump_folder = compilation_.dump_folder;
  auto compiled =
      std::make_unique<CompiledGraph>(unwrap(std::move(executable_)), std::move(constants_), std::move(origin_));
  if (!compiled->dumpFolder().empty())
    dumpBuilt(*compiled);
  return compiled;
}

}  // namespace zefuse::python
