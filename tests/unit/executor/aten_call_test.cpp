// Steps through ATen, on a bridge without torch.
#include <gtest/gtest.h>

#include <new>

#include "tests/unit/executor/call.h"
#include "tests/unit/executor/fake_aten.h"
#include "tests/unit/executor/plan_builder.h"

namespace zefuse {
namespace {

using test::FakeAten;
using test::HostTensor;
using test::OutputMemory;
using test::PlanBuilder;

std::unique_ptr<plan::ArgumentT> tensorArgument(uint32_t value) {
  auto argument = std::make_unique<plan::ArgumentT>();
  argument->kind = plan::ArgumentKind::tensor;
  argument->value = value;
  return argument;
}

plan::AtenCallT call(const std::string& op, uint32_t argument, std::vector<int32_t> outputs) {
  plan::AtenCallT call;
  call.op = op;
  call.args.push_back(tensorArgument(argument));
  call.outputs = std::move(outputs);
  return call;
}

struct AtenCall : testing::Test {
  FakeAten aten;
  std::vector<int64_t> result_strides = {3, 1};
  std::vector<int64_t> result_sizes = {2, 3};
  void* seen_owner = nullptr;

  AtenCall() {
    // twice(x): x times two, contiguous unless a test says otherwise.
    aten.kernels["test::twice"] = [this](std::span<const AtenArgument> args) {
      seen_owner = args[0].tensor.owner;
      const TensorRef& x = args[0].tensor;
      auto* out = aten.make(result_sizes, result_strides);
      for (int64_t i = 0; i < x.sizes[0]; ++i)
        for (int64_t j = 0; j < x.sizes[1]; ++j)
          (*out->storage)[size_t(i * result_strides[0] + j * result_strides[1])] =
              2 * static_cast<float*>(x.data)[i * x.strides[0] + j * x.strides[1]];
      return FakeAten::one(out);
    };
  }

