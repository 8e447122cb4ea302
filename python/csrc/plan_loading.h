// A plan that becomes an executable beside the caller's own work.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "python/csrc/compiled_graph.h"
#include "python/csrc/interrupts.h"
#include "runtime/primitives/core/team_thread.h"

namespace zefuse::python {

// Loading a plan maps its kernels and lets oneDNN generate code: milliseconds that need no GIL. Construction begins it.
// Every method needs the GIL, which is released while one waits.
class PlanLoading {
public:
  // `place`: where the graph's tensors lie.
  PlanLoading(std::string plan, ExecutableOptions options, TorchPlace place);
  ~PlanLoading();  // ends the work early: nobody wants the plan

  // Once; raises what stopped it, a signal's handler too (Interrupts).
  std::unique_ptr<CompiledGraph> take();

private:
  const std::string plan_;
  Interrupts interrupts_;
  const TorchPlace place_;
  ExecutableOptions options_;  // may hold Python objects: dies with this object, not in the thread
  std::optional<primitives::TeamThread<Result<std::unique_ptr<Executable>>>> loading_;  // none: taken
};

}  // namespace zefuse::python
