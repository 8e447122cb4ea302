#include "compiler/pipeline.h"

#include <chrono>

#include "compiler/dump.h"
#include "compiler/fuse/passes.h"
#include "compiler/plan/builder.h"
#include "compiler/spill_rounds.h"
#include "lowering/dialect/Zefuse.h"
#include "lowering/lower.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/Verifier.h"
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

std::string textOf(Operation* op) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  op->print(stream, OpPrintingFlags().enableDebugInfo(true, true).useLocalScope());
  return text;
}

/// Pairs of kernels, by their number among the plan's launches, that fusion left apart, each with the reason.
llvm::json::Array notJoined(func::FuncOp graph) {
  llvm::json::Array pairs;
  auto refusals = graph->getAttrOfType<ArrayAttr>("zefuse.not_joined");
  if (!refusals)
    return pairs;
  llvm::DenseMap<int64_t, int64_t> launch;
  for (auto [number, kernel] : llvm::enumerate(graph.getOps<KernelOp>()))
    if (auto groups = kernel->getAttrOfType<DenseI64ArrayAttr>("zefuse.groups"))
      for (int64_t group : groups.asArrayRef())
        launch[group] = static_cast<int64_t>(number);
  for (auto refusal : refusals.getAsRange<DictionaryAttr>()) {
    auto kernelOf = [&](StringRef name) { return launch.lookup(refusal.getAs<IntegerAttr>(name).getInt()); };
    if (kernelOf("first") != kernelOf("second"))
      pairs.push_back(llvm::json::Object{{"first", kernelOf("first")},
                                         {"second", kernelOf("second")},
                                         {"reason", refusal.getAs<StringAttr>("reason").str()}});
  }
  return pairs;
}

/// No times: the same graph gives the same plan, byte for byte.
std::string reportJson(func::FuncOp graph, const Options& options) {
  llvm::json::Object report{{"not_joined", notJoined(graph)},
                            {"options", llvm::json::Object{{"device", options.device},
                                                           {"target", options.target},
                                                           {"strict", options.strict},
                                                           {"fuse", options.fuse}}}};
  std::string text;
  llvm::raw_string_ostream(text) << llvm::json::Value(std::move(report));
  return text;
}

/// The first operator without a lowering, for strict mode.
LogicalResult refuseFallbacks(func::FuncOp graph) {
  auto result = graph.walk([](AtenOp op) {
    if (op.getDraw())
      return WalkResult::advance();
    op.emitError() << op.getOp() << " runs in ATen (" << op.getReason() << "): options={'strict': False} allows it";
    return WalkResult::interrupt();
  });
  return failure(result.wasInterrupted());
}

LogicalResult fuseGraph(func::FuncOp graph) {
  if (failed(prepare(graph)) || failed(fuseLibraryEpilogues(graph)) || failed(fuseKernels(graph, true)))
    return failure();
  return success(succeeded(assignLayouts(graph)) && succeeded(divideRefusedKernels(graph)));
}

std::optional<TargetDescription> targetOf(const Options& options) {
  return options.target == "cpu" ? std::optional(TargetDescription::cpu())
                                 : TargetDescription::intelGpu(options.target);
}

}  // namespace

