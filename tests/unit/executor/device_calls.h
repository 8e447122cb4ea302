// Executables of plans for the first GPU, which is the CPU's driver posing as one.
#pragma once

#include "tests/unit/executor/call.h"
#include "tests/unit/executor/kernels.h"

namespace zefuse::test {

inline Result<std::unique_ptr<Executable>> create(PlanBuilder& b) {
  b.plan.device = "gpu:0";
  for (auto& module : b.plan.modules)
    module->target = "dg2-g11";
  ExecutableOptions options;
  options.device = "gpu:0";
  return Executable::create(b.finish(), options);
}

}  // namespace zefuse::test
