// Whole calls without kernels: copies, matmuls, symbols, inputs, outputs.
#include <gtest/gtest.h>

#include <thread>

#include "common/plan/plan_json.h"
#include "tests/unit/executor/call.h"
#include "tests/unit/executor/plan_builder.h"

namespace zefuse {
namespace {

using test::HostTensor;
using test::OutputMemory;
using test::PlanBuilder;

std::unique_ptr<Executable> create(const PlanBuilder& builder) {
  auto made = Executable::create(builder.finish(), {});
  EXPECT_TRUE(made.ok()) << made.status().toString();
  return made.ok() ? std::move(*made) : nullptr;
}

std::vector<float> ramp(size_t count, float scale = 1) {
  std::vector<float> out(count);
  for (size_t i = 0; i < count; ++i)
    out[i] = scale * float(i % 97) - 20;
  return out;
}

// Copies x through the arena; sizes [s0, 8].
PlanBuilder dynamicCopy() {
  PlanBuilder b;
  const uint32_t s0 = b.symbol("s0", 0, 0);
  const std::vector<uint32_t> sizes = {s0, b.constant(8)};
  const uint32_t x = b.tensorInput("x", plan::DType::f32, sizes);
  const uint32_t t = b.arenaTensor(plan::DType::f32, sizes, 0, 1);
  const uint32_t out = b.outputTensor(plan::DType::f32, sizes);
  b.copy(x, t);
  b.copy(t, out);
  b.output(b.op(plan::ExprOp::mul, s0, s0), plan::OutputKind::integer);
  b.output(0, plan::OutputKind::none);
  return b;
}

TEST(Executable, RunsADynamicPlanForManySizes) {
  auto executable = create(dynamicCopy());
  for (int64_t rows : {3, 0, 1, 700, 3}) {
    HostTensor x = HostTensor::f32({rows, 8}, ramp(size_t(rows) * 8));
    OutputMemory memory;
    const CallInput inputs[] = {x.input()};
    auto outputs = executable->call(inputs, memory.allocator());
    ASSERT_TRUE(outputs.ok()) << outputs.status().toString();
    ASSERT_EQ(outputs->size(), 3u);
    EXPECT_EQ((*outputs)[0].kind, CallOutput::Kind::output_buffer);
    EXPECT_EQ((*outputs)[0].sizes, (std::vector<int64_t>{rows, 8}));
    EXPECT_EQ((*outputs)[0].strides, (std::vector<int64_t>{8, 1}));
    EXPECT_EQ(memory.read<float>((*outputs)[0]), ramp(size_t(rows) * 8));
    EXPECT_EQ((*outputs)[1].kind, CallOutput::Kind::integer);
    EXPECT_EQ((*outputs)[1].integer, rows * rows);
    EXPECT_EQ((*outputs)[2].kind, CallOutput::Kind::none);
  }
  EXPECT_EQ(executable->counters().calls, 5u);
  EXPECT_EQ(executable->counters().copies, 10u);
  EXPECT_GE(executable->counters().arena_bytes, 700u * 32);
}

TEST(Executable, FreesWhatCallsHaveLeft) {
  auto executable = create(dynamicCopy());
  for (int round = 0; round < 2; ++round) {
    HostTensor x = HostTensor::f32({700, 8}, ramp(5600));
    OutputMemory memory;
    const CallInput inputs[] = {x.input()};
    auto outputs = executable->call(inputs, memory.allocator());
    ASSERT_TRUE(outputs.ok()) << outputs.status().toString();
    EXPECT_EQ(memory.read<float>((*outputs)[0]), ramp(5600));
    EXPECT_GE(executable->freeIdleMemory(), 700u * 32);
    EXPECT_EQ(executable->freeIdleMemory(), 0u);
  }
}

TEST(Executable, NamesTheInputThatDoesNotMatch) {
  PlanBuilder b;
  const uint32_t n = b.integerInput("n");
  b.symbol("s0", n);
  const uint32_t x = b.tensorInput("x", plan::DType::f32, b.constants({2, 3}));
  b.output(x);
  auto executable = create(b);
  HostTensor good = HostTensor::f32({2, 3}, ramp(6)), wide = HostTensor::f32({2, 4}, ramp(8)),
             flat = HostTensor::f32({6}, ramp(6)),
             ints = HostTensor::of<int32_t>(plan::DType::i32, {2, 3}, {1, 2, 3, 4, 5, 6});
  HostTensor strided = good;
  strided.strides = {1, 2};
  auto message = [&](std::vector<CallInput> inputs) {
    OutputMemory memory;
    auto outputs = executable->call(inputs, memory.allocator());
    EXPECT_EQ(outputs.status().code(), Code::invalid_argument);
    return outputs.status().message();
  };
  const CallInput one = test::integerInput(1);
  EXPECT_NE(message({one}).find("takes 2 inputs, got 1"), std::string::npos);
  EXPECT_NE(message({one, wide.input()})
                .find("sizes [2, 3] and strides [3, 1], got a tensor of "
                      "dtype f32, sizes [2, 4]"),
            std::string::npos);
  EXPECT_NE(message({one, flat.input()}).find("with 2 dimensions"), std::string::npos);
  EXPECT_NE(message({one, ints.input()}).find("dtype f32"), std::string::npos);
  EXPECT_NE(message({one, strided.input()}).find("strides [1, 2]"), std::string::npos);
  EXPECT_NE(message({one, one}).find("input 1 'x'"), std::string::npos);
  EXPECT_NE(message({good.input(), good.input()}).find("expected an integer"), std::string::npos);
  CallInput null = good.input();
  null.tensor.data = nullptr;
  EXPECT_NE(message({one, null}).find("has no data"), std::string::npos);

  OutputMemory memory;
  const CallInput inputs[] = {one, good.input()};
  auto outputs = executable->call(inputs, memory.allocator());
  ASSERT_TRUE(outputs.ok());
  EXPECT_EQ((*outputs)[0].kind, CallOutput::Kind::input);  // the input itself
  EXPECT_EQ((*outputs)[0].index, 1u);
}

TEST(Executable, SeveralOutputsMayViewOneBuffer) {
  PlanBuilder b;
  const auto sizes = b.constants({2, 3});
  const uint32_t x = b.tensorInput("x", plan::DType::f32, sizes);
  const uint32_t out = b.outputTensor(plan::DType::f32, sizes);
  const uint32_t row =
      b.value(b.plan.values[out]->buffer, plan::DType::f32, {b.constant(3)}, {b.constant(1)}, b.constant(3));
  b.output(row);
  b.copy(x, out);
  auto executable = create(b);
  HostTensor in = HostTensor::f32({2, 3}, {1, 2, 3, 4, 5, 6});
  OutputMemory memory;
  const CallInput inputs[] = {in.input()};
  auto outputs = executable->call(inputs, memory.allocator());
  ASSERT_TRUE(outputs.ok());
  EXPECT_EQ((*outputs)[1].index, 0u);
  EXPECT_EQ((*outputs)[1].offset, 3);
  EXPECT_EQ(memory.read<float>((*outputs)[1]), (std::vector<float>{4, 5, 6}));
}

TEST(Executable, AllocationFailureIsAnError) {
  auto executable = create(dynamicCopy());
  HostTensor x = HostTensor::f32({2, 8}, ramp(16));
  const CallInput inputs[] = {x.input()};
  auto none = [](const OutputRequest&) -> Result<void*> { return static_cast<void*>(nullptr); };
  EXPECT_EQ(executable->call(inputs, none).status().code(), Code::out_of_memory);
  auto refuse = [](const OutputRequest&) -> Result<void*> { return Status{Code::out_of_memory, "no more"}; };
  EXPECT_EQ(executable->call(inputs, refuse).status().message(), "no more");
}

TEST(Executable, AValueThatLeavesItsBufferIsRefusedWhenSizesAreKnown) {
  PlanBuilder b;
  const uint32_t s0 = b.symbol("s0", 0, 0);
  const uint32_t x = b.tensorInput("x", plan::DType::f32, {s0});
  const uint32_t buffer = b.buffer(plan::Storage::arena, 0, b.constant(64), 0, 0);
  b.copy(x, b.value(buffer, plan::DType::f32, {s0}, {b.constant(1)}));
  auto executable = create(b);
  auto call = [&](int64_t count) {
    HostTensor x = HostTensor::f32({count}, ramp(size_t(count)));
    OutputMemory memory;
    const CallInput inputs[] = {x.input()};
    return executable->call(inputs, memory.allocator()).status();
  };
  EXPECT_TRUE(call(16).ok());
  const Status status = call(17);
  EXPECT_EQ(status.code(), Code::damaged);
  EXPECT_NE(status.message().find("leaves buffer 1 of 64 bytes"), std::string::npos) << status.message();
}

// At least three rows, by s0 - 3; "{}" is how many there are.
PlanBuilder checkedCopy(plan::ErrorClass error) {
  PlanBuilder b = dynamicCopy();
  const uint32_t rows = b.plan.inputs[0]->sizes[0];
  auto check = std::make_unique<plan::SizeCheckT>();
  check->value = b.op(plan::ExprOp::add, rows, b.constant(-3));
  check->error = error;
  check->message = "{} rows of {} columns, not three";
  check->numbers = {rows, b.plan.inputs[0]->sizes[1]};
  check->source = "model.py:7";
  b.plan.size_checks.push_back(std::move(check));
  return b;
}

TEST(Executable, ChecksOfSizesAreMadeBeforeAnythingRuns) {
  const std::pair<plan::ErrorClass, Code> classes[] = {{plan::ErrorClass::index_error, Code::index_error},
                                                       {plan::ErrorClass::value_error, Code::invalid_argument},
                                                       {plan::ErrorClass::runtime_error, Code::device}};
  for (const auto& [error, code] : classes) {
    auto executable = create(checkedCopy(error));
    for (int64_t rows : {3, 2, 4, 0}) {
      HostTensor x = HostTensor::f32({rows, 8}, ramp(size_t(rows) * 8));
      OutputMemory memory;
      const CallInput inputs[] = {x.input()};
      auto outputs = executable->call(inputs, memory.allocator());
      EXPECT_EQ(outputs.ok(), rows >= 3);
      if (outputs.ok())
        continue;
      EXPECT_EQ(outputs.status().code(), code);
      EXPECT_EQ(outputs.status().message(), std::to_string(rows) + " rows of 8 columns, not three\nof model.py:7");
    }
  }
}

TEST(Executable, WrongDeviceIsRefused) {
  PlanBuilder b = dynamicCopy();
  b.plan.device = "gpu:0";
  EXPECT_EQ(Executable::create(b.finish(), {}).status().code(), Code::invalid_argument);
  ExecutableOptions options;
  options.device = b.plan.device = "gpu:77";  // never the CPU instead
  EXPECT_EQ(Executable::create(b.finish(), options).status().code(), Code::not_found);
}

TEST(Executable, ConcurrentCallsDoNotMixTheirArenas) {
  auto executable = create(dynamicCopy());
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      for (int round = 0; round < 200; ++round) {
        const int64_t rows = 1 + (t * 7 + round) % 50;
        const auto data = ramp(size_t(rows) * 8, float(t + 1));
        HostTensor x = HostTensor::f32({rows, 8}, data);
        OutputMemory memory;
        const CallInput inputs[] = {x.input()};
        auto outputs = executable->call(inputs, memory.allocator());
        wrong += !outputs.ok() || memory.read<float>((*outputs)[0]) != data;
      }
    });
  for (auto& thread : threads)
    thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(executable->counters().calls, 1600u);
}

