// Any bytes are safe to pass: damaged plans give an error or a plan that runs within its memory. Meant for the
// AddressSanitizer build; elsewhere it finds crashes only.
//
// Launches: launch_fuzz_test.cpp. Packages: package_fuzz_test.cpp.
#include <gtest/gtest.h>

#include <random>

#include "tests/unit/executor/call.h"
#include "tests/unit/executor/fake_aten.h"
#include "tests/unit/executor/plan_builder.h"
#include "tests/unit/executor/plan_damage.h"

namespace zefuse {
namespace {

using test::damage;
using test::FakeAten;
using test::Inputs;
using test::OutputMemory;
using test::PlanBuilder;

constexpr int rounds = 20000;

// A bit of everything: symbols, arena, a matmul with packed weights, ATen, copies, views as outputs.
PlanBuilder mixed() {
  PlanBuilder b;
  const uint32_t s0 = b.symbol("s0", 0, 0);
  const uint32_t four = b.constant(4), one = b.constant(1);
  const uint32_t x = b.tensorInput("x", plan::DType::f32, {s0, four});
  const uint32_t w = b.tensorInput("w", plan::DType::f32, {four, four}, plan::InputKind::parameter);
  b.symbol("n", b.integerInput("n"));
  const uint32_t t = b.arenaTensor(plan::DType::f32, {s0, four}, 0, 2);
  const uint32_t u = b.arenaTensor(plan::DType::f32, {s0, four}, 1, 2);
  const uint32_t e = b.externalTensor(plan::DType::f32, {s0, four}, 2, 3);
  const uint32_t out = b.outputTensor(plan::DType::f32, {s0, four});
  b.output(b.value(b.plan.values[out]->buffer, plan::DType::f32, {four, s0}, {one, four}));
  b.output(s0, plan::OutputKind::integer);
  b.output(e);
  b.matmul(x, w, t);
  b.plan.steps[0]->kind.AsMatmul()->post_ops.push_back(std::make_unique<plan::PostOpT>());
  b.plan.steps[0]->kind.AsMatmul()->post_ops[0]->kind = plan::PostOpKind::add;
  b.plan.steps[0]->kind.AsMatmul()->post_ops[0]->operand = int32_t(x);
  b.copy(t, u);
  plan::AtenCallT call;
  call.op = "test::any";
  call.args.push_back(std::make_unique<plan::ArgumentT>());
  call.args[0]->kind = plan::ArgumentKind::tensor;
  call.args[0]->value = u;
  call.outputs = {int32_t(e)};
  b.step(std::move(call));
  b.copy(e, out);
  return b;
}

TEST(PlanFuzz, DamagedPlansFailOrRunWithinTheirMemory) {
  FakeAten aten;
  aten.kernels["test::any"] = [&](std::span<const AtenArgument> args) {
    // Reads all of its argument, returns what the undamaged plan expects.
    std::vector<int64_t> sizes = {3, 4}, strides = {4, 1};
    if (!args.empty() && args[0].kind == plan::ArgumentKind::tensor && args[0].tensor.dtype == plan::DType::f32) {
      sizes.assign(args[0].tensor.sizes.begin(), args[0].tensor.sizes.end());
      strides.assign(sizes.size(), 1);
      int64_t elements = 1;
      for (size_t d = sizes.size(); d-- > 0;) {
        strides[d] = elements;
        elements *= sizes[d];
      }
      if (elements > 100000)
        return std::vector<AtenResult>();
    }
    return FakeAten::one(aten.make(sizes, strides));
  };
  const std::vector<std::byte> good = mixed().finish();
  std::mt19937 random(7);
  int loaded = 0, ran = 0;
  for (int round = 0; round < rounds; ++round) {
    const auto bytes = round ? damage(good, random) : good;
    auto executable = Executable::create(bytes, {});
    if (!executable.ok()) {
      ASSERT_FALSE(executable.status().message().empty());
      continue;
    }
    ++loaded;
    for (int64_t rows : {3, 0, 1}) {
      Inputs inputs((*executable)->plan(), rows);
      OutputMemory memory;
      auto outputs = (*executable)->call(inputs.calls, memory.allocator());
      ASSERT_TRUE(round || outputs.ok()) << outputs.status().toString();
      ran += outputs.ok();
      if (outputs.ok())
        for (const CallOutput& output : *outputs)
          if (output.owner)
            aten.release(output.owner);
      ASSERT_EQ(aten.alive, 0);
    }
  }
  // The test must get past the checks often enough to mean something.
  EXPECT_GT(loaded, rounds / 20);
  EXPECT_GT(ran, rounds / 20);
}

}  // namespace
}  // namespace zefuse

// A damaged size may ask for more memory than there is: that is an error to handle, not a reason to stop.
extern "C" const char* __asan_default_options() { return "allocator_may_return_null=1"; }
