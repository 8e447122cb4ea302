#include "python/csrc/plan_loading.h"

#include <pybind11/pybind11.h>

#include "python/csrc/errors.h"

namespace py = pybind11;

namespace zefuse::python {

PlanLoading::PlanLoading(std::string plan, ExecutableOptions options)
    : plan_(std::move(plan)), options_(std::move(options)) {
  py::gil_scoped_release released;  // kernels may be compiled, by threads that report progress in Python
  loading_.emplace([this] { return Executable::create(std::as_bytes(std::span(plan_)), options_); });
}

PlanLoading::~PlanLoading() {
  py::gil_scoped_release released;
  loading_.reset();
}

std::unique_ptr<CompiledGraph> PlanLoading::take() {
  if (!loading_)
    raise(Status(Code::internal, "a loaded plan was taken twice"));
  auto executable = [&] {
    py::gil_scoped_release released;
    auto result = loading_->get();
    loading_.reset();
    return result;
  }();
  return std::make_unique<CompiledGraph>(unwrap(std::move(executable)), std::vector<at::Tensor>());
}

}  // namespace zefuse::python
