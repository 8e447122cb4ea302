// The steady path allocates nothing but what the caller gets. Counts operator new, so it is a program of its own.
#include <gtest/gtest.h>

#include <atomic>

#include "tests/unit/executor/call.h"
#include "tests/unit/executor/kernels.h"
#include "tests/unit/executor/plan_builder.h"
#include "tests/unit/replaced_new.h"

namespace {
std::atomic<uint64_t> allocations{0};
std::atomic<bool> none_left{false};
}  // namespace

bool zefuse::test::mayAllocate() {
  ++allocations;
  return !none_left;
}

namespace zefuse {
namespace {

using test::HostTensor;
using test::PlanBuilder;

// Allocations of one steady call.
uint64_t steady(bool with_matmul) {
  PlanBuilder b;
  const uint32_t s0 = b.symbol("s0", 0, 0), four = b.constant(4);
  const uint32_t x = b.tensorInput("x", plan::DType::f32, {s0, four});
  const uint32_t w = b.tensorInput("w", plan::DType::f32, {four, four}, plan::InputKind::parameter);
  const uint32_t t = b.arenaTensor(plan::DType::f32, {s0, four}, 0, 3);
  const uint32_t out = b.outputTensor(plan::DType::f32, {s0, four});
  const uint32_t extent = b.op(plan::ExprOp::mul, s0, four);
  for (int i = 0; i < 2; ++i) {
    plan::LaunchT add = test::launch(b, "add", {x, x, t}, extent);
    add.symbols = {extent};
    b.step(std::move(add));
  }
  if (with_matmul)
    b.matmul(x, w, t);
  b.copy(t, out);
  if (!with_matmul)
    b.copy(t, out);
  auto made = Executable::create(b.finish(), {});
  EXPECT_TRUE(made.ok()) << made.status().toString();
  HostTensor in = HostTensor::f32({8, 4}, std::vector<float>(32, 1)),
             weight = HostTensor::f32({4, 4}, std::vector<float>(16, 1));
  const CallInput inputs[] = {in.input(), weight.input()};
  alignas(64) static float result[32];
  const AllocateOutput allocate = [](const OutputRequest&) -> Result<void*> { return static_cast<void*>(result); };
  auto call = [&] {
    const uint64_t before = allocations;
    const bool ok = (*made)->call(inputs, allocate).ok();
    const uint64_t after = allocations;
    EXPECT_TRUE(ok);
    return after - before;
  };
  EXPECT_GT(call(), 10u);  // binds symbols, makes kernels, packs: the counter works
  call();
  const uint64_t third = call();
  EXPECT_EQ(call(), third);
  return third;
}

TEST(Allocations, TheSteadyPathMakesOnlyTheResults) {
  EXPECT_EQ(steady(false), 3u);  // the list of outputs, and the one output's sizes and strides
}

TEST(Allocations, ACallThatFailsForWantOfMemoryEndsInItsError) {
  PlanBuilder b;
  const uint32_t s0 = b.symbol("s0", 0, 0);
  const uint32_t x = b.tensorInput("x", plan::DType::f32, {s0}), out = b.outputTensor(plan::DType::f32, {s0});
  b.copy(x, out);
  auto made = Executable::create(b.finish(), {});
  ASSERT_TRUE(made.ok()) << made.status().toString();
  HostTensor in = HostTensor::f32({8}, std::vector<float>(8, 1));
  const CallInput inputs[] = {in.input()};
  // From here on to the end of the call nothing is to be had, as in a process that has reached its limit.
  const AllocateOutput allocate = [](const OutputRequest&) -> Result<void*> {
    none_left = true;
    return Status{Code::out_of_memory, "no memory"};
  };
  const Code code = (*made)->call(inputs, allocate).status().code();
  none_left = false;
  EXPECT_EQ(code, Code::out_of_memory);
}

TEST(Allocations, AMatmulAddsOnlyWhatOneDnnItselfAllocates) {
  EXPECT_LE(steady(true), 3u + 8u);  // oneDNN 3.2 makes an execution context per primitive
}

}  // namespace
}  // namespace zefuse
