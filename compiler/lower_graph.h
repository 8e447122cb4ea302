// Stage 2 to stage 4: every kernel of a fused graph as SPIR-V, on several threads.
#pragma once

#include <functional>
#include <string_view>

#include "common/base/cancel_check.h"
#include "compiler/plan/lowered_graph.h"
#include "compiler/tuning/tuned_kernels.h"
#include "lowering/lower.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace zefuse {

struct LowerOptions {
  TargetDescription target;
  int threads = 0;  // 0: one per core
  // Asked about each product, convolution and attention for a GPU (spill_rounds.h); null: nobody is.
  const SpillSurvey& spills;
  const CancelCheck& cancelled;  // before each kernel, and after a round of questions
  const TunedKernels& tuned;     // of this target
  // What a kernel's stages are written with, by its name; null: nothing. Called from several threads.
  std::function<void(std::string_view kernel, std::string_view stage, std::string_view text)> dump;
};

// `graph` is at the end of stage 2 and stays as it is. What the target has no kernel for is in the result, with the
// reason; in a plan for a GPU together with the CPU's kernel. Fails when cancelled alone. Deterministic: the result
// does not depend on the number of threads. One call at a time per MLIRContext; threads besides the calling one have
// contexts of their own.
mlir::FailureOr<LoweredGraph> lowerGraph(mlir::func::FuncOp graph, const LowerOptions& options);

}  // namespace zefuse