// out = x @ w (+ bias), w a parameter [6, 5], x [s0, 6].
PlanBuilder linear(bool transposed) {
  PlanBuilder b;
  const uint32_t s0 = b.symbol("s0", 0, 0);
  const uint32_t k = b.constant(6), n = b.constant(5), one = b.constant(1);
  const uint32_t x = b.tensorInput("x", plan::DType::f32, {s0, k});
  uint32_t w;
  if (transposed) {
    const uint32_t whole = b.tensorInput("w", plan::DType::f32, {n, k}, plan::InputKind::parameter);
    w = b.value(b.plan.values[whole]->buffer, plan::DType::f32, {k, n}, {one, k});
  } else {
    w = b.tensorInput("w", plan::DType::f32, {k, n}, plan::InputKind::parameter);
  }
  const uint32_t bias = b.tensorInput("bias", plan::DType::f32, {n}, plan::InputKind::parameter);
  const uint32_t out = b.outputTensor(plan::DType::f32, {s0, n});
  b.matmul(x, w, out, int32_t(bias));
  return b;
}

std::vector<float> linearReference(const std::vector<float>& x, const std::vector<float>& w,
                                   const std::vector<float>& bias, size_t rows, bool transposed) {
  std::vector<float> out(rows * 5);
  for (size_t i = 0; i < rows; ++i)
    for (size_t j = 0; j < 5; ++j) {
      double sum = bias[j];
      for (size_t k = 0; k < 6; ++k)
        sum += double(x[i * 6 + k]) * (transposed ? w[j * 6 + k] : w[k * 5 + j]);
      out[i * 5 + j] = float(sum);
    }
  return out;
}

