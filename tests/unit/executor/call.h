// Calling an executable from a test: dense host tensors in, host tensors out.
#pragma once

#include <cstring>
#include <deque>
#include <numeric>
#include <vector>

#include "common/plan/dtype.h"
#include "common/plan/plan_generated.h"
#include "runtime/executor/executable.h"

namespace zefuse::test {

struct HostTensor {
  plan::DType dtype{};
  std::vector<int64_t> sizes, strides;
  std::vector<std::byte> bytes;

  template <typename T>
  static HostTensor of(plan::DType dtype, std::vector<int64_t> sizes, const std::vector<T>& data) {
    HostTensor tensor{dtype, std::move(sizes), {}, std::vector<std::byte>(data.size() * sizeof(T))};
    tensor.strides.assign(tensor.sizes.size(), 1);
    for (size_t i = tensor.sizes.size(); i-- > 1;)
      tensor.strides[i - 1] = tensor.strides[i] * tensor.sizes[i];
    if (!data.empty())
      std::memcpy(tensor.bytes.data(), data.data(), tensor.bytes.size());
    return tensor;
  }
  static HostTensor f32(std::vector<int64_t> sizes, const std::vector<float>& data) {
    return of(plan::DType::f32, std::move(sizes), data);
  }

  CallInput input() {
    CallInput in;
    in.tensor.data = bytes.data();
    in.tensor.dtype = dtype;
    in.tensor.sizes = sizes;
    in.tensor.strides = strides;
    return in;
  }
};

inline CallInput integerInput(int64_t value) {
  CallInput in;
  in.is_tensor = false;
  in.integer = value;
  return in;
}

// Memory of a call's output buffers, 64-byte aligned, kept until the object dies.
class OutputMemory {
public:
  AllocateOutput allocator() {
    return [this](const OutputRequest& request) -> Result<void*> {
      blocks_.resize(std::max(blocks_.size(), request.index + 1));
      if (request.bytes > (size_t(1) << 32))
        return Status{Code::out_of_memory, "the test refuses so much memory"};
      blocks_[request.index].reset(static_cast<std::byte*>(std::aligned_alloc(64, (request.bytes + 64) / 64 * 64)));
      return static_cast<void*>(blocks_[request.index].get());
    };
  }
  // The elements of a dense output.
  template <typename T> std::vector<T> read(const CallOutput& output) const {
    const int64_t count =
        std::accumulate(output.sizes.begin(), output.sizes.end(), int64_t(1), std::multiplies<int64_t>());
    std::vector<T> out(static_cast<size_t>(count));
    if (count > 0)
      std::memcpy(out.data(), blocks_[output.index].get() + size_t(output.offset) * sizeof(T), out.size() * sizeof(T));
    return out;
  }

private:
  struct Free {
    void operator()(std::byte* data) const { std::free(data); }
  };
  std::vector<std::unique_ptr<std::byte, Free>> blocks_;
};

}  // namespace zefuse::test
