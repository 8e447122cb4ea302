// A bridge without torch: enough of ATen to see what the executor asks of it. Tensors are f32.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <numeric>
#include <vector>

#include "common/plan/plan_generated.h"
#include "runtime/executor/aten_calls.h"

namespace zefuse::test {

class FakeAten : public AtenBridge {
public:
  struct Tensor {
    std::shared_ptr<std::vector<float>> storage;
    std::vector<int64_t> sizes, strides;
  };
  using Kernel = std::function<Result<std::vector<AtenResult>>(std::span<const AtenArgument>)>;

  std::map<std::string, Kernel> kernels;
  std::atomic<int> alive{0};

  FakeAten() {
    kernels["aten::alias"] = [this](std::span<const AtenArgument> args) {
      auto* tensor = new Tensor(*static_cast<Tensor*>(args[0].tensor.owner));
      ++alive;
      return one(tensor);
    };
    kernels["aten::empty_strided"] = [this](std::span<const AtenArgument> args) -> Result<std::vector<AtenResult>> {
      std::vector<int64_t> sizes, strides;
      for (const AtenArgument& item : args[0].items)
        sizes.push_back(item.integer);
      for (const AtenArgument& item : args[1].items)
        strides.push_back(item.integer);
      for (size_t i = 0; i < sizes.size(); ++i)
        if (double(sizes[i]) * double(strides[i]) > 1e6)
          return Status{Code::out_of_memory, "too large for a test"};
      return one(make(sizes, strides));
    };
    setAtenBridge(this);
  }
  ~FakeAten() override { setAtenBridge(nullptr); }

  Tensor* make(std::vector<int64_t> sizes, std::vector<int64_t> strides) {
    int64_t last = 0;
    for (size_t i = 0; i < sizes.size(); ++i)
      last = sizes[i] == 0 || last < 0 ? -1 : last + (sizes[i] - 1) * strides[i];
    ++alive;
    return new Tensor{std::make_shared<std::vector<float>>(size_t(last + 1)), std::move(sizes), std::move(strides)};
  }
  static AtenResult result(Tensor* tensor) {
    AtenResult out;
    out.is_tensor = true;
    out.owner = tensor;
    out.dtype = plan::DType::f32;
    out.data = tensor->storage->data();
    out.sizes = tensor->sizes;
    out.strides = tensor->strides;
    return out;
  }
  static std::vector<AtenResult> one(Tensor* tensor) { return {result(tensor)}; }

  Result<std::unique_ptr<AtenOp>> resolve(const std::string& op, const std::string&) override {
    struct Op : AtenOp {
      Kernel* kernel;
      Result<std::vector<AtenResult>> call(std::span<const AtenArgument> arguments) const override {
        return (*kernel)(arguments);
      }
    };
    auto found = kernels.find(op);
    if (found == kernels.end())
      return Status{Code::not_found, "no operator " + op};
    auto out = std::make_unique<Op>();
    out->kernel = &found->second;
    return std::unique_ptr<AtenOp>(std::move(out));
  }
  void release(void* owner) override {
    delete static_cast<Tensor*>(owner);
    --alive;
  }
};

}  // namespace zefuse::test
