// Stages 2 and 4 to stage 6: the plan of a fused graph and its kernels.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "compiler/plan/lowered_graph.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace zefuse {

struct BuiltPlan {
  std::vector<std::byte> bytes;  // plan.fbs
};

struct PlanOptions {
  std::string device;         // "cpu", "gpu"
  std::string report;         // JSON for explain, kept as it is
  bool host_steps = true;     // false: a step on the host in a plan for a GPU is an error
  bool kept_weights = false;  // Plan.kept_weights
};

// `graph` is at the end of stage 2, `lowered` has its kernels. A kernel that was refused is an error at its operation;
// in a plan for a GPU it is a step on the host, whose note says why.
mlir::FailureOr<BuiltPlan> buildPlan(mlir::func::FuncOp graph, const LoweredGraph& lowered, const PlanOptions& options);

}  // namespace zefuse
