#include "python/csrc/plan_loading.h"

#include "python/csrc/errors.h"
#include "python/csrc/gil.h"

namespace zefuse::python {

PlanLoading::PlanLoading(std::string plan, ExecutableOptions options, TorchPlace place)
    : plan_(std::move(plan)), place_(place), options_(std::move(options)) {
  options_.cancelled = interrupts_.asked();
  withoutGil(
      [&] { loading_.emplace([this] { return Executable::create(std::as_bytes(std::span(plan_)), options_); }); });
}

PlanLoading::~PlanLoading() {
  interrupts_.cancel();
  withoutGil([&] { loading_.reset(); });
}

std::unique_ptr<CompiledGraph> PlanLoading::take() {
  if (!loading_)
    raise(Status(Code::internal, "a loaded plan was taken twice"));
  auto executable = withoutGil([&] {
    auto result = interrupts_.wait(*loading_);
    loading_.reset();
    return result;
  });
  Origin origin;
  origin.place = place_;
  return std::make_unique<CompiledGraph>(unwrap(std::move(executable)), std::vector<at::Tensor>(), std::move(origin));
}

}  // namespace zefuse::python
