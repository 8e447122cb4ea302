// Damaged plans with launches are refused, or their kernels are bound and run: groups, arguments, symbols, scratch
// memory and checks. The kernel touches nothing: what one does to the memory it gets is not the plan's to say.
#include <gtest/gtest.h>

#include "tests/unit/executor/kernels.h"
#include "tests/unit/executor/plan_damage.h"

namespace zefuse {
namespace {

using test::damage;
using test::Inputs;
using test::OutputMemory;
using test::PlanBuilder;

constexpr int rounds = 10000;

// In three ways: in chunks, with exact groups of several items, and without scratch memory and checks of its own.
PlanBuilder launches() {
  PlanBuilder b;
  const uint32_t s0 = b.symbol("s0", 0, 0), four = b.constant(4);
  const uint32_t x = b.tensorInput("x", plan::DType::f32, {s0, four});
  const uint32_t t = b.arenaTensor(plan::DType::f32, {s0, four}, 0, 1);
  const uint32_t out = b.outputTensor(plan::DType::f32, {s0, four});
  b.module("ignore", "ignore", {0x07230203, 1, 2, 3, 4});  // never compiled: native code is given
  const uint32_t scratch = b.op(plan::ExprOp::mul, s0, four);
  for (bool exact : {false, true}) {
    plan::LaunchT launch;
    launch.name = "ignore";
    launch.args = exact ? std::vector{t, out} : std::vector{x, t};
    launch.outputs = 1;
    launch.extent = b.op(plan::ExprOp::mul, s0, four);
    launch.grain = exact ? 2 : 3;
    launch.distribution = exact ? plan::Distribution::exact : plan::Distribution::chunked;
    launch.group_size = {exact ? 2u : 1u};
    launch.scratch_bytes = scratch;
    launch.symbols = {s0, four};
    launch.checks.push_back(std::make_unique<plan::KernelCheckT>());
    launch.checks[0]->message = "a check";
    b.step(std::move(launch));
  }
  return b;
}

std::vector<std::byte> nativeCode() {
  PlanBuilder b = launches();
  b.plan.modules[0]->spirv = test::kernelsSpirv();
  auto made = Executable::create(b.finish(), {});
  EXPECT_TRUE(made.ok()) << made.status().toString();
  return made.ok() ? (*(*made)->nativeBinaries())[0] : std::vector<std::byte>();
}

TEST(LaunchFuzz, DamagedLaunchesAreRefusedOrRun) {
  const std::vector<std::byte> good = launches().finish(), native = nativeCode();
  ASSERT_FALSE(native.empty());
  ExecutableOptions options;
  options.build = false;
  options.native_binary = [&](std::string_view, std::string_view) { return std::span(native); };
  std::mt19937 random(8);
  int refused = 0, ran = 0;
  uint64_t launched = 0;
  for (int round = 0; round < rounds; ++round) {
    const auto bytes = round ? damage(good, random) : good;
    auto executable = Executable::create(bytes, options);
    if (!executable.ok()) {
      ASSERT_TRUE(round) << executable.status().toString();
      ASSERT_FALSE(executable.status().message().empty());
      ++refused;
      continue;
    }
    // A damaged extent is a number of groups for the device to run: billions of them take their time.
    bool quick = true;
    const auto* steps = (*executable)->plan().steps();
    for (uint32_t i = 0; steps && i < steps->size(); ++i)
      if (const plan::Launch* launch = steps->Get(i)->kind_as_Launch())
        quick &= launch->distribution() == plan::Distribution::chunked || launch->extent() < 1000;
    for (int64_t rows : {3, 0, 1}) {
      if (!quick)
        continue;
      Inputs inputs((*executable)->plan(), rows);
      OutputMemory memory;
      auto outputs = (*executable)->call(inputs.calls, memory.allocator());
      ASSERT_TRUE(round || outputs.ok()) << outputs.status().toString();
      ran += outputs.ok();
    }
    launched += (*executable)->counters().launches;
  }
  // It must get past the checks often enough to mean something, and not always.
  EXPECT_GT(refused, rounds / 20);
  EXPECT_GT(ran, rounds / 5);
  EXPECT_GT(launched, uint64_t(rounds / 5));
}

}  // namespace
}  // namespace zefuse

extern "C" const char* __asan_default_options() { return "allocator_may_return_null=1"; }
