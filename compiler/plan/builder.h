// Stage 2 to stage 6: the plan of a fused graph, with every kernel lowered.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "lowering/lower.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace zefuse {

// Lowers a kernel, or fails with a diagnostic. Called once per distinct kernel.
using KernelLowering = std::function<mlir::FailureOr<LoweredKernel>(KernelOp)>;

struct BuiltPlan {
  std::vector<std::byte> bytes;  // plan.fbs
};

// `graph` is at the end of stage 2. `report` is JSON for explain, kept as it is.
mlir::FailureOr<BuiltPlan> buildPlan(mlir::func::FuncOp graph, const std::string& device, const std::string& target,
                                     const KernelLowering& lower, const std::function<std::string()>& report);

}  // namespace zefuse
