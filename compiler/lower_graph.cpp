#include "compiler/lower_graph.h"

#include <map>
#include <mutex>
#include <thread>

#include "common/base/parallel.h"
#include "compiler/fuse/kernel_key.h"
#include "compiler/kernel_transfer.h"
#include "compiler/plan/layouts.h"
#include "compiler/spill_rounds.h"
#include "lowering/analysis/product_form.h"
#include "lowering/dialect/Zefuse.h"
#include "mlir/IR/Diagnostics.h"

using namespace mlir;

namespace zefuse {
namespace {

/// "matmul_128x384_gelu_erf"
std::string callName(Operation* op) {
  std::string name = op->getName().stripDialect().str() + "_";
  if (auto gradient = dyn_cast<AttentionGradientOp>(op))
    name += gradient.getOfKeys() ? "keys_" : gradient.getNumResults() == 1 ? "queries_" : "";
  for (auto [i, size] : llvm::enumerate(cast<RankedTensorType>(op->getResult(0).getType()).getShape()))
    name += (i ? "x" : "") + (ShapedType::isDynamic(size) ? std::string("n") : std::to_string(size));
  if (auto post_ops = op->getAttrOfType<ArrayAttr>("post_ops"))
    for (StringRef post_op : post_ops.getAsValueRange<StringAttr>())
      name += "_" + post_op.str();
  return name;
}

// One kernel to lower: an operation that stands for all equal ones.
struct Job {
  Operation* op;
  SmallVector<AffineMap> layouts;  // of a library operation, as lowerAttentionGradient's
  LoweredLaunch* result;
  bool dumps = true;                           // no later kernel has the same name
  std::vector<std::vector<uint32_t>> unknown;  // kernels whose spills are asked about after this round
};

class GraphLowering {
public:
  GraphLowering(func::FuncOp graph, const LowerOptions& options)
      : graph_(graph), options_(options), on_device_(!options.target.on_host), rounds_(options.spills) {}

  FailureOr<LoweredGraph> run() {
    collect();
    std::vector<Job*> round;
    for (Job& job : jobs_)
      round.push_back(&job);
    for (;;) {
      lowerAll(round);
      if (options_.cancelled())
        return failure();
      std::vector<std::vector<uint32_t>> unknown;
      for (Job* job : round)
        llvm::append_range(unknown, std::exchange(job->unknown, {}));
      const bool again = rounds_.ask(unknown);
      if (options_.cancelled())
        return failure();  // lowered without the answers
      if (!again)
        return std::move(lowered_);
      llvm::erase_if(round, [&](Job* job) {
        return !job->result->kernel || rounds_.spilled(job->result->kernel->spirv).value_or(0) == 0;
      });
    }
  }

private:
  void collect() {
    std::map<std::string, LoweredLaunch*> known;
    std::map<std::string, Job*> named;
    ValueLayouts layouts(graph_);
    for (Operation& op : graph_.getBody().front()) {
      const bool kernel = isa<KernelOp>(op);
      if (!kernel && !(options_.target.supports.products && (isProduct(&op) || isa<AttentionGradientOp>(op))))
        continue;
      Job job{&op, {}, nullptr, true, {}};
      std::string key;
      if (kernel) {
        key = kernelKey(cast<KernelOp>(op));
      } else {
        llvm::raw_string_ostream text(key);
        text << op.getName() << " " << op.getAttrDictionary();
        for (Value value :
             llvm::concat<const Value>(llvm::to_vector(op.getOperands()), llvm::to_vector_of<Value>(op.getResults()))) {
          job.layouts.push_back(layouts.fromFirst(value));
          text << "; " << value.getType() << " " << job.layouts.back();
        }
      }
      LoweredLaunch*& launch = known[key];
      if (!launch) {
        launch = job.result = &lowered_.add();
        launch->key = hashOfKey(key);
        launch->name = kernel ? cast<KernelOp>(op).getName().str() : callName(&op);
        jobs_.push_back(std::move(job));
        if (Job*& last = named[launch->name])
          std::exchange(last, &jobs_.back())->dumps = false;
        else
          last = &jobs_.back();
      }
      lowered_.assign(&op, *launch);
    }
  }

