// Stage 2 to stage 6: the plan of a fused graph, with every kernel lowered.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "lowering/lower.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace zefuse {

// How steps become kernels. Each lowers, or fails with a diagnostic; called once per distinct kernel. In a plan for a
// GPU what `kernel` or `call` refuses becomes a step on the host, and its note says why: a kernel for the CPU by
// `host_kernel`, a library call.
struct Lowerings {
  std::string target = "cpu";
  std::function<mlir::FailureOr<LoweredKernel>(KernelOp)> kernel;
  std::function<mlir::FailureOr<LoweredKernel>(KernelOp)> host_kernel;  // null in a plan for the CPU, as is the next
  // zefuse.matmul or zefuse.convolution as a kernel; `layouts` as lowerMatmul's. Named by the result.
  std::function<mlir::FailureOr<LoweredKernel>(mlir::Operation*, llvm::ArrayRef<mlir::AffineMap>, llvm::StringRef name)>
      call;
  bool host_steps = true;  // false: a step on the host is an error
};

struct BuiltPlan {
  std::vector<std::byte> bytes;  // plan.fbs
};

// `graph` is at the end of stage 2. `report` is JSON for explain, kept as it is.
mlir::FailureOr<BuiltPlan> buildPlan(mlir::func::FuncOp graph, const std::string& device, const Lowerings& lowerings,
                                     const std::function<std::string()>& report);

}  // namespace zefuse
