// The compiler as a whole: what ends it early.
#include "compiler/pipeline.h"

#include <gtest/gtest.h>

#include "lowering/dialect/Zefuse.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Parser/Parser.h"

using namespace mlir;

namespace zefuse {
namespace {

// Three products, each a kernel of its own on a GPU.
constexpr const char* graph = R"(
func.func @graph(%x: tensor<64x64xf32>, %y: tensor<64x32xf32>) -> tensor<64x32xf32>
    attributes {zefuse.symbols = [], zefuse.symbol_sources = [], zefuse.inputs = [{arg = 0}, {arg = 1}],
                zefuse.outputs = [{result = 0, strides = affine_map<() -> (32, 1)>}]} {
  %a = zefuse.matmul %x, %x : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  %b = zefuse.matmul %a, %x : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  %c = zefuse.matmul %b, %y : (tensor<64x64xf32>, tensor<64x32xf32>) -> tensor<64x32xf32>
  return %c : tensor<64x32xf32>
})";

Compilation compile(const SpillSurvey& spills, const CancelCheck& cancelled) {
  DialectRegistry registry;
  registerDialects(registry);
  MLIRContext context(registry, MLIRContext::Threading::DISABLED);
  context.loadAllAvailableDialects();
  const OwningOpRef<ModuleOp> module = parseSourceString<ModuleOp>(graph, &context);
  EXPECT_TRUE(module);
  Options options;
  options.device = "gpu";
  options.target = "dg2-g11";
  return compileModule(*module, options, {}, spills, cancelled);
}

// Everything spills, so that each answer asks for another round.
SpillSurvey spillsAll(int& rounds) {
  return [&rounds](std::span<const std::vector<uint32_t>> kernels) {
    ++rounds;
    return std::vector<std::optional<int64_t>>(kernels.size(), 5);
  };
}

TEST(Cancelled, WhereverItAsksItEndsAndAsksNoMore) {
  int rounds = 0, points = 0, asked = 0;
  for (bool ended = false; !ended; ++points) {
    ASSERT_LT(points, 1000);
    asked = 0;
    const Compilation made = compile(spillsAll(rounds), [&] { return ++asked > points; });
    ended = asked <= points;
    EXPECT_EQ(made.ok, ended) << points << ": " << made.error;
    EXPECT_EQ(made.plan.empty(), !ended) << points;
    if (!ended) {
      EXPECT_EQ(asked, points + 1);
      EXPECT_EQ(made.error, "compiling was cancelled");
    }
  }
  EXPECT_GT(points, 15) << "stages and kernels";
}

TEST(Cancelled, DuringASurveyNothingIsLoweredAnew) {
  int rounds = 0;
  ASSERT_TRUE(compile(spillsAll(rounds), {}).ok);
  EXPECT_GT(rounds, 1);
  rounds = 0;
  bool cancelled = false;
  const SpillSurvey survey = spillsAll(rounds);
  const Compilation made = compile(
      [&](std::span<const std::vector<uint32_t>> kernels) {
        cancelled = true;
        return survey(kernels);
      },
      [&] { return cancelled; });
  EXPECT_FALSE(made.ok);
  EXPECT_TRUE(made.plan.empty());
  EXPECT_EQ(made.error, "compiling was cancelled");
  EXPECT_EQ(rounds, 1);
}

}  // namespace
}  // namespace zefuse
