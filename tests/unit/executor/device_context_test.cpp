// What graphs on one device share, and calls that are recorded and replayed.
#include <gtest/gtest.h>

#include <string_view>
#include <thread>

#include "runtime/executor/device_context.h"
#include "runtime/executor/launch_order.h"
#include "tests/unit/executor/device_calls.h"

namespace zefuse {
namespace {

using test::addStep;
using test::create;
using test::HostTensor;
using test::launch;
using test::OutputMemory;
using test::PlanBuilder;

// A device that works in the host's memory has no copies of parameters, and every call brings other addresses.
bool zeroCopy() { return std::string_view(getenv("ZEFUSE_CPU_DRIVER_AS")) == "integrated-gpu"; }

// out = (x + w) + x, with a parameter w: two launches.
std::unique_ptr<Executable> addsTwice(int64_t count) {
  PlanBuilder b;
  const uint32_t n = b.constant(count);
  const uint32_t x = b.tensorInput("x", plan::DType::f32, {n});
  const uint32_t w = b.tensorInput("w", plan::DType::f32, {n}, plan::InputKind::parameter);
  const uint32_t middle = b.arenaTensor(plan::DType::f32, {n}, 0, 1);
  const uint32_t out = b.outputTensor(plan::DType::f32, {n});
  addStep(b, x, w, middle, n);
  addStep(b, middle, x, out, n);
  auto executable = create(b);
  EXPECT_TRUE(executable.ok()) << executable.status().toString();
  return executable.ok() ? std::move(*executable) : nullptr;
}

// Calls it with x = `value` everywhere, and checks the result.
void expectRight(Executable& executable, float value, HostTensor& weight, float w, uint64_t version = 0) {
  HostTensor x = HostTensor::f32(weight.sizes, std::vector<float>(size_t(weight.sizes[0]), value));
  CallInput inputs[] = {x.input(), weight.input()};
  inputs[1].tensor.version = version;
  OutputMemory memory;
  auto outputs = executable.call(inputs, memory.allocator());
  ASSERT_TRUE(outputs.ok()) << outputs.status().toString();
  EXPECT_EQ(memory.read<float>((*outputs)[0]), std::vector<float>(size_t(weight.sizes[0]), 2 * value + w));
}

HostTensor filled(int64_t count, float value) {
  return HostTensor::f32({count}, std::vector<float>(size_t(count), value));
}

TEST(DeviceContext, OneForAllGraphsOfADevice) {
  auto first = executor::DeviceContext::open("gpu:0"), second = executor::DeviceContext::open("gpu");
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(*first, *second);
  (*first)->markLost({Code::device, "a test says so"});
  EXPECT_NE((*second)->lost().message().find("a test says so"), std::string::npos);
  auto next = executor::DeviceContext::open("gpu:0");
  ASSERT_TRUE(next.ok());
  EXPECT_NE(*first, *next);
  EXPECT_TRUE((*next)->lost().ok());
}

TEST(DeviceContext, GraphsShareTheCopyOfAParameter) {
  auto one = addsTwice(100), other = addsTwice(100);
  ASSERT_TRUE(one && other);
  HostTensor weight = filled(100, 7);
  auto expectUploads = [&](uint64_t by_one, uint64_t by_other) {
    if (zeroCopy())  // then only what begins between two boundaries is copied
      return;
    EXPECT_EQ(one->counters().parameters_uploaded, by_one);
    EXPECT_EQ(other->counters().parameters_uploaded, by_other);
  };
  expectRight(*one, 1, weight, 7);
  expectRight(*other, 2, weight, 7);
  expectUploads(1, 0);
  // Written, as the version says: whoever comes first copies it anew, for both.
  std::ranges::fill(std::span(reinterpret_cast<float*>(weight.bytes.data()), 100), 8.0f);
  expectRight(*other, 3, weight, 8, /*version=*/1);
  expectRight(*one, 3, weight, 8, /*version=*/1);
  expectUploads(1, 1);
  // Told so by one graph's owner: no graph uses a copy of before.
  one->invalidateWeights();
  expectRight(*other, 4, weight, 8, /*version=*/1);
  expectRight(*one, 4, weight, 8, /*version=*/1);
  expectUploads(1, 2);
}

TEST(DeviceContext, CallsAreReplayedOnceEverythingStaysInPlace) {
  auto executable = addsTwice(100);
  ASSERT_TRUE(executable);
  HostTensor weight = filled(100, 7);
  for (int call = 0; call < 6; ++call)
    expectRight(*executable, float(call), weight, 7);
  const ExecutionCounters counters = executable->counters();
  EXPECT_EQ(counters.replays, zeroCopy() ? 0u : 4u);  // one call to see where things are, one that is recorded
  EXPECT_EQ(counters.launches, 12u);                  // replayed ones count
  if (!zeroCopy()) {
    EXPECT_EQ(counters.copies_to_host, 6u);
    EXPECT_EQ(counters.bytes_to_host, 6u * 400);
  }
}

TEST(DeviceContext, WhatMovesIsRecordedAnew) {
  auto executable = addsTwice(100), larger = addsTwice(100000);
  ASSERT_TRUE(executable && larger);
  HostTensor weight = filled(100, 7), large_weight = filled(100000, 5);
  auto settle = [&](float w, uint64_t version) {
    for (int call = 0; call < 4; ++call)
      expectRight(*executable, float(call), weight, w, version);
  };
  settle(7, 0);
  const uint64_t before = executable->counters().replays;
  weight = filled(100, 9);  // another address, or another version
  settle(9, 1);
  const uint64_t then = executable->counters().replays;
  expectRight(*larger, 1, large_weight, 5);  // its blocks take the place of the small one's
  settle(9, 1);
  if (!zeroCopy()) {
    EXPECT_GT(before, 0u);
    EXPECT_GT(then, before);
    EXPECT_GT(executable->counters().replays, then);
  }
}

TEST(DeviceContext, CallsAtTheSameTimeHaveAQueueEach) {
  auto one = addsTwice(100), other = addsTwice(5000);
  ASSERT_TRUE(one && other);
  HostTensor weight = filled(100, 7), large_weight = filled(5000, 5);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread)
    threads.emplace_back([&, thread] {
      for (int call = 0; call < 20; ++call) {
        expectRight(*one, float(thread + call), weight, 7);
        expectRight(*other, float(thread - call), large_weight, 5);
        if (thread == 0 && call % 8 == 7)
          one->invalidateWeights();
      }
    });
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_EQ(one->counters().calls, 80u);
}

TEST(DeviceContext, AReplayThatFailsACheckLeavesTheNextRight) {
  PlanBuilder b;
  const uint32_t rows = b.constant(10), n = b.constant(4);
  const uint32_t table = b.tensorInput("table", plan::DType::f32, {rows});
  const uint32_t index = b.tensorInput("index", plan::DType::i64, {n});
  const uint32_t out = b.outputTensor(plan::DType::f32, {n});
  plan::LaunchT gather = launch(b, "gather", {table, index, out}, n);
  for (const char* message : {"below zero", "too large"}) {
    gather.checks.push_back(std::make_unique<plan::KernelCheckT>());
    gather.checks.back()->error = plan::ErrorClass::index_error;
    gather.checks.back()->message = message;
  }
  gather.symbols = {n, rows};
  b.step(std::move(gather));
  auto executable = create(b);
  ASSERT_TRUE(executable.ok()) << executable.status().toString();
  std::vector<float> numbers(10);
  for (size_t i = 0; i < 10; ++i)
    numbers[i] = float(i);
  HostTensor values = HostTensor::f32({10}, numbers);
  for (int64_t last : {3, 4, 5, 12, 6, -1, 7}) {
    HostTensor where = HostTensor::of<int64_t>(plan::DType::i64, {4}, {0, 1, 2, last});
    const CallInput inputs[] = {values.input(), where.input()};
    OutputMemory memory;
    auto outputs = (*executable)->call(inputs, memory.allocator());
    if (last < 0 || last >= 10) {
      EXPECT_EQ(outputs.status().code(), Code::index_error);
      EXPECT_NE(outputs.status().message().find(last < 0 ? "below zero" : "too large"), std::string::npos);
    } else {
      ASSERT_TRUE(outputs.ok()) << outputs.status().toString();
      EXPECT_EQ(memory.read<float>((*outputs)[0]), (std::vector<float>{0, 1, 2, float(last)}));
    }
  }
}

// By step, whether it waits: of a plan on a device with copies.
std::vector<uint8_t> waitsOf(PlanBuilder& b) {
  b.plan.device = "gpu:0";
  for (auto& module : b.plan.modules)
    module->target = "dg2-g11";
  const std::vector<std::byte> bytes = b.finish();
  auto program = plan::loadProgram(bytes);
  EXPECT_TRUE(program.ok()) << program.status().toString();
  auto binding = executor::Binding::make(*program, {}, 1);
  EXPECT_TRUE(binding.ok()) << binding.status().toString();
  return (*binding)->device.waits;
}

TEST(LaunchOrder, OnlyWhatTouchesTheSameMemoryWaits) {
  PlanBuilder b;
  const uint32_t n = b.constant(64);
  const uint32_t x = b.tensorInput("x", plan::DType::f32, {n}), y = b.tensorInput("y", plan::DType::f32, {n});
  const uint32_t one = b.arenaTensor(plan::DType::f32, {n}, 0, 2), two = b.arenaTensor(plan::DType::f32, {n}, 1, 2);
  const uint32_t sum = b.arenaTensor(plan::DType::f32, {n}, 2, 4);
  const uint32_t again = b.arenaTensor(plan::DType::f32, {n}, 3, 4);  // lies where `one` or `two` did
  const uint32_t out = b.outputTensor(plan::DType::f32, {n});
  auto add = [&](uint32_t lhs, uint32_t rhs, uint32_t result) { addStep(b, lhs, rhs, result, n); };
  add(x, y, one);
  add(y, x, two);        // reads the same, writes elsewhere
  add(one, two, sum);    // reads what both wrote
  add(x, y, again);      // writes where the one before reads
  add(sum, again, out);  // reads what that wrote
  EXPECT_EQ(waitsOf(b), (std::vector<uint8_t>{0, 0, 1, 1, 1}));
}

TEST(LaunchOrder, ScratchMemoryIsForOneAtATime) {
  PlanBuilder b;
  const uint32_t rows = b.constant(4), columns = b.constant(8), bytes = b.constant(32);
  const uint32_t x = b.tensorInput("x", plan::DType::f32, {rows, columns});
  for (int i = 0; i < 2; ++i) {
    plan::LaunchT step = launch(b, "row_sum", {x, b.outputTensor(plan::DType::f32, {rows})}, rows);
    step.scratch_bytes = bytes;
    step.symbols = {rows};
    b.step(std::move(step));
  }
  EXPECT_EQ(waitsOf(b), (std::vector<uint8_t>{0, 1}));
}

}  // namespace
}  // namespace zefuse
