#include "compiler/pipeline.h"

#include <chrono>

#include "compiler/dump.h"
#include "compiler/fuse/graph.h"
#include "compiler/fuse/pipeline.h"
#include "compiler/lower_graph.h"
#include "compiler/plan/builder.h"
#include "compiler/stage_dumps.h"
#include "lowering/analysis/library_products.h"
#include "lowering/dialect/Zefuse.h"
#include "lowering/lower.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/Support/JSON.h"

using namespace mlir;

namespace zefuse {
namespace {

class Clock {
public:
  explicit Clock(std::vector<StageTime>& times) : times_(times) {}
  void lap(std::string name) {
    auto now = std::chrono::steady_clock::now();
    times_.push_back({std::move(name), std::chrono::duration<double>(now - last_).count()});
    last_ = now;
  }

private:
  std::vector<StageTime>& times_;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

/// Pairs of kernels, by their number among the plan's launches, that fusion left apart, each with the reason.
llvm::json::Array notJoined(func::FuncOp graph) {
  llvm::json::Array pairs;
  llvm::DenseMap<int64_t, int64_t> launch;
  for (auto [number, kernel] : llvm::enumerate(graph.getOps<KernelOp>()))
    if (auto groups = kernel.getGroups())
      for (int64_t group : *groups)
        launch[group] = static_cast<int64_t>(number);
  for (Attribute entry : notJoinedOf(graph)) {
    auto refusal = cast<DictionaryAttr>(entry);
    auto kernelOf = [&](StringRef name) { return launch.lookup(refusal.getAs<IntegerAttr>(name).getInt()); };
    if (kernelOf("first") != kernelOf("second"))
      pairs.push_back(llvm::json::Object{{"first", kernelOf("first")},
                                         {"second", kernelOf("second")},
                                         {"reason", refusal.getAs<StringAttr>("reason").str()}});
  }
  return pairs;
}

/// Kernels of several operations for which neither the target nor the host has code. {group, reason} each.
SmallVector<Attribute> refusedKernels(func::FuncOp graph, const LoweredGraph& lowered) {
  SmallVector<Attribute> refused;
  Builder builder(graph.getContext());
  for (auto kernel : graph.getOps<KernelOp>()) {
    const LoweredLaunch& launch = *lowered.find(kernel);
    if (launch.kernel || !hasSeveralComputes(kernel.getBody().front()))
      continue;
    for (int64_t group : kernel.getGroups().value_or(ArrayRef<int64_t>()))
      refused.push_back(
          builder.getDictionaryAttr({builder.getNamedAttr("group", builder.getI64IntegerAttr(group)),
                                     builder.getNamedAttr("reason", builder.getStringAttr(launch.refusal))}));
  }
  return refused;
}

/// For each launch of the plan, in order: the kernel's key, and what a measurement may choose.
llvm::json::Array decisionsOf(func::FuncOp graph, const LoweredGraph& lowered) {
  llvm::json::Array launches;
  for (Operation& op : graph.getBody().front()) {
    const LoweredLaunch* launch = lowered.find(&op);
    if (!launch || !launch->kernel)
      continue;
    llvm::json::Array decisions;
    if (launch->why_on_host.empty())  // else it is the host's kernel, which is not this target's
      for (const Decision& decision : launch->kernel->decisions)
        decisions.push_back(llvm::json::Object{{"name", decision.name},
                                               {"taken", decision.taken},
                                               {"modelled", decision.modelled},
                                               {"choices", llvm::json::Array(decision.choices)}});
    launches.push_back(
        llvm::json::Object{{"key", launch->key}, {"name", launch->name}, {"decisions", std::move(decisions)}});
  }
  return launches;
}

/// What of operators a measurement may choose (import/implementations.h).
llvm::json::Array operatorsOf(func::FuncOp graph) {
  llvm::json::Array operators;
  auto listed = graph->getAttrOfType<ArrayAttr>("zefuse.operators");
  for (Attribute attr : listed ? listed : ArrayAttr::get(graph.getContext(), {})) {
    auto entry = cast<DictionaryAttr>(attr);
    llvm::json::Object choices;
    for (const NamedAttribute& choice : entry.getAs<DictionaryAttr>("choices"))
      choices[choice.getName().getValue()] = cast<IntegerAttr>(choice.getValue()).getInt();
    llvm::json::Object listed_operator{{"choices", std::move(choices)}};
    for (StringRef name : {"node", "key", "op"})
      listed_operator[name] = entry.getAs<StringAttr>(name).getValue();
    operators.push_back(std::move(listed_operator));
  }
  return operators;
}

/// Of each step of the plan: the FX nodes that it computes.
llvm::json::Array nodesOfSteps(func::FuncOp graph) {
  llvm::json::Array steps;
  for (Operation& op : graph.getBody().front().without_terminator()) {
    if (isa<ViewOp, SizeOp>(op))
      continue;
    llvm::json::Array nodes;
    for (Origin& origin : originsOf(op.getLoc()))
      nodes.push_back(origin.node);
    steps.push_back(std::move(nodes));
  }
  return steps;
}

/// No times: the same graph gives the same plan, byte for byte.
std::string reportJson(func::FuncOp graph, const LoweredGraph& lowered, const Options& options) {
  llvm::json::Object report{{"not_joined", notJoined(graph)},
                            {"options", llvm::json::Object{{"device", options.device},
                                                           {"target", options.target},
                                                           {"strict", options.strict},
                                                           {"fuse", options.fuse}}}};
  if (options.list_decisions) {
    report["decisions"] = decisionsOf(graph, lowered);
    report["operators"] = operatorsOf(graph);
    report["nodes"] = nodesOfSteps(graph);
  }
  std::string text;
  llvm::raw_string_ostream(text) << llvm::json::Value(std::move(report));
  return text;
}

/// While it lives, passes that would start after `cancelled` says so are skipped. One at a time per context.
class SkipWhenCancelled {
public:
  SkipWhenCancelled(MLIRContext* context, const CancelCheck& cancelled) : context_(context) {
    context_->registerActionHandler([&cancelled](function_ref<void()> step, const tracing::Action& action) {
      if (!isa<PassExecutionAction>(action) || !cancelled())
        step();
    });
  }
  ~SkipWhenCancelled() { context_->registerActionHandler({}); }
  SkipWhenCancelled(const SkipWhenCancelled&) = delete;
  SkipWhenCancelled& operator=(const SkipWhenCancelled&) = delete;

private:
  MLIRContext* context_;
};

/// Stage 1 to stage 2, verified at its end and, where it is dumped, after each pass. When cancelled it succeeds with
/// what is there.
LogicalResult fuseModule(ModuleOp module, const FuseOptions& options, const Dump& dump = Dump(""),
                         const CancelCheck& cancelled = {}) {
  const SkipWhenCancelled skip(module.getContext(), cancelled);
  PassManager passes(module.getContext(), module->getName().getStringRef());
  buildFusePipeline(passes, options);
  // After each pass it takes an eighth of fusing: for who looks at stages, and in zefuse-opt and the tests.
  passes.enableVerifier(dump.enabled());
  if (dump.enabled())
    passes.addInstrumentation(std::make_unique<StageDumps>(dump));
  return success(succeeded(passes.run(module)) && succeeded(verify(module)));
}

/// " (relu at model.py:12)": what an error is about, as the user wrote it; nothing where that is not known.
std::string placesOf(Location location) {
  std::string places;
  for (const Origin& origin : originsOf(location)) {
    const std::string place =
        (origin.op.empty() ? origin.node : origin.op) + (origin.source.empty() ? "" : " at " + origin.source);
    if (places.find(place) == std::string::npos)  // of a loop's rounds, one
      places += (places.empty() ? "" : ", ") + place;
  }
  return places.empty() ? places : " (" + places + ")";
}

}  // namespace

std::string whyNotLowered(ModuleOp module, const TargetDescription& target) {
  std::string error;
  ScopedDiagnosticHandler handler(module.getContext(), [&](Diagnostic& diagnostic) {
    if (diagnostic.getSeverity() == DiagnosticSeverity::Error && error.empty())
      error = diagnostic.str();
    return success();
  });
  FuseOptions options;
  options.target = target.name;
  bool fine = succeeded(fuseModule(module, options));
  if (fine)
    module.walk([&](KernelOp kernel) { fine &= succeeded(lowerKernel(kernel, target)); });
  return fine ? std::string() : error.empty() ? "failed without saying why" : error;
}

Compilation compileModule(ModuleOp module, const Options& options, std::vector<StageTime> times,
                          const SpillSurvey& spills, const CancelCheck& cancelled) {
  prepareToLower();  // on another core, while the stages before it run
  Compilation result;
  Dump dump(options.dump_dir);
  result.dump_folder = dump.folder();
  ScopedDiagnosticHandler handler(module.getContext(), [&](Diagnostic& diagnostic) {
    if (diagnostic.getSeverity() != DiagnosticSeverity::Error || !result.error.empty())
      return success();
    result.error = diagnostic.str() + placesOf(diagnostic.getLocation());
    return success();
  });
  Clock clock(times);
  auto graph = module.lookupSymbol<func::FuncOp>("graph");
  if (!graph) {
    result.error = "internal: the importer made no function @graph";
    return result;
  }
  std::optional<TargetDescription> description = TargetDescription::named(options.target);
  if (!description) {
    result.error = "device '" + options.device + "' is a '" + options.target +
                   "', for which there are no kernels; `zefuse targets` lists what there is";
    return result;
  }
  const FailureOr<TunedKernels> tuned = readTuning(options.tuning, result.error);
  if (failed(tuned))
    return result;
  auto stages = [&]() -> LogicalResult {
    if (cancelled() || failed(verify(module)))
      return failure();
    if (dump.enabled())
      StageDumps::write(dump, "1_imported", module);
    FuseOptions fuse;
    fuse.target = description->name;
    fuse.fuse = options.fuse;
    fuse.strict = options.strict;
    fuse.library = options.library_products;
    fuse.convolutions = options.library_convolutions;
    if (options.kept_weights && !description->on_host)
      graph->setAttr(kept_weights, UnitAttr::get(module.getContext()));
    if (options.tf32_products)
      graph->setAttr(tf32_products, UnitAttr::get(module.getContext()));
    if (options.tf32_convolutions)
      graph->setAttr(tf32_convolutions, UnitAttr::get(module.getContext()));
    OwningOpRef<ModuleOp> imported = module.clone();
    if (failed(fuseModule(module, fuse, dump, cancelled)) || cancelled())
      return failure();
    clock.lap("fuse");
    LowerOptions lowering{*description, options.build_threads, spills, cancelled, *tuned, nullptr};
    if (dump.enabled())
      lowering.dump = [&](std::string_view kernel, std::string_view stage, std::string_view text) {
        dump.write(std::string(kernel) + "/" + std::string(stage), text);
      };
    FailureOr<LoweredGraph> lowered = lowerGraph(graph, lowering);
    // What the schedule refuses though the analysis did not say so: fused once more, without that kernel. Each round
    // divides another one.
    for (SmallVector<Attribute> refused; succeeded(lowered);) {
      SmallVector<Attribute> more = refusedKernels(graph, *lowered);
      if (more.empty())
        break;
      refused.append(more);
      module.getBody()->clear();
      for (Operation& op : *imported->getBody())
        module.push_back(op.clone());
      graph = module.lookupSymbol<func::FuncOp>("graph");
      graph->setAttr("zefuse.refused", ArrayAttr::get(module.getContext(), refused));
      if (failed(fuseModule(module, fuse, dump, cancelled)) || cancelled())
        return failure();
      lowered = lowerGraph(graph, lowering);
    }
    if (failed(lowered))
      return failure();
    FailureOr<BuiltPlan> built = buildPlan(
        graph, *lowered, {options.device, reportJson(graph, *lowered, options), !options.strict, options.kept_weights});
    if (failed(built))
      return failure();
    clock.lap("lower");
    result.plan = std::move(built->bytes);
    result.times = times;
    return success();
  };
  result.ok = succeeded(stages());
  if (!result.ok && cancelled())
    result.error = "compiling was cancelled";
  if (!result.ok && result.error.empty())
    result.error = "internal: a stage failed without saying why";
  return result;
}

}  // namespace zefuse