  // x -> twice -> external -> twice -> `storage`, or the external value itself as output.
  std::unique_ptr<Executable> twoCalls(bool external_output) {
    PlanBuilder b;
    const auto sizes = b.constants({2, 3});
    const uint32_t x = b.tensorInput("x", plan::DType::f32, sizes);
    const uint32_t t = b.externalTensor(plan::DType::f32, sizes, 0, 1);
    uint32_t out;
    if (external_output) {
      out = b.externalTensor(plan::DType::f32, sizes, 1, 1);
      b.output(out);
      b.output(b.value(b.plan.values[out]->buffer, plan::DType::f32, {b.constant(3)}, {b.constant(1)}, b.constant(3)));
    } else {
      out = b.outputTensor(plan::DType::f32, sizes);
    }
    b.step(call("test::twice", x, {int32_t(t)}));
    b.step(call("test::twice", t, {int32_t(out)}));
    auto made = Executable::create(b.finish(), {});
    EXPECT_TRUE(made.ok()) << made.status().toString();
    return made.ok() ? std::move(*made) : nullptr;
  }
};

TEST_F(AtenCall, ExternalsAreKeptWhileTheyLiveAndReleased) {
  auto executable = twoCalls(false);
  HostTensor x = HostTensor::f32({2, 3}, {1, 2, 3, 4, 5, 6});
  for (int round = 0; round < 3; ++round) {
    OutputMemory memory;
    const CallInput inputs[] = {x.input()};
    auto outputs = executable->call(inputs, memory.allocator());
    ASSERT_TRUE(outputs.ok()) << outputs.status().toString();
    EXPECT_EQ(memory.read<float>((*outputs)[0]), (std::vector<float>{4, 8, 12, 16, 20, 24}));
    EXPECT_NE(seen_owner, nullptr);  // the second call saw the first one's tensor itself
    EXPECT_EQ(aten.alive, 0);
  }
  EXPECT_EQ(executable->counters().aten_calls, 6u);
  EXPECT_EQ(executable->counters().copies, 3u);  // into the output's memory
}

TEST_F(AtenCall, ExternalOutputsPassOwnershipEachWithAHandleOfItsOwn) {
  auto executable = twoCalls(true);
  HostTensor x = HostTensor::f32({2, 3}, {1, 2, 3, 4, 5, 6});
  OutputMemory memory;
  const CallInput inputs[] = {x.input()};
  auto outputs = executable->call(inputs, memory.allocator());
  ASSERT_TRUE(outputs.ok()) << outputs.status().toString();
  ASSERT_EQ(outputs->size(), 2u);
  EXPECT_EQ(aten.alive, 2);
  EXPECT_NE((*outputs)[0].owner, (*outputs)[1].owner);
  for (const CallOutput& output : *outputs) {
    EXPECT_EQ(output.kind, CallOutput::Kind::external);
    auto* tensor = static_cast<FakeAten::Tensor*>(output.owner);
    EXPECT_EQ(*tensor->storage, (std::vector<float>{4, 8, 12, 16, 20, 24}));
    aten.release(output.owner);
  }
  EXPECT_EQ((*outputs)[1].offset, 3);
  EXPECT_EQ(executable->counters().copies, 0u);
}

TEST_F(AtenCall, InputsKeepTheirOwner) {
  auto executable = twoCalls(true);
  HostTensor x = HostTensor::f32({2, 3}, {1, 2, 3, 4, 5, 6});
  CallInput input = x.input();
  int tag = 0;
  input.tensor.owner = &tag;
  std::vector<void*> owners;
  const auto twice = aten.kernels["test::twice"];
  aten.kernels["test::twice"] = [&](std::span<const AtenArgument> args) {
    owners.push_back(args[0].tensor.owner);
    return twice(args);
  };
  OutputMemory memory;
  auto outputs = executable->call({&input, 1}, memory.allocator());
  ASSERT_TRUE(outputs.ok());
  ASSERT_EQ(owners.size(), 2u);
  EXPECT_EQ(owners[0], &tag);
  for (const CallOutput& output : *outputs)
    aten.release(output.owner);
}

TEST_F(AtenCall, OtherStridesAreCopiedIntoTheDeclaredOnesAndCounted) {
  result_strides = {1, 2};
  auto executable = twoCalls(true);
  HostTensor x = HostTensor::f32({2, 3}, {1, 2, 3, 4, 5, 6});
  OutputMemory memory;
  const CallInput inputs[] = {x.input()};
  auto outputs = executable->call(inputs, memory.allocator());
  ASSERT_TRUE(outputs.ok()) << outputs.status().toString();
  EXPECT_EQ(executable->counters().copies, 2u);
  for (const CallOutput& output : *outputs) {
    EXPECT_EQ(*static_cast<FakeAten::Tensor*>(output.owner)->storage, (std::vector<float>{4, 8, 12, 16, 20, 24}));
    aten.release(output.owner);
  }
  EXPECT_EQ(aten.alive, 0);
}

TEST_F(AtenCall, AWrongShapeIsAnErrorThatLeaksNothing) {
  auto executable = twoCalls(false);
  result_sizes = {2, 4};
  result_strides = {4, 1};
  HostTensor x = HostTensor::f32({2, 3}, {1, 2, 3, 4, 5, 6});
  OutputMemory memory;
  const CallInput inputs[] = {x.input()};
  const Status status = executable->call(inputs, memory.allocator()).status();
  EXPECT_NE(status.message().find("step 0 (AtenCall test::twice), which reads x: result 0 has dtype f32 and "
                                  "sizes [2, 4], the plan expects f32 and [2, 3]"),
            std::string::npos)
      << status.message();
  EXPECT_EQ(aten.alive, 0);
}

TEST_F(AtenCall, TheOperatorsErrorComesThrough) {
  auto executable = twoCalls(false);
  int calls = 0;
  const auto twice = aten.kernels["test::twice"];
  aten.kernels["test::twice"] = [&](std::span<const AtenArgument> args) -> Result<std::vector<AtenResult>> {
    if (++calls == 2)
      return Status{Code::index_error, "index 7 is out of bounds"};
    return twice(args);
  };
  HostTensor x = HostTensor::f32({2, 3}, {1, 2, 3, 4, 5, 6});
  OutputMemory memory;
  const CallInput inputs[] = {x.input()};
  const Status status = executable->call(inputs, memory.allocator()).status();
  EXPECT_EQ(status.code(), Code::index_error);
  EXPECT_EQ(aten.alive, 0);  // the first call's result too
}

TEST_F(AtenCall, AnExceptionLeaksNothing) {
  auto executable = twoCalls(true);
  HostTensor x = HostTensor::f32({2, 3}, {1, 2, 3, 4, 5, 6});
  const CallInput inputs[] = {x.input()};
  const auto twice = aten.kernels["test::twice"];
  int calls = 0;
  aten.kernels["test::twice"] = [&](std::span<const AtenArgument> args) {
    return ++calls == 2 ? throw std::bad_alloc() : twice(args);
  };
  OutputMemory memory;
  EXPECT_THROW((void)executable->call(inputs, memory.allocator()), std::bad_alloc);
  EXPECT_EQ(aten.alive, 0);
  auto outputs = executable->call(inputs, memory.allocator());
  ASSERT_TRUE(outputs.ok()) << outputs.status().toString();
  for (const CallOutput& output : *outputs)
    aten.release(output.owner);
  EXPECT_EQ(aten.alive, 0);
}

TEST_F(AtenCall, AnUnknownOperatorIsNamedWhenThePlanIsLoaded) {
  PlanBuilder b;
  const uint32_t x = b.tensorInput("x", plan::DType::f32, b.constants({1, 1}));
  b.step(call("test::nothing", x, {-1}));
  const Status status = Executable::create(b.finish(), {}).status();
  EXPECT_EQ(status.code(), Code::not_found);
  EXPECT_NE(status.message().find("test::nothing"), std::string::npos);
}

TEST_F(AtenCall, ListsAndIntegersFollowTheSymbols) {
  PlanBuilder b;
  const uint32_t s0 = b.symbol("s0", 0, 0);
  const uint32_t x = b.tensorInput("x", plan::DType::f32, {s0});
  plan::AtenCallT step = call("test::look", x, {-1});
  auto list = std::make_unique<plan::ArgumentT>();
  list->kind = plan::ArgumentKind::list;
  auto item = std::make_unique<plan::ArgumentT>();
  item->kind = plan::ArgumentKind::integer;
  item->value = b.op(plan::ExprOp::add, s0, b.constant(1));
  list->items.push_back(std::move(item));
  list->items.push_back(tensorArgument(x));
  step.args.push_back(std::move(list));
  b.step(std::move(step));
  std::vector<int64_t> seen;
  aten.kernels["test::look"] = [&](std::span<const AtenArgument> args) {
    seen.push_back(args[1].items[0].integer);
    EXPECT_EQ(args[0].tensor.data, args[1].items[1].tensor.data);
    EXPECT_EQ(args[1].items[1].tensor.sizes[0], args[1].items[0].integer - 1);
    return std::vector<AtenResult>();
  };
  auto made = Executable::create(b.finish(), {});
  ASSERT_TRUE(made.ok()) << made.status().toString();
  for (int64_t count : {2, 5, 2}) {
    HostTensor x = HostTensor::f32({count}, std::vector<float>(size_t(count)));
    OutputMemory memory;
    const CallInput inputs[] = {x.input()};
    ASSERT_TRUE((*made)->call(inputs, memory.allocator()).ok());
  }
  EXPECT_EQ(seen, (std::vector<int64_t>{3, 6, 3}));
}

TEST_F(AtenCall, WeightsForgottenDuringACallAreMadeAnewByTheNext) {
  PlanBuilder b;
  const auto x_sizes = b.constants({32, 96}), w_sizes = b.constants({96, 192}), out_sizes = b.constants({32, 192});
  const uint32_t x = b.tensorInput("x", plan::DType::f32, x_sizes);
  const uint32_t w = b.tensorInput("w", plan::DType::f32, w_sizes, plan::InputKind::parameter);
  const uint32_t out = b.outputTensor(plan::DType::f32, out_sizes);
  b.matmul(x, w, out);
  b.step(call("test::forget", x, {-1}));
  std::unique_ptr<Executable> executable;
  aten.kernels["test::forget"] = [&](std::span<const AtenArgument>) {
    executable->invalidateWeights();
    return std::vector<AtenResult>();
  };
  auto made = Executable::create(b.finish(), {});
  ASSERT_TRUE(made.ok()) << made.status().toString();
  executable = std::move(*made);
  HostTensor in = HostTensor::f32({32, 96}, std::vector<float>(32 * 96, 1)),
             weight = HostTensor::f32({96, 192}, std::vector<float>(96 * 192, 1));
  uint64_t first = 0;
  for (uint64_t round = 1; round <= 3; ++round) {
    OutputMemory memory;
    const CallInput inputs[] = {in.input(), weight.input()};
    ASSERT_TRUE(executable->call(inputs, memory.allocator()).ok());
    if (round == 1)
      first = executable->counters().weights_streamed;  // 0 where oneDNN takes weights as they are
    EXPECT_EQ(executable->counters().weights_streamed, round * first);
    EXPECT_EQ(executable->counters().weights_packed, 0u);
  }
  RecordProperty("packed", int(first));
}

}  // namespace
}  // namespace zefuse