class Linear : public testing::TestWithParam<bool> {};

TEST_P(Linear, PacksItsWeightOnceAndAgainWhenItChanges) {
  const bool transposed = GetParam();
  auto executable = create(linear(transposed));
  std::vector<float> weights = ramp(30, 0.5f), bias = {1, 2, 3, 4, 5};
  HostTensor w = transposed ? HostTensor::f32({5, 6}, weights) : HostTensor::f32({6, 5}, weights);
  HostTensor c = HostTensor::f32({5}, bias);
  uint64_t version = 1;
  auto check = [&](int64_t rows) {
    const auto data = ramp(size_t(rows) * 6);
    HostTensor x = HostTensor::f32({rows, 6}, data);
    CallInput inputs[] = {x.input(), w.input(), c.input()};
    inputs[1].tensor.version = version;
    OutputMemory memory;
    auto outputs = executable->call(inputs, memory.allocator());
    ASSERT_TRUE(outputs.ok()) << outputs.status().toString();
    const auto got = memory.read<float>((*outputs)[0]);
    const auto expected = linearReference(data, weights, bias, size_t(rows), transposed);
    for (size_t i = 0; i < got.size(); ++i)
      ASSERT_NEAR(got[i], expected[i], 1e-3 * (1 + std::abs(expected[i])));
  };
  auto change = [&](float value) {
    std::fill(weights.begin(), weights.end(), value);
    std::memcpy(w.bytes.data(), weights.data(), w.bytes.size());
  };
  check(4);
  const uint64_t packs = executable->counters().weights_streamed;  // 0: oneDNN takes it as it is
  EXPECT_EQ(executable->counters().weights_packed, 0u);
  check(4);
  check(4);
  check(0);
  EXPECT_EQ(executable->counters().weights_packed, packs);
  auto expect = [&](uint64_t streamed, uint64_t packed) {
    EXPECT_EQ(executable->counters().weights_streamed, streamed * packs);
    EXPECT_EQ(executable->counters().weights_packed, packed * packs);
  };
  change(2.5f);  // as a fused optimizer does: the version counter stays
  check(4);
  expect(2, 1);
  check(4);
  expect(2, 2);
  ++version;
  check(4);
  expect(3, 2);
  check(4);
  expect(3, 3);
  executable->invalidateWeights();
  check(4);
  expect(4, 3);
  check(4);
  expect(4, 4);
  check(1);
  check(64);
}

