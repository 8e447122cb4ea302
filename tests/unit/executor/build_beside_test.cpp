// Native code for a GPU that is made beside the caller's own work (ExecutableOptions::build_beside).
#include <gtest/gtest.h>

#include "tests/unit/executor/device_calls.h"

namespace zefuse {
namespace {

using test::addStep;
using test::createBeside;
using test::HostTensor;
using test::OutputMemory;
using test::PlanBuilder;

PlanBuilder addition() {
  PlanBuilder b;
  const uint32_t n = b.constant(4);
  const uint32_t x = b.tensorInput("x", plan::DType::f32, {n}), y = b.tensorInput("y", plan::DType::f32, {n});
  addStep(b, x, y, b.outputTensor(plan::DType::f32, {n}), n);
  return b;
}

Status addOnce(Executable& executable) {
  HostTensor x = HostTensor::f32({4}, {1, 2, 3, 4}), y = HostTensor::f32({4}, {10, 20, 30, 40});
  const CallInput inputs[] = {x.input(), y.input()};
  OutputMemory memory;
  auto outputs = executable.call(inputs, memory.allocator());
  if (!outputs.ok())
    return outputs.status();
  EXPECT_EQ(memory.read<float>((*outputs)[0]), (std::vector<float>{11, 22, 33, 44}));
  return {};
}

TEST(BuildBeside, TheFirstCallWaits) {
  PlanBuilder b = addition();
  auto executable = createBeside(b);
  ASSERT_TRUE(executable.ok()) << executable.status().toString();
  for (int call = 0; call < 3; ++call)
    EXPECT_EQ(addOnce(**executable).toString(), Status().toString());
  EXPECT_TRUE((*executable)->isBuiltWithin(std::chrono::milliseconds(0)));
  EXPECT_EQ((*executable)->counters().native_cache_misses, 1u);  // made once
}

TEST(BuildBeside, NativeCodeIsThereForWhoeverAsks) {
  PlanBuilder b = addition();
  auto executable = createBeside(b);
  ASSERT_TRUE(executable.ok()) << executable.status().toString();
  auto binaries = (*executable)->nativeBinaries();
  ASSERT_TRUE(binaries.ok()) << binaries.status().toString();
  ASSERT_EQ(binaries->size(), 1u);
  EXPECT_FALSE((*binaries)[0].empty());
}

TEST(BuildBeside, WhatIsWrongIsToldByEachCall) {
  PlanBuilder b = addition();
  b.plan.modules[0]->spirv.assign(100, 0x07230203);
  auto executable = createBeside(b);
  ASSERT_TRUE(executable.ok()) << executable.status().toString();
  const Status first = addOnce(**executable), second = addOnce(**executable);
  EXPECT_FALSE(first.ok());
  EXPECT_EQ(first.toString(), second.toString());
  PlanBuilder now = addition();
  now.plan.modules[0]->spirv.assign(100, 0x07230203);
  EXPECT_EQ(first.toString(), test::create(now).status().toString());
}

TEST(BuildBeside, EndedEarlyTheRestIsBuiltAtNeed) {
  PlanBuilder b = addition();
  auto executable = createBeside(b);
  ASSERT_TRUE(executable.ok()) << executable.status().toString();
  endBuilding();
  EXPECT_TRUE((*executable)->isBuiltWithin(std::chrono::milliseconds(0)));
  EXPECT_EQ(addOnce(**executable).toString(), Status().toString());
  for (int i = 0; i < 20; ++i)  // dropped while it is built
    EXPECT_TRUE(createBeside(b).ok());
}

}  // namespace
}  // namespace zefuse
