// What the steps of a fused graph launch: made by lowerGraph (compiler/lower_graph.h), read by buildPlan.
#pragma once

#include <deque>
#include <optional>
#include <string>

#include "lowering/lower.h"
#include "mlir/IR/Operation.h"
#include "llvm/ADT/DenseMap.h"

namespace zefuse {

// One kernel, or why there is none; of all operations that are equal up to names and locations.
struct LoweredLaunch {
  std::optional<LoweredKernel> kernel;
  std::string target;  // what the kernel is for: the plan's target, or "cpu" for a step on the host of a GPU's plan
  std::string key;     // hashOfKey (fuse/kernel_key.h)
  std::string name;    // in explain and dumps: the kernel's, or a call's as "matmul_128x384_gelu_erf"
  std::string why_on_host;  // why the plan's device does not run it: the step is the host's; empty: it does
  std::string refusal;      // without a kernel: why
};

class LoweredGraph {
public:
  // Null for an operation that is the library's call whatever the target.
  const LoweredLaunch* find(mlir::Operation* op) const { return by_operation_.lookup(op); }

  LoweredLaunch& add() { return launches_.emplace_back(); }
  void assign(mlir::Operation* op, const LoweredLaunch& launch) { by_operation_[op] = &launch; }

private:
  std::deque<LoweredLaunch> launches_;  // which stay where they are
  llvm::DenseMap<mlir::Operation*, const LoweredLaunch*> by_operation_;
};

}  // namespace zefuse