INSTANTIATE_TEST_SUITE_P(Layouts, Linear, testing::Bool());

TEST(Executable, BatchSizesShareAPackedWeightWhereTheLayoutIsTheSame) {
  PlanBuilder b;
  const uint32_t s0 = b.symbol("s0", 0, 0);
  const uint32_t k = b.constant(96), n = b.constant(192);
  const uint32_t x = b.tensorInput("x", plan::DType::f32, {s0, k});
  const uint32_t w = b.tensorInput("w", plan::DType::f32, {k, n}, plan::InputKind::parameter);
  b.matmul(x, w, b.outputTensor(plan::DType::f32, {s0, n}));
  auto executable = create(b);
  HostTensor weight = HostTensor::f32({96, 192}, ramp(96 * 192));
  auto round = [&] {
    for (int64_t rows : {16, 24, 32, 48, 64, 80, 96, 128, 200, 256}) {
      HostTensor x = HostTensor::f32({rows, 96}, ramp(size_t(rows) * 96));
      OutputMemory memory;
      const CallInput inputs[] = {x.input(), weight.input()};
      ASSERT_TRUE(executable->call(inputs, memory.allocator()).ok());
    }
  };
  round();
  round();
  const auto second = executable->counters();
  EXPECT_LE(second.weights_packed, 4u);  // ten primitives, few layouts
  EXPECT_EQ(second.weights_streamed, second.weights_packed);
  round();
  const auto third = executable->counters();
  EXPECT_EQ(third.weights_packed, second.weights_packed);
  EXPECT_EQ(third.weights_streamed + third.weights_packed + third.weight_packs_reused, third.weights_packed ? 30u : 0u);
}

