// The compiler as a whole: what ends it early.
#include "compiler/pipeline.h"

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>

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

Compilation compile(const SpillSurvey& spills, const CancelCheck& cancelled, std::string_view text = graph,
                    int threads = 1, const std::string& target = "dg2-g11") {
  DialectRegistry registry;
  registerDialects(registry);
  MLIRContext context(registry, MLIRContext::Threading::DISABLED);
  context.loadAllAvailableDialects();
  const OwningOpRef<ModuleOp> module = parseSourceString<ModuleOp>(text, &context);
  EXPECT_TRUE(module);
  Options options;
  options.device = target == "cpu" ? "cpu" : "gpu";
  options.target = target;
  options.build_threads = threads;  // where questions are counted, one
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

// A chain of products of different sizes with a sum of rows behind each: twelve kernels on a GPU, six on the CPU.
std::string manyKernels() {
  std::string body, value = "%x";
  auto tensor = [](int columns) { return "tensor<32x" + std::to_string(columns) + "xf32>"; };
  std::string arguments = "%x: " + tensor(16), inputs = "{arg = 0}", outputs, results, types;
  int columns = 16;
  for (int i = 0; i < 6; ++i) {
    const int next = 16 * (i + 2);
    const std::string n = std::to_string(i),
                      weight = "tensor<" + std::to_string(columns) + "x" + std::to_string(next) + "xf32>";
    arguments += ", %w" + n + ": " + weight;
    inputs += ", {arg = " + std::to_string(i + 1) + "}";
    body += "  %p" + n + " = zefuse.matmul " + value + ", %w" + n + " : (" + tensor(columns) + ", " + weight + ") -> " +
            tensor(next) + "\n";
    body += "  %e" + n + " = tensor.empty() : tensor<32xf32>\n";
    body += "  %f" + n + " = linalg.fill ins(%zero : f32) outs(%e" + n + " : tensor<32xf32>) -> tensor<32xf32>\n";
    body += "  %s" + n +
            " = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>], "
            "iterator_types = [\"parallel\", \"reduction\"]} ins(%p" +
            n + " : " + tensor(next) + ") outs(%f" + n +
            " : tensor<32xf32>) {\n"
            "  ^bb0(%a: f32, %b: f32):\n    %c = arith.addf %b, %a : f32\n    linalg.yield %c : f32\n  } -> "
            "tensor<32xf32>\n";
    outputs += (i ? ", " : "") + std::string("{result = ") + n + ", strides = affine_map<() -> (1)>}";
    results += (i ? ", %s" : "%s") + n;
    types += (i ? ", " : "") + std::string("tensor<32xf32>");
    value = "%p" + n;
    columns = next;
  }
  return "func.func @graph(" + arguments + ") -> (" + types +
         ") attributes {zefuse.symbols = [], zefuse.symbol_sources = [], " + "zefuse.inputs = [" + inputs +
         "], zefuse.outputs = [" + outputs + "]} {\n  %zero = arith.constant 0.0 : f32\n" + body + "  return " +
         results + " : " + types + "\n}";
}

TEST(Threads, DoNotChangeThePlan) {
  const std::string text = manyKernels();
  for (const char* target : {"cpu", "dg2-g11"}) {
    int rounds = 0;
    const Compilation one = compile(spillsAll(rounds), {}, text, 1, target);
    ASSERT_TRUE(one.ok) << one.error;
    EXPECT_EQ(rounds > 1, std::string_view(target) != "cpu");
    for (int threads : {2, 5, 50}) {
      const Compilation several = compile(spillsAll(rounds), {}, text, threads, target);
      ASSERT_TRUE(several.ok) << several.error;
      EXPECT_EQ(several.plan, one.plan) << target << ", " << threads << " threads";
    }
  }
}

TEST(Threads, EndWhenCancelled) {
  const std::string text = manyKernels();
  for (int points : {11, 13, 17, 23}) {
    int rounds = 0;
    std::atomic<int> asked{0};
    const Compilation made = compile(spillsAll(rounds), [&] { return ++asked > points; }, text, 4);
    EXPECT_FALSE(made.ok);
    EXPECT_EQ(made.error, "compiling was cancelled");
  }
}

// A kernel that reads a view has no layout for it: layouts fail, with the stages before them dumped.
constexpr const char* reads_a_view = R"(
func.func @graph(%x: tensor<4x4xf32>) -> tensor<4x4xf32>
    attributes {zefuse.symbols = [], zefuse.symbol_sources = [], zefuse.inputs = [{arg = 0}],
                zefuse.outputs = [{result = 0, strides = affine_map<() -> (4, 1)>}]} {
  %t = zefuse.view %x affine_map<(d0, d1) -> (d1, d0)> : tensor<4x4xf32> -> tensor<4x4xf32>
  %y = zefuse.kernel "k"(%t) attributes {layouts = [affine_map<(d0, d1) -> (d0 * 4 + d1)>,
      affine_map<(d0, d1) -> (d0 * 4 + d1)>]} : (tensor<4x4xf32>) -> tensor<4x4xf32> {
  ^bb0(%a: tensor<4x4xf32>):
    zefuse.yield %a : tensor<4x4xf32>
  }
  return %y : tensor<4x4xf32>
})";

TEST(Dumps, TheStageThatFailsLeavesWhatRepeatsIt) {
  DialectRegistry registry;
  registerDialects(registry);
  MLIRContext context(registry, MLIRContext::Threading::DISABLED);
  context.loadAllAvailableDialects();
  const OwningOpRef<ModuleOp> module = parseSourceString<ModuleOp>(reads_a_view, &context);
  ASSERT_TRUE(module);
  Options options;
  options.dump_dir = ::testing::TempDir() + "/zefuse_reproducers";
  const Compilation made = compileModule(*module, options);
  EXPECT_FALSE(made.ok);
  EXPECT_NE(made.error.find("reads a view from outside"), std::string::npos) << made.error;
  const std::filesystem::path folder = made.dump_folder;
  EXPECT_TRUE(std::filesystem::exists(folder / "2c_kernels.mlir"));
  EXPECT_FALSE(std::filesystem::exists(folder / "2c_kernels.reproducer.mlir")) << "it did not fail";
  EXPECT_FALSE(std::filesystem::exists(folder / "2d_layouts.mlir"));
  const OwningOpRef<ModuleOp> again =
      parseSourceFile<ModuleOp>((folder / "2d_layouts.reproducer.mlir").string(), &context);
  EXPECT_TRUE(again) << "what zefuse-opt --run-reproducer reads";
  std::filesystem::remove_all(options.dump_dir);
}

}  // namespace
}  // namespace zefuse
