// A plan that becomes an executable beside the caller's own work.
#pragma once

#include <memory>
#include <string>
#include <thread>

#include "python/csrc/compiled_graph.h"

namespace zefuse::python {

// Loading a plan maps its kernels and lets oneDNN generate code: milliseconds that need no GIL. Construction starts a
// thread; where the system has none to give, it loads at once. Every method needs the GIL.
class PlanLoading {
public:
  PlanLoading(std::string plan, ExecutableOptions options);
  ~PlanLoading();

  // Waits for the end. Once; raises what stopped it.
  std::unique_ptr<CompiledGraph> take();

private:
  void load(int threads);
  void join();

  const std::string plan_;
  const ExecutableOptions options_;  // may hold Python objects: dies with this object, not in the thread
  Status status_;
  std::unique_ptr<Executable> executable_;
  std::thread thread_;
};

}  // namespace zefuse::python