std::string whyNotLowered(ModuleOp module, const TargetDescription& target) {
  std::string error;
  ScopedDiagnosticHandler handler(module.getContext(), [&](Diagnostic& diagnostic) {
    if (diagnostic.getSeverity() == DiagnosticSeverity::Error && error.empty())
      error = diagnostic.str();
    return success();
  });
  auto graph = module.lookupSymbol<func::FuncOp>("graph");
  bool fine = graph && succeeded(fuseGraph(graph));
  if (fine)
    graph.walk([&](KernelOp kernel) { fine &= succeeded(lowerKernel(kernel, target)); });
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
    llvm::raw_string_ostream stream(result.error);
    stream << diagnostic.str() << " (" << diagnostic.getLocation() << ")";
    return success();
  });
  Clock clock(times);
  auto graph = module.lookupSymbol<func::FuncOp>("graph");
  if (!graph) {
    result.error = "internal: the importer made no function @graph";
    return result;
  }
  auto run = [&](std::string_view stage, auto step) {
    if (cancelled() || failed(step()))
      return failure();
    if (dump.enabled())
      dump.write(std::string(stage) + ".mlir", textOf(module));
    return verify(module);
  };

  std::optional<TargetDescription> description = targetOf(options);
  if (!description) {
    result.error = "device '" + options.device + "' is a '" + options.target +
                   "', for which there are no kernels; `zefuse targets` lists what there is";
    return result;
  }
  const bool cpu = description->kind == TargetDescription::Kind::cpu;
  auto dumpTo = [&](StringRef name) -> StageDump {
    if (!dump.enabled())
      return nullptr;
    return [&dump, folder = name.str() + "/"](std::string_view stage, std::string_view text) {
      dump.write(folder + std::string(stage), text);
    };
  };
  Lowerings lowerings;
  SpillRounds rounds(spills);
  // For a plan that is built again: what was lowered and does not spill.
  llvm::DenseMap<Operation*, LoweredKernel> lowered;
  auto once = [&](Operation* op, llvm::function_ref<FailureOr<LoweredKernel>()> lower) -> FailureOr<LoweredKernel> {
    if (cancelled())
      return failure();
    if (!spills)
      return lower();
    if (auto known = lowered.find(op); known != lowered.end())
      return known->second;
    FailureOr<LoweredKernel> made = lower();
    if (succeeded(made))
      lowered.try_emplace(op, *made);
    return made;
  };
  lowerings.target = description->name;
  lowerings.host_steps = !options.strict;
  lowerings.kernel = [&](KernelOp kernel) {
    return once(kernel, [&] { return lowerKernel(kernel, *description, dumpTo(kernel.getName())); });
  };
  if (!cpu) {
    lowerings.host_kernel = [&](KernelOp kernel) -> FailureOr<LoweredKernel> {
      if (cancelled())
        return failure();
      return lowerKernel(kernel, TargetDescription::cpu(), dumpTo(kernel.getName()));
    };
    lowerings.call = [&](Operation* op, ArrayRef<AffineMap> layouts, StringRef name) {
      auto check = [&](std::span<const uint32_t> words) { return rounds.spilled(words); };
      if (auto before = lowered.find(op);
          before != lowered.end() && rounds.spilled(before->second.spirv).value_or(0) > 0)
        lowered.erase(before);
      auto lower = [&](const TargetDescription& target) {
        if (auto matmul = dyn_cast<MatmulOp>(op))
          return lowerMatmul(matmul, layouts, target, dumpTo(name));
        if (auto attention = dyn_cast<AttentionOp>(op))
          return lowerAttention(attention, layouts, target, dumpTo(name));
        if (auto gradient = dyn_cast<AttentionGradientOp>(op))
          return lowerAttentionGradient(gradient, layouts, target, dumpTo(name));
        return lowerConvolution(cast<ConvolutionOp>(op), layouts, target, dumpTo(name));
      };
      return once(op, [&] { return lowerWithoutSpills(*description, check, lower); });
    };
  }

  auto stages = [&]() -> LogicalResult {
    if (failed(run("1_imported", [&] { return verify(module); })))
      return failure();
    if (options.strict && failed(refuseFallbacks(graph)))
      return failure();
    if (failed(run("2a_prepared", [&] { return prepare(graph); })) ||
        failed(run("2b_epilogues", [&] { return fuseLibraryEpilogues(graph); })))
      return failure();
    // A GPU's work-groups share long rows by themselves, and have no batches yet.
    if (options.fuse && cpu && failed(run("2c_split", [&] { return splitReductions(graph); })))
      return failure();
    if (failed(run("2c_kernels", [&] { return fuseKernels(graph, options.fuse); })) ||
        failed(run("2d_layouts", [&] { return assignLayouts(graph); })) ||
        failed(run("2d_divided", [&] { return divideRefusedKernels(graph); })))
      return failure();
    if (options.fuse && cpu && failed(run("2e_batches", [&] { return batchKernels(graph); })))
      return failure();
    if (cpu && failed(run("2f_in_place", [&] { return writeInPlace(graph); })))
      return failure();
    // docs/gpu.md, Compiling.
    constexpr const char* gpu_parts = "not side by side in one launch: on a GPU each has a group size, sub-groups and "
                                      "local memory of its own";
    if (options.fuse && failed(run("2g_side_by_side", [&] { return joinSideBySide(graph, cpu ? "" : gpu_parts); })))
      return failure();
    clock.lap("fuse");
    FailureOr<BuiltPlan> built = failure();
    do {
      built = buildPlan(graph, options.device, lowerings, [&] { return reportJson(graph, options); });
      if (failed(built))
        return failure();
    } while (!cancelled() && rounds.ask());
    if (cancelled())
      return failure();  // built without the answers
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
