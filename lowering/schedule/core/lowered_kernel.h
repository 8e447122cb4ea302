// What the executor has to know of a kernel, besides its code, to launch it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "lowering/schedule/core/choices.h"
#include "lowering/schedule/core/decisions.h"
#include "mlir/IR/AffineExpr.h"

namespace zefuse {

struct KernelCheck {
  std::string error;  // "index_error", ...
  std::string message;
};

// Argument order: plan.fbs, table Launch.
struct LoweredKernel {
  std::string name;  // the entry point
  std::vector<uint32_t> spirv;
  std::vector<unsigned> symbols;  // graph symbols passed as i64, in order
  bool chunked = true;            // plan.fbs, Distribution
  mlir::AffineExpr extent;        // units of work, over graph symbols
  int64_t grain = 1;
  std::array<uint32_t, 3> group_size = {1, 1, 1};
  mlir::AffineExpr scratch_bytes;  // per group; null: none
  std::vector<KernelCheck> checks;
  ScheduleRecord schedule;
  std::vector<Decision> decisions;  // what a measurement may choose
};

}  // namespace zefuse