  void lowerAll(ArrayRef<Job*> jobs) {
    const size_t wanted = options_.threads > 0 ? size_t(options_.threads) : std::thread::hardware_concurrency();
    const size_t threads = std::clamp<size_t>(wanted, 1, std::max<size_t>(jobs.size(), 1));
    // The calling thread lowers in the graph's context, which is its alone; the others get copies.
    std::vector<std::string> copies(jobs.size());
    if (threads > 1)
      for (auto [copy, job] : llvm::zip(copies, jobs))
        copy = packKernel(job->op, job->layouts);
    KernelContexts contexts;
    const std::thread::id caller = std::this_thread::get_id();
    inParallel(jobs.size(), threads, [&](size_t i) {
      if (options_.cancelled())
        return;
      if (std::this_thread::get_id() == caller)
        return lowerOne(*jobs[i], jobs[i]->op, jobs[i]->layouts);
      const KernelContexts::Borrowed context = contexts.borrow();
      const PackedKernel kernel = unpackKernel(copies[i], *context);
      lowerOne(*jobs[i], kernel.op, kernel.layouts);
    });
    for (Job* job : jobs)
      if (job->result->kernel)
        moveTo(graph_.getContext(), *job->result->kernel);
  }

  void lowerOne(Job& job, Operation* op, ArrayRef<AffineMap> layouts) {
    LoweredLaunch& launch = *job.result;
    StageDump dump;
    if (options_.dump && job.dumps)
      dump = [&](std::string_view stage, std::string_view text) { options_.dump(launch.name, stage, text); };
    launch.target = options_.target.name;
    auto kernel = dyn_cast<KernelOp>(op);
    const auto found = options_.tuned.find(launch.key);
    const TunedKernel tuned = found == options_.tuned.end() ? TunedKernel() : found->second;
    launch.kernel = attempt(op, launch.refusal, [&]() -> FailureOr<LoweredKernel> {
      if (!spillsAreAsked(op))
        return lowerKernel(kernel, options_.target, dump, tuned.choice);
      auto spilled = [&](std::span<const uint32_t> words) {
        std::optional<int64_t> answer = rounds_.spilled(words);
        if (!answer && !rounds_.asked(words))
          job.unknown.emplace_back(words.begin(), words.end());
        return answer;
      };
      return lowerWithoutSpills(
          options_.target, options_.spills ? SpillCheck(spilled) : SpillCheck(), [&](const TargetDescription& target) {
            return kernel ? lowerKernel(kernel, target, dump, tuned.choice) : lowerCall(op, layouts, target, dump);
          });
    });
    if (launch.kernel)
      launch.kernel->schedule.noteTuned(launch.kernel->decisions, tuned.before_us, tuned.after_us);
    if (launch.kernel || !on_device_)
      return;
    launch.why_on_host = launch.refusal;
    if (!kernel)
      return;  // the library's call
    launch.target = "cpu";
    launch.kernel = attempt(op, launch.refusal, [&] { return lowerKernel(kernel, TargetDescription::cpu(), dump); });
    if (!launch.kernel)  // the device's reason came first, and says what to mend
      launch.refusal =
          "for " + options_.target.name + ": " + launch.why_on_host + "; on the host instead: " + launch.refusal;
  }

  /// Of products and attention's derivatives for a GPU: their tiles are chosen by what registers hold.
  bool spillsAreAsked(Operation* op) const {
    auto kernel = dyn_cast<KernelOp>(op);
    return !kernel || (options_.target.supports.products &&
                       llvm::any_of(kernel.getBody().getOps(), [](Operation& inner) { return isProduct(&inner); }));
  }

  static FailureOr<LoweredKernel> lowerCall(Operation* op, ArrayRef<AffineMap> layouts, const TargetDescription& target,
                                            const StageDump& dump) {
    if (isProduct(op)) {  // else it were a node of a kernel
      op->emitError() << whyNoProductKernel(op, target);
      return failure();
    }
    return lowerAttentionGradient(cast<AttentionGradientOp>(op), layouts, target, dump);
  }

  /// Its first error goes to `refusal`.
  static std::optional<LoweredKernel> attempt(Operation* op, std::string& refusal,
                                              llvm::function_ref<FailureOr<LoweredKernel>()> lower) {
    refusal.clear();
    ScopedDiagnosticHandler handler(op->getContext(), [&](Diagnostic& diagnostic) {
      if (diagnostic.getSeverity() == DiagnosticSeverity::Error && refusal.empty())
        refusal = diagnostic.str();
      return success();
    });
    FailureOr<LoweredKernel> lowered = lower();
    return succeeded(lowered) ? std::optional(std::move(*lowered)) : std::nullopt;
  }

  func::FuncOp graph_;
  const LowerOptions& options_;
  const bool on_device_;
  SpillRounds rounds_;
  LoweredGraph lowered_;
  std::deque<Job> jobs_;  // in the order of the plan
};

}  // namespace

FailureOr<LoweredGraph> lowerGraph(func::FuncOp graph, const LowerOptions& options) {
  return GraphLowering(graph, options).run();
}

}  // namespace zefuse
