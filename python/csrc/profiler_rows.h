// Each step of a plan as a row of torch.profiler: a kernel or library call with shapes, bytes and floating-point
// operations.
#pragma once

#include <optional>

#include <ATen/record_function.h>

#include "runtime/executor/executable.h"

namespace zefuse::python {

// Of one call, on its thread. Rows are named "zefuse::" and the kernel's or the library call's name. With record_shapes
// a row has the shapes of what the step writes (those that depend on a symbol are left out) and "bytes" and "flops".
class ProfilerRows final : public StepObserver {
public:
  // Whether a profiler records on this thread: two reads of memory.
  static bool wanted() { return at::hasCallbacks() && at::isRecordFunctionEnabled(); }

  explicit ProfilerRows(const plan::Plan& plan) : plan_(plan) {}

  void begin(size_t step) override;
  void end() override { row_.reset(); }

private:
  const plan::Plan& plan_;
  std::optional<at::RecordFunction> row_;
};

}  // namespace zefuse::python
