// What loadProgram refuses, and in which words.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>

#include "common/plan/program.h"
#include "tests/unit/executor/plan_builder.h"

namespace zefuse::executor {
namespace {

using test::PlanBuilder;

// x [4, 8] -> arena -> output, by two copies.
PlanBuilder valid() {
  PlanBuilder b;
  const auto sizes = b.constants({4, 8});
  const uint32_t x = b.tensorInput("x", plan::DType::f32, sizes);
  const uint32_t t = b.arenaTensor(plan::DType::f32, sizes, 0, 1);
  const uint32_t out = b.outputTensor(plan::DType::f32, sizes);
  b.copy(x, t);
  b.copy(t, out);
  return b;
}

TEST(PlanCheck, AcceptsAPlan) {
  const auto program = plan::loadProgram(valid().finish());
  ASSERT_TRUE(program.ok()) << program.status().toString();
  EXPECT_EQ(program->output_buffers.size(), 1u);
}

// Each of `count` references to one part is followed when a plan is verified and unpacked.
std::vector<std::byte> shared(size_t count, bool strings) {
  flatbuffers::FlatBufferBuilder builder;
  flatbuffers::Offset<plan::Plan> root;
  if (strings) {
    const std::vector<flatbuffers::Offset<flatbuffers::String>> ops(count, builder.CreateString("aten.add"));
    const auto note = plan::CreateKernelNote(builder, builder.CreateVector(ops));
    const auto copy = plan::CreateMatmul(builder, 0, 0, -1, 0, 1, 0, note);
    const std::vector steps(count, plan::CreateStep(builder, plan::StepKind::Matmul, copy.Union()));
    const auto all = builder.CreateVector(steps);
    plan::PlanBuilder plan(builder);
    plan.add_steps(all);
    root = plan.Finish();
  } else {
    const auto words = builder.CreateVector(std::vector<uint32_t>(count));
    const std::vector modules(count, plan::CreateKernelModule(builder, 0, 0, words));
    const auto all = builder.CreateVector(modules);
    plan::PlanBuilder plan(builder);
    plan.add_modules(all);
    root = plan.Finish();
  }
  plan::FinishPlanBuffer(builder, root);
  const auto* data = reinterpret_cast<const std::byte*>(builder.GetBufferPointer());
  return {data, data + builder.GetSize()};
}

TEST(PlanCheck, PartsThatAreReferredToAgainAndAgainAreRefused) {
  const auto start = std::chrono::steady_clock::now();
  for (bool strings : {false, true})
    for (size_t count : {1000, 200000}) {  // at most 2 MB, for 160 GB
      const auto program = plan::loadProgram(shared(count, strings));
      ASSERT_EQ(program.status().code(), Code::damaged);
      EXPECT_NE(program.status().message().find("more than four times its size"), std::string::npos)
          << program.status().message();
    }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

// What a plan of some megabytes may hold must be checked in seconds.
TEST(PlanCheck, AStepOfManyArgumentsIsCheckedQuickly) {
  PlanBuilder b;
  const uint32_t four = b.constant(4);
  plan::LaunchT launch;
  for (int i = 0; i < 400000; ++i)
    launch.args.push_back(b.value(b.buffer(plan::Storage::arena, 0, four), plan::DType::u8, {four}, {four}));
  launch.outputs = 200000;
  launch.grain = 1;
  b.module("m", "entry", {1});
  b.step(std::move(launch));
  const std::vector<std::byte> bytes = b.finish();
  const auto start = std::chrono::steady_clock::now();
  const auto program = plan::loadProgram(bytes);
  ASSERT_TRUE(program.ok()) << program.status().toString();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

TEST(PlanCheck, AWrittenInputHasOneBuffer) {
  PlanBuilder b = valid();
  b.plan.inputs[0]->written = true;
  ASSERT_TRUE(plan::loadProgram(b.finish()).ok());
  b.buffer(plan::Storage::input, 0);
  const auto program = plan::loadProgram(b.finish());
  ASSERT_FALSE(program.ok());
  EXPECT_NE(program.status().message().find("has two buffers"), std::string::npos) << program.status().message();
}

struct Damage {
  const char* expected;  // in the message
  std::function<void(plan::PlanT&)> apply;
};

class PlanDamage : public testing::TestWithParam<Damage> {};

TEST_P(PlanDamage, IsNamed) {
  PlanBuilder b = valid();
  GetParam().apply(b.plan);
  const auto program = plan::loadProgram(b.finish());
  ASSERT_FALSE(program.ok());
  EXPECT_EQ(program.status().code(), Code::damaged);
  EXPECT_NE(program.status().message().find(GetParam().expected), std::string::npos) << program.status().message();
}

TEST(PlanVersion, ANewerOneIsRefusedByName) {
  PlanBuilder b = valid();
  b.plan.version = plan::plan_version + 1;
  const auto program = plan::loadProgram(b.finish());
  ASSERT_FALSE(program.ok());
  EXPECT_EQ(program.status().code(), Code::unsupported);
  EXPECT_NE(program.status().message().find("newer than this runtime"), std::string::npos);
}

template <typename T> void add(plan::PlanT& plan, T kind) {
  plan.steps.push_back(std::make_unique<plan::StepT>());
  plan.steps.back()->kind.Set(std::move(kind));
}

const Damage damages[] = {
    {"unknown operator", [](auto& p) { p.exprs[1] = plan::ExprNode(1, 0, 0, plan::ExprOp(99)); }},
    {"refer backwards", [](auto& p) { p.exprs[1] = plan::ExprNode(0, 1, 0, plan::ExprOp::add); }},
    {"takes real numbers, not an integer", [](auto& p) { p.exprs[1] = plan::ExprNode(0, 0, 0, plan::ExprOp::floor); }},
    {"which is a real number, for an integer",
     [](auto& p) {
       p.exprs.emplace_back(0, 0, 0, plan::ExprOp::real);
       p.values[0]->offset = static_cast<uint32_t>(p.exprs.size() - 1);
     }},
    {"takes integers, not a real number",
     [](auto& p) {
       p.exprs.emplace_back(0, 0, 0, plan::ExprOp::real);
       const auto real = static_cast<uint32_t>(p.exprs.size() - 1);
       p.exprs.emplace_back(0, real, real, plan::ExprOp::add);
     }},
    {"refers to symbol", [](auto& p) { p.exprs[1] = plan::ExprNode(0, 0, 0, plan::ExprOp::symbol); }},
    {"read from input 9",
     [](auto& p) {
       p.symbols.push_back(std::make_unique<plan::SymbolT>());
       p.symbols.back()->input = 9;
     }},
    {"which has none such",
     [](auto& p) {
       p.symbols.push_back(std::make_unique<plan::SymbolT>());
       p.symbols.back()->dim = 2;
     }},
    {"unknown dtype", [](auto& p) { p.inputs[0]->dtype = plan::DType(77); }},
    {"unknown kind", [](auto& p) { p.inputs[0]->kind = plan::InputKind(77); }},
    {"2 sizes and 1 strides", [](auto& p) { p.inputs[0]->strides.pop_back(); }},
    {"input 0 'x' refers to expression", [](auto& p) { p.inputs[0]->sizes[0] = 1000; }},
    {"dimensions; at most",
     [](auto& p) {
       p.values[0]->sizes.assign(plan::max_rank + 1, 0);
       p.values[0]->strides.assign(plan::max_rank + 1, 0);
     }},
    {"no tensor input", [](auto& p) { p.buffers[0]->index = 5; }},
    {"lives from step", [](auto& p) { p.buffers[1]->last_step = 99; }},
    {"without repeating", [](auto& p) { p.buffers[2]->index = 3; }},
    {"unknown storage", [](auto& p) { p.buffers[0]->storage = plan::Storage(9); }},
    {"value 1 views buffer", [](auto& p) { p.values[1]->buffer = 3; }},
    {"value 1 refers to expression", [](auto& p) { p.values[1]->offset = 5000; }},
    {"which lives from step", [](auto& p) { p.buffers[1]->last_step = 0; }},
    {"writes an input's memory", [](auto& p) { p.steps[1]->kind.AsCopy()->destination = 0; }},
    {"the source is value 9", [](auto& p) { p.steps[0]->kind.AsCopy()->source = 9; }},
    {"different dtypes", [](auto& p) { p.values[1]->dtype = plan::DType::i32; }},
    {"output 0 is arena buffer", [](auto& p) { p.outputs[0]->value = 1; }},
    {"output 0 is value 7", [](auto& p) { p.outputs[0]->value = 7; }},
    {"output 0 has an unknown kind", [](auto& p) { p.outputs[0]->kind = plan::OutputKind(7); }},
    {"has no known kind", [](auto& p) { p.steps[0]->kind.Reset(); }},
    {"uses kernel module 0 of 0", [](auto& p) { add(p, plan::LaunchT()); }},
    {"lacks its id", [](auto& p) { p.modules.push_back(std::make_unique<plan::KernelModuleT>()); }},
    {"rank",
     [](auto& p) {
       p.values[0]->sizes.pop_back();
       p.values[0]->strides.pop_back();
       plan::MatmulT matmul;
       matmul.out = 2;
       add(p, std::move(matmul));
     }},
    {"post-op add without an operand",
     [](auto& p) {
       plan::MatmulT matmul;
       matmul.out = 2;
       matmul.post_ops.push_back(std::make_unique<plan::PostOpT>());
       matmul.post_ops[0]->kind = plan::PostOpKind::add;
       add(p, std::move(matmul));
     }},
    {"one of the kernel that makes a group's matrix and the number that it reads, not both",
     [](auto& p) {
       plan::GroupedMatmulT product;
       product.kernel = std::make_unique<plan::LaunchT>();
       add(p, std::move(product));
     }},
    {"a group's number that is no i64",
     [](auto& p) {
       plan::GroupedMatmulT product;
       product.kernel = std::make_unique<plan::LaunchT>();
       product.index = 2;
       add(p, std::move(product));
     }},
    {"operands of rank",
     [](auto& p) {
       plan::GroupedMatmulT product;
       product.out = 2;
       add(p, std::move(product));
     }},
    {"is no operator name", [](auto& p) { add(p, plan::AtenCallT()); }},
    {"before any ATen step makes it",
     [](auto& p) {
       p.buffers[1]->storage = plan::Storage::external;
       p.steps.erase(p.steps.begin());
       p.buffers[1]->last_step = 0;
     }},
    {"only an ATen step makes one", [](auto& p) { p.buffers[1]->storage = plan::Storage::external; }},
    {"nested more than 8 deep",
     [](auto& p) {
       plan::AtenCallT call;
       call.op = "aten::relu";
       auto list = [] {
         auto argument = std::make_unique<plan::ArgumentT>();
         argument->kind = plan::ArgumentKind::list;
         return argument;
       };
       auto inner = list();
       for (int i = 0; i < 12; ++i) {
         auto outer = list();
         outer->items.push_back(std::move(inner));
         inner = std::move(outer);
       }
       call.args.push_back(std::move(inner));
       add(p, std::move(call));
     }},
};

INSTANTIATE_TEST_SUITE_P(All, PlanDamage, testing::ValuesIn(damages));

TEST(PlanCheck, LaunchFieldsAreChecked) {
  auto launchOf = [](PlanBuilder& b) {
    b.module("m", "k", {1});
    plan::LaunchT launch;
    launch.args = {0, 2};
    launch.outputs = 1;
    launch.grain = 1;
    launch.extent = b.constant(4);
    b.step(std::move(launch));
    return b.plan.steps.back()->kind.AsLaunch();
  };
  struct Case {
    const char* expected;
    std::function<void(plan::LaunchT&)> apply;
  };
  const Case cases[] = {
      {"", [](auto&) {}},
      {"grain 0", [](auto& l) { l.grain = 0; }},
      {"writes 5 of 2", [](auto& l) { l.outputs = 5; }},
      {"unknown distribution", [](auto& l) { l.distribution = plan::Distribution(9); }},
      {"group size above 1", [](auto& l) { l.group_size = {2}; }},
      {"impossible group size", [](auto& l) { l.group_size = {1, 1, 1, 1}; }},
      {"refers to expression", [](auto& l) { l.extent = 999; }},
      {"refers to expression", [](auto& l) { l.scratch_bytes = 999; }},
      {"refers to expression", [](auto& l) { l.symbols = {999}; }},
      {"unknown error class",
       [](auto& l) {
         l.checks.push_back(std::make_unique<plan::KernelCheckT>());
         l.checks[0]->error = plan::ErrorClass(9);
       }},
      {"an argument is value", [](auto& l) { l.args[0] = 77; }},
      {"a result writes an input", [](auto& l) { l.args[1] = 0; }},
  };
  for (const Case& c : cases) {
    PlanBuilder b = valid();
    c.apply(*launchOf(b));
    const auto program = plan::loadProgram(b.finish());
    EXPECT_EQ(program.ok(), !*c.expected) << c.expected;
    if (!program.ok()) {
      EXPECT_NE(program.status().message().find(c.expected), std::string::npos) << program.status().message();
    }
  }
}

TEST(PlanCheck, ChecksOfSizesAreChecked) {
  struct Case {
    const char* expected;
    std::function<void(plan::SizeCheckT&)> apply;
  };
  const Case cases[] = {
      {"", [](auto&) {}},
      {"size check 0 refers to expression 999", [](auto& c) { c.value = 999; }},
      {"size check 0 refers to expression 998", [](auto& c) { c.numbers = {0, 998}; }},
      {"size check 0 has an unknown class of error", [](auto& c) { c.error = plan::ErrorClass(9); }},
  };
  for (const Case& c : cases) {
    PlanBuilder b = valid();
    b.plan.size_checks.push_back(std::make_unique<plan::SizeCheckT>());
    c.apply(*b.plan.size_checks[0]);
    const auto program = plan::loadProgram(b.finish());
    EXPECT_EQ(program.ok(), !*c.expected) << c.expected;
    if (!program.ok()) {
      EXPECT_NE(program.status().message().find(c.expected), std::string::npos) << program.status().message();
    }
  }
}

TEST(PlanCheck, RefusesWhatIsNoPlan) {
  for (size_t size : {size_t(0), size_t(3), size_t(64), size_t(4096)}) {
    const std::vector<std::byte> bytes(size);
    EXPECT_EQ(plan::loadProgram(bytes).status().code(), Code::damaged);
  }
  std::vector<std::byte> bytes = valid().finish();
  for (size_t size = 0; size < bytes.size(); ++size)  // cut short anywhere
    EXPECT_FALSE(plan::loadProgram(std::vector<std::byte>(bytes.begin(), bytes.begin() + ptrdiff_t(size))).ok());
}

}  // namespace
}  // namespace zefuse::executor
