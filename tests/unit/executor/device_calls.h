// Executables of plans for the first GPU, which is the CPU's driver posing as one.
#pragma once

#include <gtest/gtest.h>

#include "runtime/executor/device_context.h"
#include "tests/unit/executor/call.h"
#include "tests/unit/executor/kernels.h"

namespace zefuse::test {

inline Result<std::unique_ptr<Executable>> create(PlanBuilder& b, bool in_streams = false, bool build_beside = false,
                                                  const char* device = "gpu:0") {
  b.plan.device = "gpu:0";
  for (auto& module : b.plan.modules)
    module->target = "dg2-g11";
  ExecutableOptions options;
  options.device = device;
  options.in_streams = in_streams;
  options.build_beside = build_beside;
  return Executable::create(b.finish(), options);
}

inline Result<std::unique_ptr<Executable>> createBeside(PlanBuilder& b) { return create(b, false, true); }

// Floats in memory of the GPU, `skipped` of them before the first.
class DeviceFloats {
public:
  explicit DeviceFloats(const std::vector<float>& values, size_t skipped = 0, const char* device = "gpu:0")
      : device_(*executor::DeviceContext::open(device)), count_(values.size()), skipped_(skipped),
        memory_(std::move(
            *ze::Memory::allocate(device_->context(), ze::Memory::Kind::device, (count_ + skipped_) * sizeof(float)))) {
    copy(data(), values.data());
  }
  float* data() { return static_cast<float*>(memory_.data()) + skipped_; }
  std::vector<float> read() {
    std::vector<float> values(count_);
    copy(values.data(), data());
    return values;
  }
  void write(const std::vector<float>& values) { copy(data(), values.data()); }
  CallInput input() {
    CallInput in = shape_.input();
    in.tensor.data = data();
    in.tensor.place = Place::device;
    return in;
  }
  AllocateOutput allocator() {
    return [this](const OutputRequest& request) -> Result<void*> {
      EXPECT_EQ(request.place, Place::device);
      EXPECT_EQ(request.bytes, count_ * sizeof(float));
      return static_cast<void*>(data());
    };
  }

private:
  void copy(void* to, const void* from) {
    auto list = ze::CommandList::createImmediate(device_->context(), ze::Execution::synchronous);
    ASSERT_TRUE(list.ok());
    const Status copied = list->copy(to, from, count_ * sizeof(float));
    ASSERT_TRUE(copied.ok()) << copied.toString();
  }
  std::shared_ptr<executor::DeviceContext> device_;
  size_t count_, skipped_;
  ze::Memory memory_;
  HostTensor shape_ = HostTensor::f32({int64_t(count_)}, std::vector<float>(count_));
};

inline std::vector<float> filled(float value) { return std::vector<float>(24, value); }

// x += y; out = x + p, with a parameter p.
inline PlanBuilder addsInPlace() {
  PlanBuilder b;
  const uint32_t n = b.constant(24);
  const uint32_t x = b.tensorInput("x", plan::DType::f32, {n});
  b.plan.inputs[0]->written = true;
  const uint32_t y = b.tensorInput("y", plan::DType::f32, {n});
  const uint32_t p = b.tensorInput("p", plan::DType::f32, {n}, plan::InputKind::parameter);
  const uint32_t out = b.outputTensor(plan::DType::f32, {n});
  addStep(b, x, y, x, n);
  addStep(b, x, p, out, n);
  return b;
}

}  // namespace zefuse::test
