// Any bytes are safe to pass: damaged plans give an error or a plan that runs within its memory. Meant for the
// AddressSanitizer build; elsewhere it finds crashes only.
//
// Plans with launches are only loaded: what a kernel does to the memory it gets is not the plan's to say.
#include <gtest/gtest.h>

#include <random>

#include "common/plan/program.h"
#include "tests/unit/executor/call.h"
#include "tests/unit/executor/fake_aten.h"
#include "tests/unit/executor/plan_builder.h"

namespace zefuse {
namespace {

using test::FakeAten;
using test::HostTensor;
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

PlanBuilder withLaunch() {
  PlanBuilder b = mixed();
  plan::LaunchT launch;
  launch.args = {0, 5};
  launch.outputs = 1;
  launch.grain = 4;
  launch.extent = 1;
  launch.symbols = {1, 2};
  launch.group_size = {1, 1, 1};
  launch.checks.push_back(std::make_unique<plan::KernelCheckT>());
  b.module("m", "entry", {1, 2, 3});
  b.step(std::move(launch));
  return b;
}

std::vector<std::byte> damage(std::vector<std::byte> bytes, std::mt19937& random) {
  const int changes = 1 + int(random() % 3);
  for (int i = 0; i < changes; ++i) {
    const size_t at = random() % bytes.size();
    switch (random() % 4) {
    case 0: bytes[at] ^= std::byte(1 << random() % 8); break;
    case 1: bytes[at] = std::byte(random()); break;
    default: {  // a word that indexes something, or nothing at all
      const uint32_t words[] = {0, 1, 2, 3, 7, uint32_t(random() % 64), 0x7fffffff, ~0u};
      const size_t aligned = at / 4 * 4;
      if (aligned + 4 <= bytes.size())
        std::memcpy(bytes.data() + aligned, &words[random() % 8], 4);
    }
    }
  }
  return bytes;
}

// Inputs that fit whatever the plan now asks for, where that is possible.
struct Inputs {
  std::vector<HostTensor> tensors;
  std::vector<CallInput> calls;

  Inputs(const plan::Plan& plan, int64_t rows) {
    const auto* inputs = plan.inputs();
    const size_t count = inputs ? inputs->size() : 0;
    tensors.resize(count);
    for (size_t i = 0; i < count; ++i) {
      const plan::Input& input = *inputs->Get(uint32_t(i));
      if (input.kind() == plan::InputKind::integer) {
        calls.push_back(test::integerInput(rows));
        continue;
      }
      HostTensor& tensor = tensors[i];
      tensor.dtype = input.dtype();
      const size_t rank = input.sizes() ? input.sizes()->size() : 0;
      tensor.sizes.assign(rank, 4);
      if (i == 0 && rank)
        tensor.sizes[0] = rows;
      tensor.strides.assign(rank, 1);
      int64_t elements = 1;
      for (size_t d = rank; d-- > 0;) {
        tensor.strides[d] = elements;
        elements *= tensor.sizes[d];
        if (elements > 100000) {
          elements = 0;
          break;
        }
      }
      tensor.bytes.resize(size_t(elements) * executor::elementSize(tensor.dtype));
      calls.push_back(tensor.input());
      if (elements == 0)
        calls.back().tensor.data = nullptr;
    }
  }
};

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

TEST(PlanFuzz, DamagedLaunchesAreLoadedOrRefused) {
  const std::vector<std::byte> good = withLaunch().finish();
  ASSERT_TRUE(executor::loadProgram(good).ok()) << executor::loadProgram(good).status().toString();
  std::mt19937 random(8);
  int refused = 0;
  for (int round = 0; round < rounds; ++round)
    refused += !executor::loadProgram(damage(good, random)).ok();
  EXPECT_GT(refused, rounds / 20);
}

}  // namespace
}  // namespace zefuse

// A damaged size may ask for more memory than there is: that is an error to handle, not a reason to stop.
extern "C" const char* __asan_default_options() { return "allocator_may_return_null=1"; }