TEST(Executable, MatmulSizesThatDoNotFitAreNamed) {
  PlanBuilder b;
  const uint32_t s0 = b.symbol("s0", 0, 1);
  const uint32_t two = b.constant(2);
  const uint32_t x = b.tensorInput("x", plan::DType::f32, {two, s0});
  const uint32_t w = b.tensorInput("w", plan::DType::f32, {two, two});
  b.matmul(x, w, b.outputTensor(plan::DType::f32, {two, two}));
  auto executable = create(b);
  HostTensor wrong = HostTensor::f32({2, 3}, ramp(6)), weight = HostTensor::f32({2, 2}, ramp(4));
  OutputMemory memory;
  const CallInput inputs[] = {wrong.input(), weight.input()};
  const Status status = executable->call(inputs, memory.allocator()).status();
  EXPECT_EQ(status.code(), Code::invalid_argument);
  EXPECT_NE(status.message().find("step 0 (Matmul)"), std::string::npos) << status.message();
}

TEST(PlanJson, ShowsThePlanWithoutSpirv) {
  PlanBuilder b = dynamicCopy();
  b.plan.inputs[0]->name = "a \"quoted\"\n name";
  b.module("abc", "k", std::vector<uint32_t>(100, 12345678));
  const std::string json = planToJson(b.finish());
  EXPECT_NE(json.find("\"a \\\"quoted\\\"\\u000a name\""), std::string::npos);
  EXPECT_NE(json.find("\"100 words\""), std::string::npos);
  EXPECT_EQ(json.find("12345678"), std::string::npos);
  EXPECT_NE(json.find("\"op\": \"symbol\""), std::string::npos);
  EXPECT_NE(json.find("\"storage\": \"arena\""), std::string::npos);
  EXPECT_NE(planToJson(std::vector<std::byte>(100)).find("error"), std::string::npos);
}

}  // namespace
}  // namespace zefuse
