// What a plan for the CPU makes of parameters alone is kept from the second call on, while those are what they were.
#include <gtest/gtest.h>

#include <thread>

#include "tests/unit/executor/call.h"
#include "tests/unit/executor/kernels.h"

namespace zefuse {
namespace {

using test::addStep;
using test::addsToDerived;
using test::HostTensor;
using test::OutputMemory;
using test::PlanBuilder;

constexpr size_t derived_steps = 2;

std::vector<float> filled(int64_t n, float value) { return std::vector<float>(size_t(n), value); }

struct Calls {
  explicit Calls(const PlanBuilder& b, int64_t n) : n(n) {
    auto made = Executable::create(b.finish(), {});
    EXPECT_TRUE(made.ok()) << made.status().toString();
    executable = std::move(*made);
  }

  // What a call gives, everywhere the same.
  float call() {
    OutputMemory memory;
    CallInput inputs[] = {x.input(), p.input(), q.input()};
    inputs[1].tensor.version = inputs[2].tensor.version = version;
    auto outputs = executable->call(inputs, memory.allocator());
    EXPECT_TRUE(outputs.ok()) << outputs.status().toString();
    const auto values = memory.read<float>((*outputs)[0]);
    EXPECT_EQ(values, filled(n, values[0]));
    return values[0];
  }
  // Whether something was kept since the last question.
  bool made() {
    const uint64_t now = executable->counters().weights_packed;
    return std::exchange(seen, now) != now;
  }

  int64_t n;
  HostTensor x = HostTensor::f32({n}, filled(n, 100)), p = HostTensor::f32({n}, filled(n, 1)),
             q = HostTensor::f32({n}, filled(n, 10));
  uint64_t version = 0, seen = 0;
  std::unique_ptr<Executable> executable;
};

TEST(HostKeptWeights, AreMadeAtTheSecondCall) {
  Calls calls(addsToDerived(24), 24);
  for (int call = 0; call < 5; ++call)
    EXPECT_EQ(calls.call(), 112);
  const ExecutionCounters counters = calls.executable->counters();
  EXPECT_EQ(counters.weights_packed, derived_steps);
  EXPECT_EQ(counters.weight_packs_reused, 3 * derived_steps);
  EXPECT_EQ(counters.launches, 2 * derived_steps + 5);
}

TEST(HostKeptWeights, AreMadeAnewOfOtherParameters) {
  Calls calls(addsToDerived(24), 24);
  for (int call = 0; call < 3; ++call)
    EXPECT_EQ(calls.call(), 112);
  EXPECT_TRUE(calls.made());
  calls.p = HostTensor::f32({24}, filled(24, 2));  // elsewhere, or other contents in the same place
  EXPECT_EQ(calls.call(), 114);
  EXPECT_FALSE(calls.made()) << "seen once";
  EXPECT_EQ(calls.call(), 114);
  EXPECT_TRUE(calls.made());
  EXPECT_EQ(calls.call(), 114);
  EXPECT_FALSE(calls.made());
  ++calls.version;
  EXPECT_EQ(calls.call(), 114);
  EXPECT_EQ(calls.call(), 114);
  EXPECT_TRUE(calls.made()) << "another version";
  calls.executable->invalidateWeights();
  EXPECT_EQ(calls.call(), 114);
  EXPECT_EQ(calls.call(), 114);
  EXPECT_TRUE(calls.made()) << "forgotten";
}

TEST(HostKeptWeights, ParametersInTurnKeepNothing) {
  Calls calls(addsToDerived(24), 24);
  HostTensor other = HostTensor::f32({24}, filled(24, 3));
  for (int call = 0; call < 6; ++call) {
    EXPECT_EQ(calls.call(), call % 2 ? 116 : 112);
    std::swap(calls.p, other);
  }
  EXPECT_EQ(calls.executable->counters().weights_packed, 0u);
}

TEST(HostKeptWeights, NotWherePlanOrCostSayNo) {
  Calls not_asked(addsToDerived(24, false), 24);
  PlanBuilder b;  // one small sum: looking at two parameters takes as long
  b.plan.kept_weights = true;
  const uint32_t one = b.constant(1);
  const uint32_t x = b.tensorInput("x", plan::DType::f32, {one});
  const uint32_t p = b.tensorInput("p", plan::DType::f32, {one}, plan::InputKind::parameter);
  const uint32_t q = b.tensorInput("q", plan::DType::f32, {one}, plan::InputKind::parameter);
  const uint32_t t = b.arenaTensor(plan::DType::f32, {one}, 0, 1);
  const uint32_t out = b.outputTensor(plan::DType::f32, {one});
  addStep(b, p, q, t, one);
  addStep(b, x, t, out, one);
  Calls cheap(b, 1);
  for (Calls* calls : {&not_asked, &cheap}) {
    for (int call = 0; call < 4; ++call)
      EXPECT_EQ(calls->call(), calls == &cheap ? 111 : 112);
    EXPECT_EQ(calls->executable->counters().weights_packed, 0u);
  }
}

TEST(HostKeptWeights, CallsAtTheSameTime) {
  constexpr int64_t n = 5000;
  Calls calls(addsToDerived(n), n);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread)
    threads.emplace_back([&] {
      for (int call = 0; call < 20; ++call)
        EXPECT_EQ(calls.call(), 112);
    });
  for (std::thread& thread : threads)
    thread.join();
}

}  // namespace
}  // namespace zefuse
