// Executables of plans for the first GPU, which is the CPU's driver posing as one.
#pragma once

#include "tests/unit/executor/call.h"
#include "tests/unit/executor/kernels.h"

namespace zefuse::test {

inline Result<std::unique_ptr<Executable>> create(PlanBuilder& b, bool in_streams = false) {
  b.plan.device = "gpu:0";
  for (auto& module : b.plan.modules)
    module->target = "dg2-g11";
  ExecutableOptions options;
  options.device = "gpu:0";
  options.in_streams = in_streams;
  return Executable::create(b.finish(), options);
}

// A step that adds `count` elements.
inline void addStep(PlanBuilder& b, uint32_t x, uint32_t y, uint32_t out, uint32_t count) {
  plan::LaunchT step = launch(b, "add", {x, y, out}, count);
  step.symbols = {count};
  b.step(std::move(step));
}

}  // namespace zefuse::test
