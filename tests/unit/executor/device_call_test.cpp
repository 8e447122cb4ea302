// Calls of plans for a GPU, on the CPU driver posing as one: a discrete one, unless the environment names another kind.
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/unit/executor/device_calls.h"

namespace zefuse {
namespace {

using test::HostTensor;
using test::OutputMemory;
using test::PlanBuilder;

using test::addStep;
using test::create;

[[maybe_unused]] const int posing = setenv("ZEFUSE_CPU_DRIVER_AS", "gpu", /*overwrite=*/0);

std::vector<float> numbers(const HostTensor& tensor) {
  std::vector<float> out(tensor.bytes.size() / sizeof(float));
  std::memcpy(out.data(), tensor.bytes.data(), tensor.bytes.size());
  return out;
}

// Eight elements of x, from `first` on, become 2 y; then y + x's part is the result.
PlanBuilder writesPartOfAnInput(int64_t first = 16) {
  PlanBuilder b;
  const uint32_t all = b.constant(24), part = b.constant(8), one = b.constant(1), offset = b.constant(first);
  const uint32_t x = b.tensorInput("x", plan::DType::f32, {all});
  b.plan.inputs[0]->written = true;
  const uint32_t y = b.tensorInput("y", plan::DType::f32, {part});
  const uint32_t middle = b.value(b.plan.values[x]->buffer, plan::DType::f32, {part}, {one}, offset);
  const uint32_t out = b.outputTensor(plan::DType::f32, {part});
  addStep(b, y, y, middle, part);
  addStep(b, y, middle, out, part);
  return b;
}

TEST(DeviceCall, InputsThatStepsWriteComeBack) {
  PlanBuilder b = writesPartOfAnInput();
  auto executable = create(b);
  ASSERT_TRUE(executable.ok()) << executable.status().toString();
  std::vector<float> expected(24, -1);
  HostTensor x = HostTensor::f32({24}, expected);
  for (float scale : {1.f, 5.f}) {
    std::vector<float> given(8), sums(8);
    for (size_t i = 0; i < 8; ++i) {
      given[i] = scale * float(i);
      expected[16 + i] = 2 * given[i];
      sums[i] = 3 * given[i];
    }
    HostTensor y = HostTensor::f32({8}, given);
    const CallInput inputs[] = {x.input(), y.input()};
    OutputMemory memory;
    auto outputs = (*executable)->call(inputs, memory.allocator());
    ASSERT_TRUE(outputs.ok()) << outputs.status().toString();
    EXPECT_EQ(memory.read<float>((*outputs)[0]), sums);
    EXPECT_EQ(numbers(x), expected);
    EXPECT_EQ(numbers(y), given);
  }
}

TEST(DeviceCall, WrittenByTheDeviceAndThenTheHost) {
  PlanBuilder b = writesPartOfAnInput();
  const uint32_t y = 1, x = 0;
  const uint32_t first =
      b.value(b.plan.values[x]->buffer, plan::DType::f32, {b.constant(8)}, {b.constant(1)}, b.constant(12));
  b.copy(y, first);  // on the host
  auto executable = create(b);
  ASSERT_TRUE(executable.ok()) << executable.status().toString();
  HostTensor input = HostTensor::f32({24}, std::vector<float>(24, -1));
  HostTensor given = HostTensor::f32({8}, {0, 1, 2, 3, 4, 5, 6, 7});
  const CallInput inputs[] = {input.input(), given.input()};
  OutputMemory memory;
  auto outputs = (*executable)->call(inputs, memory.allocator());
  ASSERT_TRUE(outputs.ok()) << outputs.status().toString();
  EXPECT_EQ(numbers(input), (std::vector<float>{-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1,  //
                                                0,  1,  2,  3,  4,  5,  6,  7,  8,  10, 12, 14}));
}

// Kernels count on boundaries of 64 bytes, and a device that reaches all of the host's memory is given it as it is.
TEST(DeviceCall, TensorsThatBeginBetweenBoundaries) {
  PlanBuilder b = writesPartOfAnInput();
  auto executable = create(b);
  ASSERT_TRUE(executable.ok()) << executable.status().toString();
  alignas(64) float x_memory[26], y_memory[9], out_memory[16];
  std::fill(std::begin(x_memory), std::end(x_memory), -1.0f);
  for (int i = 0; i < 9; ++i)
    y_memory[i] = float(i);
  HostTensor x = HostTensor::f32({24}, std::vector<float>(24)), y = HostTensor::f32({8}, std::vector<float>(8));
  CallInput inputs[] = {x.input(), y.input()};
  inputs[0].tensor.data = x_memory + 1;
  inputs[1].tensor.data = y_memory + 1;
  auto outputs = (*executable)->call(inputs, [&](const OutputRequest& request) -> Result<void*> {
    EXPECT_EQ(request.bytes, 32u);
    return out_memory + 3;
  });
  ASSERT_TRUE(outputs.ok()) << outputs.status().toString();
  for (int i = 0; i < 26; ++i)
    EXPECT_EQ(x_memory[i], i >= 17 && i < 25 ? 2.0f * float(i - 16) : -1) << i;
  for (int i = 0; i < 8; ++i)
    EXPECT_EQ(out_memory[3 + i], 3.0f * float(i + 1)) << i;
}

TEST(DeviceCall, AnArgumentBetweenBoundariesIsRefused) {
  PlanBuilder b = writesPartOfAnInput(4);
  const Status status = create(b).status();
  EXPECT_EQ(status.code(), Code::damaged);
  EXPECT_NE(status.message().find("begins at byte 16 of its buffer"), std::string::npos) << status.toString();
}

// A step that launches nothing waited for the one before it: so must the next that launches something.
TEST(DeviceCall, WhatFollowsAStepWithoutElementsWaits) {
  constexpr size_t count = 1 << 20;
  PlanBuilder b;
  const uint32_t n = b.constant(count), none = b.constant(0);
  const uint32_t x = b.tensorInput("x", plan::DType::f32, {n});
  const uint32_t sum = b.arenaTensor(plan::DType::f32, {n}, 0, 2);
  const uint32_t nothing = b.outputTensor(plan::DType::f32, {none}), out = b.outputTensor(plan::DType::f32, {n});
  addStep(b, x, x, sum, n);
  addStep(b, sum, sum, nothing, none);
  addStep(b, sum, sum, out, n);
  auto executable = create(b);
  ASSERT_TRUE(executable.ok()) << executable.status().toString();
  for (float value : {1.f, 2.f, 3.f, 4.f, 5.f}) {
    HostTensor given = HostTensor::f32({count}, std::vector<float>(count, value));
    const CallInput inputs[] = {given.input()};
    OutputMemory memory;
    auto outputs = (*executable)->call(inputs, memory.allocator());
    ASSERT_TRUE(outputs.ok()) << outputs.status().toString();
    EXPECT_TRUE(memory.read<float>((*outputs)[1]) == std::vector<float>(count, 4 * value)) << value;
  }
}

TEST(DeviceCall, MoreThanAnyDeviceHasIsAnError) {
  PlanBuilder b;
  const uint32_t n = b.constant(int64_t(1) << 45);
  const uint32_t x = b.tensorInput("x", plan::DType::f32, {n}), y = b.tensorInput("y", plan::DType::f32, {n});
  const uint32_t out = b.outputTensor(plan::DType::f32, {n});
  addStep(b, x, y, out, n);
  const Status status = create(b).status();
  EXPECT_EQ(status.code(), Code::invalid_argument);
  EXPECT_NE(status.message().find("more memory on its device than a process can address"), std::string::npos)
      << status.toString();
}

}  // namespace
}  // namespace zefuse
