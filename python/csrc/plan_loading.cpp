#include "python/csrc/plan_loading.h"

#include <pybind11/pybind11.h>
#include <system_error>

#include "python/csrc/errors.h"
#include "runtime/onednn/team.h"

namespace py = pybind11;

namespace zefuse::python {

PlanLoading::PlanLoading(std::string plan, ExecutableOptions options)
    : plan_(std::move(plan)), options_(std::move(options)) {
  const int threads = onednn::maxThreads();
  try {
    thread_ = std::thread([this, threads] { load(threads); });
  } catch (const std::system_error&) {
    load(threads);
  }
}

PlanLoading::~PlanLoading() { join(); }

void PlanLoading::load(int threads) {
  onednn::setMaxThreads(threads);  // library calls are prepared for the caller's team
  auto made = Executable::create(std::as_bytes(std::span(plan_)), options_);
  if (made.ok())
    executable_ = std::move(*made);
  else
    status_ = made.status();
}

void PlanLoading::join() {
  if (thread_.joinable()) {
    py::gil_scoped_release released;
    thread_.join();
  }
}

std::unique_ptr<CompiledGraph> PlanLoading::take() {
  join();
  if (!status_.ok())
    raise(status_);
  if (!executable_)
    raise(Status(Code::internal, "a loaded plan was taken twice"));
  return std::make_unique<CompiledGraph>(std::move(executable_), std::vector<at::Tensor>());
}

}  // namespace zefuse::python
