// The compiler as one readable list of stages: an imported graph in, a plan out.
#pragma once

#include <string>
#include <vector>

#include "common/base/cancel_check.h"
#include "compiler/compilation.h"
#include "compiler/options.h"
#include "lowering/lower.h"
#include "mlir/IR/BuiltinOps.h"

namespace zefuse {

// Consumes `module` (stage 1). `earlier`: times of stages that came before. Never throws;
// diagnostics end in Compilation::error. One call at a time per MLIRContext.
// `spills`: asked about each product, convolution and attention for a GPU, in rounds (spill_rounds.h); null: nobody is.
// `cancelled`: asked between stages, before each kernel and after a round; the error is then "compiling was cancelled".
Compilation compileModule(mlir::ModuleOp module, const Options& options, std::vector<StageTime> earlier = {},
                          const SpillSurvey& spills = nullptr, const CancelCheck& cancelled = {});

// Fuses the graph and lowers its kernels for `target`, building nothing: the first error, or empty. For reports about
// what has a schedule (docs/operators.md). Consumes `module`.
std::string whyNotLowered(mlir::ModuleOp module, const TargetDescription& target);

}  // namespace zefuse
