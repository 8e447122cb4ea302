// What a plan for a GPU makes of parameters alone is kept from call to call, while those are what they were.
#include "tests/unit/executor/device_calls.h"

namespace zefuse {
namespace {

using test::addStep;
using test::addsToDerived;
using test::create;
using test::DeviceFloats;
using test::filled;
using test::HostTensor;
using test::OutputMemory;
using test::PlanBuilder;

constexpr size_t derived_steps = 2;

// A device in the host's memory keeps nothing.
bool ownMemory() { return !(*executor::DeviceContext::open("gpu:0"))->hostCopies(); }

// Parameters of 1 and 10, in memory of their own on the GPU.
struct Calls {
  DeviceFloats x{filled(100)}, p{filled(1)}, q{filled(10)}, out{filled(-1)};
  uint64_t version = 0, storage = 7;
  std::optional<void*> stream;
  std::unique_ptr<Executable> executable;

  explicit Calls(PlanBuilder b, bool in_streams = false) {
    auto made = create(b, in_streams);
    EXPECT_TRUE(made.ok()) << made.status().toString();
    executable = std::move(*made);
  }

  // What a call gives, everywhere the same.
  float call() {
    CallInput inputs[] = {x.input(), p.input(), q.input()};
    for (CallInput* parameter : {&inputs[1], &inputs[2]}) {
      parameter->tensor.version = version;
      parameter->tensor.storage = storage;
    }
    auto outputs = executable->call(inputs, out.allocator(), nullptr, {Place::device, stream});
    EXPECT_TRUE(outputs.ok()) << outputs.status().toString();
    const Status ended = executable->synchronize();
    EXPECT_TRUE(ended.ok()) << ended.toString();
    const std::vector<float> values = out.read();
    EXPECT_EQ(values, filled(values[0]));
    return values[0];
  }
  // Whether something was derived since the last question.
  uint64_t derived() {
    const uint64_t now = executable->counters().weights_packed;
    return std::exchange(seen, now) != now ? 1 : 0;
  }
  uint64_t seen = 0;
};

TEST(KeptWeights, AreMadeOnce) {
  if (!ownMemory())
    GTEST_SKIP() << "the device keeps nothing";
  Calls calls(addsToDerived(24));
  for (int call = 0; call < 6; ++call)  // the later ones are replayed
    EXPECT_EQ(calls.call(), 112);
  const ExecutionCounters counters = calls.executable->counters();
  EXPECT_EQ(counters.weights_packed, derived_steps);
  EXPECT_EQ(counters.weight_packs_reused, 5 * derived_steps);
  EXPECT_EQ(counters.launches, derived_steps + 6);
  EXPECT_GE(counters.replays, 3u);
}

TEST(KeptWeights, AnotherVersionStorageOrAddressMakesThemAnew) {
  if (!ownMemory())
    GTEST_SKIP() << "the device keeps nothing";
  Calls calls(addsToDerived(24));
  for (int call = 0; call < 4; ++call)
    EXPECT_EQ(calls.call(), 112);
  calls.derived();
  calls.p.write(filled(2));
  EXPECT_EQ(calls.call(), 112) << "nobody said so";
  ++calls.version;
  EXPECT_EQ(calls.call(), 114);
  EXPECT_EQ(calls.derived(), 1u);
  calls.q.write(filled(20));
  ++calls.storage;
  EXPECT_EQ(calls.call(), 124);
  EXPECT_EQ(calls.derived(), 1u);
  DeviceFloats other(filled(3));
  std::swap(calls.p, other);
  EXPECT_EQ(calls.call(), 126);
  EXPECT_EQ(calls.derived(), 1u);
  calls.q.write(filled(30));
  calls.executable->invalidateWeights();
  EXPECT_EQ(calls.call(), 136);
  EXPECT_EQ(calls.derived(), 1u);
  EXPECT_EQ(calls.call(), 136);
  EXPECT_EQ(calls.derived(), 0u);
}

TEST(KeptWeights, OfMemoryThatNobodyKnowsNothingIsKept) {
  if (!ownMemory())
    GTEST_SKIP() << "the device keeps nothing";
  Calls calls(addsToDerived(24));
  calls.storage = 0;
  for (int call = 0; call < 5; ++call) {
    calls.p.write(filled(float(call)));
    EXPECT_EQ(calls.call(), 110 + 2 * float(call));
  }
  EXPECT_EQ(calls.executable->counters().weights_packed, 0u);
  // What was recorded without it does not serve a call that keeps.
  calls.storage = 7;
  for (int call = 0; call < 4; ++call)
    EXPECT_EQ(calls.call(), 118);
  calls.storage = 0;
  calls.p.write(filled(0));
  EXPECT_EQ(calls.call(), 110);
  calls.storage = 7;
  EXPECT_EQ(calls.call(), 110) << "what was kept is written over by then";
}

TEST(KeptWeights, APlanThatDoesNotSaySoKeepsNothing) {
  Calls calls(addsToDerived(24, false));
  for (int call = 0; call < 4; ++call) {
    calls.p.write(filled(float(call)));
    EXPECT_EQ(calls.call(), 110 + 2 * float(call));
  }
  EXPECT_EQ(calls.executable->counters().launches, 4 * (derived_steps + 1));
}

TEST(KeptWeights, AnotherStreamMakesThemAnew) {
  if (!ownMemory())
    GTEST_SKIP() << "the device keeps nothing";
  Calls calls(addsToDerived(24), true);
  int streams[2];
  for (int call = 0; call < 8; ++call) {
    calls.stream = &streams[call / 4];
    EXPECT_EQ(calls.call(), 112);
    EXPECT_EQ(calls.derived(), call % 4 == 0 ? 1u : 0u) << call;
  }
}

TEST(KeptWeights, ParametersOnTheHost) {
  PlanBuilder b = addsToDerived(24);
  auto executable = create(b);
  ASSERT_TRUE(executable.ok()) << executable.status().toString();
  HostTensor p = HostTensor::f32({24}, filled(1)), q = HostTensor::f32({24}, filled(10)),
             changed = HostTensor::f32({24}, filled(2));
  for (int call = 0; call < 6; ++call) {
    HostTensor x = HostTensor::f32({24}, filled(float(call)));
    const CallInput inputs[] = {x.input(), (call < 4 ? p : changed).input(), q.input()};
    OutputMemory memory;
    auto outputs = (*executable)->call(inputs, memory.allocator());
    ASSERT_TRUE(outputs.ok()) << outputs.status().toString();
    EXPECT_EQ(memory.read<float>((*outputs)[0]), filled(float(call) + (call < 4 ? 12.f : 14.f)));
  }
  EXPECT_EQ((*executable)->counters().weights_packed, ownMemory() ? 2 * derived_steps : 0);
}

// A step that writes part of what is kept, and a parameter that the plan writes.
TEST(KeptWeights, WhatOtherStepsWriteIsNotKept) {
  for (const bool written : {false, true}) {
    PlanBuilder b = addsToDerived(24);
    const uint32_t n = b.constant(24);
    if (written) {
      b.plan.inputs[2]->written = true;
      addStep(b, 0, 2, 2, n);  // q = x + q
    } else {
      b.plan.buffers[4]->last_step = b.plan.buffers[3]->last_step = 3;
      addStep(b, 0, 1, 3, n);  // t = x + p
    }
    Calls calls(std::move(b));
    EXPECT_EQ(calls.call(), 112);
    EXPECT_EQ(calls.call(), written ? 212 : 112);
    EXPECT_EQ(calls.executable->counters().weights_packed, 0u) << written;
  }
}

}  // namespace
}  // namespace zefuse
