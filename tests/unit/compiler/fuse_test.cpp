// Fusion and layout assignment on hand-written stage-1 graphs: what ends in which kernel, and which copies remain.
#include <gtest/gtest.h>

#include "compiler/fuse/graph.h"
#include "compiler/fuse/outline.h"
#include "compiler/fuse/passes.h"
#include "compiler/fuse/pipeline.h"
#include "lowering/dialect/Zefuse.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"

using namespace mlir;

namespace zefuse {
namespace {

constexpr const char* kMaps = R"(
#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
#col = affine_map<(d0, d1) -> (d1)>
)";

class Fuse : public ::testing::Test {
protected:
  Fuse() {
    DialectRegistry registry;
    registerDialects(registry);
    context_.appendDialectRegistry(registry);
    context_.loadAllAvailableDialects();
  }

  /// Runs stage 2 on the text of @graph; the function it returns lives as long as the fixture.
  func::FuncOp fuse(const std::string& text) {
    module_ = parseSourceString<ModuleOp>(kMaps + text, &context_);
    if (!module_)
      return {};
    PassManager passes(&context_);
    buildFusePipeline(passes, FuseOptions());
    EXPECT_TRUE(succeeded(passes.run(*module_)));
    return module_->lookupSymbol<func::FuncOp>("graph");
  }

  template <typename Op> static int count(func::FuncOp graph) {
    int n = 0;
    graph.walk([&](Op) { ++n; });
    return n;
  }

  MLIRContext context_;
  OwningOpRef<ModuleOp> module_;
};

/// An elementwise operation in the long form that linalg wants.
std::string pointwise(const std::string& result, const std::string& input, const std::string& type,
                      const std::string& op, const std::string& attributes = "") {
  return "%" + result + "_e = tensor.empty() : " + type + "\n%" + result +
         " = linalg.generic {indexing_maps = [#id, #id], iterator_types = [\"parallel\", \"parallel\"]} ins(%" + input +
         " : " + type + ") outs(%" + result + "_e : " + type + ") attrs = {" + attributes +
         "} { ^bb0(%a: f32, %b: f32): %r = " + op + " %a : f32 linalg.yield %r : f32 } -> " + type + "\n";
}

std::string graphOf(const std::string& arguments, const std::string& body, const std::string& value,
                    const std::string& type, const std::string& strides) {
  return "func.func @graph(" + arguments + ") -> " + type +
         " attributes {zefuse.symbols = [], zefuse.symbol_sources = [], zefuse.inputs = [{arg = 0}], zefuse.outputs = "
         "[{result = 0, strides = affine_map<() -> (" +
         strides + ")>}]} {\n" + body + "return %" + value + " : " + type + "\n}\n";
}

TEST_F(Fuse, ChainOfPointwiseWithATransposeIsOneKernelThatWritesEagersStrides) {
  auto graph = fuse(graphOf("%x: tensor<4x8xf32>",
                            pointwise("y", "x", "tensor<4x8xf32>", "math.exp") +
                                "%t = zefuse.view %y affine_map<(d0, d1) -> (d1, d0)> : tensor<4x8xf32> -> "
                                "tensor<8x4xf32>\n" +
                                pointwise("z", "t", "tensor<8x4xf32>", "math.tanh"),
                            "z", "tensor<8x4xf32>", "1, 8"));
  ASSERT_TRUE(graph);
  ASSERT_EQ(count<KernelOp>(graph), 1);
  auto kernel = *graph.getOps<KernelOp>().begin();
  auto output = cast<AffineMapAttr>(kernel.getLayouts()[1]).getValue();
  std::string text;
  llvm::raw_string_ostream(text) << output;
  EXPECT_EQ(text, "(d0, d1) -> (d0 + d1 * 8)");
}

TEST_F(Fuse, ReductionTakesItsProducerAndItsEpilogue) {
  auto graph = fuse(graphOf("%x: tensor<4x8xf32>", pointwise("y", "x", "tensor<4x8xf32>", "math.exp") + R"(
%zero = arith.constant 0.0 : f32
%s_e = tensor.empty() : tensor<4xf32>
%s_f = linalg.fill ins(%zero : f32) outs(%s_e : tensor<4xf32>) -> tensor<4xf32>
%s = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
  ins(%y : tensor<4x8xf32>) outs(%s_f : tensor<4xf32>) { ^bb0(%a: f32, %b: f32):
    %r = arith.addf %a, %b : f32 linalg.yield %r : f32 } -> tensor<4xf32>
%z_e = tensor.empty() : tensor<4x8xf32>
%z = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
  ins(%y, %s : tensor<4x8xf32>, tensor<4xf32>) outs(%z_e : tensor<4x8xf32>) { ^bb0(%a: f32, %b: f32, %c: f32):
    %r = arith.divf %a, %b : f32 linalg.yield %r : f32 } -> tensor<4x8xf32>
)",
                            "z", "tensor<4x8xf32>", "8, 1"));
  ASSERT_TRUE(graph);
  EXPECT_EQ(count<KernelOp>(graph), 1);
}

TEST_F(Fuse, ActivationMovesIntoTheMatmulThroughAReshape) {
  auto graph = fuse(graphOf("%x: tensor<4x8xf32>",
                            R"(
%t = zefuse.view %x affine_map<(d0, d1) -> (d1, d0)> : tensor<4x8xf32> -> tensor<8x4xf32>
%m = zefuse.matmul %x, %t : (tensor<4x8xf32>, tensor<8x4xf32>) -> tensor<4x4xf32>
%v = zefuse.view %m affine_map<(d0, d1) -> (d1, d0)> : tensor<4x4xf32> -> tensor<4x4xf32>
)" + pointwise("z", "v", "tensor<4x4xf32>", "math.tanh", "zefuse.activation = \"tanh\""),
                            "z", "tensor<4x4xf32>", "1, 4"));
  ASSERT_TRUE(graph);
  EXPECT_EQ(count<KernelOp>(graph), 0) << "the transposed result is a stride, the weight's transpose too";
  auto matmul = *graph.getOps<MatmulOp>().begin();
  ASSERT_EQ(matmul.getPostOps().size(), 1u);
  EXPECT_EQ(cast<StringAttr>(matmul.getPostOps()[0]).getValue(), "tanh");
}

TEST_F(Fuse, ACopyOfAnInputStaysWhereItIsAnOutput) {
  std::string identity = R"(
%c_e = tensor.empty() : tensor<4x8xf32>
%c = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<4x8xf32>)
  outs(%c_e : tensor<4x8xf32>) { ^bb0(%a: f32, %b: f32): linalg.yield %a : f32 } -> tensor<4x8xf32>
)";
  auto graph = fuse(graphOf("%x: tensor<4x8xf32>", identity, "c", "tensor<4x8xf32>", "8, 1"));
  ASSERT_TRUE(graph);
  EXPECT_EQ(count<KernelOp>(graph), 1) << "eager's clone is a fresh tensor";
  graph = fuse(graphOf("%x: tensor<4x8xf32>", identity + pointwise("z", "c", "tensor<4x8xf32>", "math.exp"), "z",
                       "tensor<4x8xf32>", "8, 1"));
  ASSERT_TRUE(graph);
  auto kernel = *graph.getOps<KernelOp>().begin();
  EXPECT_EQ(count<KernelOp>(graph), 1);
  EXPECT_EQ(llvm::range_size(kernel.getOps<linalg::GenericOp>()), 1) << "inside a kernel a copy is nothing";
}

TEST_F(Fuse, PathThroughAMatmulKeepsTwoKernels) {
  auto graph = fuse(graphOf("%x: tensor<8x8xf32>", pointwise("y", "x", "tensor<8x8xf32>", "math.exp") + R"(
%m = zefuse.matmul %y, %x : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
%z_e = tensor.empty() : tensor<8x8xf32>
%z = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
  ins(%y, %m : tensor<8x8xf32>, tensor<8x8xf32>) outs(%z_e : tensor<8x8xf32>) { ^bb0(%a: f32, %b: f32, %c: f32):
    %r = arith.addf %a, %b : f32 linalg.yield %r : f32 } -> tensor<8x8xf32>
)",
                            "z", "tensor<8x8xf32>", "8, 1"));
  ASSERT_TRUE(graph);
  EXPECT_EQ(count<KernelOp>(graph), 2);
}

/// A graph of several arguments and results: names and shapes ("4x8").
std::string graphOfMany(const std::vector<std::pair<std::string, std::string>>& arguments, const std::string& body,
                        const std::vector<std::pair<std::string, std::string>>& results) {
  std::string parameters, inputs, outputs, types, names;
  for (size_t i = 0; i < arguments.size(); ++i) {
    parameters += (i ? ", %" : "%") + arguments[i].first + ": tensor<" + arguments[i].second + "xf32>";
    inputs += (i ? ", {arg = " : "{arg = ") + std::to_string(i) + "}";
  }
  for (size_t i = 0; i < results.size(); ++i) {
    auto& [name, shape] = results[i];
    auto columns = shape.substr(shape.find('x') + 1);
    outputs +=
        (i ? ", {result = " : "{result = ") + std::to_string(i) + ", strides = affine_map<() -> (" + columns + ", 1)>}";
    types += (i ? ", tensor<" : "tensor<") + shape + "xf32>";
    names += (i ? ", %" : "%") + name;
  }
  return "func.func @graph(" + parameters + ") -> (" + types +
         ") attributes {zefuse.symbols = [], zefuse.symbol_sources = [], zefuse.inputs = [" + inputs +
         "], zefuse.outputs = [" + outputs + "]} {\n" + body + "return " + names + " : " + types + "\n}\n";
}

TEST_F(Fuse, SiblingsThatShareAnInputJoinAndWriteBothResults) {
  auto graph = fuse(graphOfMany({{"x", "4x8"}},
                                pointwise("y", "x", "tensor<4x8xf32>", "math.exp") +
                                    "%t = zefuse.view %x affine_map<(d0, d1) -> (d1, d0)> : tensor<4x8xf32> -> "
                                    "tensor<8x4xf32>\n" +
                                    pointwise("z", "t", "tensor<8x4xf32>", "math.tanh"),
                                {{"y", "4x8"}, {"z", "8x4"}}));
  ASSERT_TRUE(graph);
  ASSERT_EQ(count<KernelOp>(graph), 1);
  EXPECT_EQ((*graph.getOps<KernelOp>().begin()).getNumResults(), 2u);
}

TEST_F(Fuse, WhatIsLeftApartHasItsReason) {
  auto graph = fuse(graphOfMany({{"x", "8x8"}}, pointwise("y", "x", "tensor<8x8xf32>", "math.exp") + R"(
%m = zefuse.matmul %y, %x : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
%z_e = tensor.empty() : tensor<8x8xf32>
%z = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
  ins(%y, %m : tensor<8x8xf32>, tensor<8x8xf32>) outs(%z_e : tensor<8x8xf32>) { ^bb0(%a: f32, %b: f32, %c: f32):
    %r = arith.addf %a, %b : f32 linalg.yield %r : f32 } -> tensor<8x8xf32>
)",
                                {{"z", "8x8"}}));
  ASSERT_TRUE(graph);
  auto refusals = graph->getAttrOfType<ArrayAttr>("zefuse.not_joined");
  ASSERT_EQ(refusals.size(), 1u);
  auto refusal = cast<DictionaryAttr>(refusals[0]);
  EXPECT_NE(refusal.getAs<StringAttr>("reason").getValue().find("step between"), StringRef::npos);
  EXPECT_NE(refusal.getAs<IntegerAttr>("first"), refusal.getAs<IntegerAttr>("second"));
}

TEST_F(Fuse, EqualWorkOnTensorsOfAnySizesIsOneBatch) {
  auto graph = fuse(graphOfMany({{"ia", "4x8"}, {"ib", "3x5"}, {"ic", "4x8"}},
                                pointwise("x", "ia", "tensor<4x8xf32>", "math.exp") +
                                    pointwise("y", "ib", "tensor<3x5xf32>", "math.exp") +
                                    pointwise("z", "ic", "tensor<4x8xf32>", "math.exp"),
                                {{"x", "4x8"}, {"y", "3x5"}, {"z", "4x8"}}));
  ASSERT_TRUE(graph);
  ASSERT_EQ(count<KernelOp>(graph), 1);
  auto kernel = *graph.getOps<KernelOp>().begin();
  EXPECT_EQ(kernel.getBatch(), 3u);
  EXPECT_EQ(*kernel.getBatchSizes(), (ArrayRef<int64_t>{32, 15, 32}));
  EXPECT_EQ(llvm::range_size(kernel.getOps<linalg::GenericOp>()), 1);
}

TEST_F(Fuse, ABatchOfOneShapeKeepsItsBody) {
  auto graph = fuse(graphOfMany({{"ia", "4x8"}, {"ib", "4x8"}},
                                pointwise("x", "ia", "tensor<4x8xf32>", "math.exp") +
                                    pointwise("y", "ib", "tensor<4x8xf32>", "math.exp"),
                                {{"x", "4x8"}, {"y", "4x8"}}));
  ASSERT_TRUE(graph);
  ASSERT_EQ(count<KernelOp>(graph), 1);
  EXPECT_FALSE((*graph.getOps<KernelOp>().begin()).getBatchSizes());
}

std::string columnSums(int rows) {
  std::string n = std::to_string(rows), type = "tensor<" + n + "x8xf32>";
  return pointwise("y", "x", type, "math.exp") + R"(
%zero = arith.constant 0.0 : f32
%s_e = tensor.empty() : tensor<8xf32>
%s_f = linalg.fill ins(%zero : f32) outs(%s_e : tensor<8xf32>) -> tensor<8xf32>
%s = linalg.generic {indexing_maps = [#id, #col], iterator_types = ["reduction", "parallel"]}
  ins(%y : )" +
         type + R"() outs(%s_f : tensor<8xf32>) { ^bb0(%a: f32, %b: f32):
    %r = arith.addf %a, %b : f32 linalg.yield %r : f32 } -> tensor<8xf32>
)";
}

TEST_F(Fuse, FewLongSumsAreSlicedAndTheSlicesTakeTheProducer) {
  auto graph = fuse(graphOf("%x: tensor<60000x8xf32>", columnSums(60000), "s", "tensor<8xf32>", "1"));
  ASSERT_TRUE(graph);
  ASSERT_EQ(count<KernelOp>(graph), 2);
  auto partial = *graph.getOps<KernelOp>().begin();
  EXPECT_EQ(cast<RankedTensorType>(partial.getResult(0).getType()).getShape(), (ArrayRef<int64_t>{60, 8}))
      << "the largest divisor of 60000 up to 64";
  EXPECT_EQ(count<math::ExpOp>(graph), 1);
}

TEST_F(Fuse, ShortSumsStayWhole) {
  auto graph = fuse(graphOf("%x: tensor<600x8xf32>", columnSums(600), "s", "tensor<8xf32>", "1"));
  ASSERT_TRUE(graph);
  EXPECT_EQ(count<KernelOp>(graph), 1);
}

TEST_F(Fuse, DependentKernelsAreNoBatch) {
  // exp, then a product of it, then exp of that: equal kernels, one after the other.
  auto graph = fuse(graphOfMany({{"x", "8x8"}},
                                pointwise("y", "x", "tensor<8x8xf32>", "math.exp") +
                                    "%m = zefuse.matmul %y, %x : (tensor<8x8xf32>, tensor<8x8xf32>) -> "
                                    "tensor<8x8xf32>\n" +
                                    pointwise("z", "m", "tensor<8x8xf32>", "math.exp"),
                                {{"z", "8x8"}}));
  ASSERT_TRUE(graph);
  EXPECT_EQ(count<KernelOp>(graph), 2);
}

TEST_F(Fuse, AKernelThatTheScheduleRefusesIsTakenApart) {
  std::string sums = R"(
%zero = arith.constant 0.0 : f32
%re = tensor.empty() : tensor<8xf32>
%ri = linalg.fill ins(%zero : f32) outs(%re : tensor<8xf32>) -> tensor<8xf32>
%rows = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<8x12xf32>) outs(%ri : tensor<8xf32>) { ^bb0(%a: f32, %b: f32): %r = arith.addf %a, %b : f32 linalg.yield %r : f32 } -> tensor<8xf32>
%te = tensor.empty() : tensor<f32>
%ti = linalg.fill ins(%zero : f32) outs(%te : tensor<f32>) -> tensor<f32>
%all = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> ()>], iterator_types = ["reduction"]} ins(%rows : tensor<8xf32>) outs(%ti : tensor<f32>) { ^bb0(%a: f32, %b: f32): %r = arith.mulf %a, %b : f32 linalg.yield %r : f32 } -> tensor<f32>
)";
  module_ = parseSourceString<ModuleOp>(kMaps + graphOf("%x: tensor<8x12xf32> {zefuse.kind = \"user\", zefuse.name = "
                                                        "\"x\", zefuse.strides = affine_map<() -> (12, 1)>}",
                                                        sums, "all", "tensor<f32>", ""),
                                        &context_);
  ASSERT_TRUE(module_);
  auto graph = module_->lookupSymbol<func::FuncOp>("graph");
  SmallVector<Operation*> compute;
  for (Operation& op : graph.getBody().front())
    if (isCompute(&op))
      compute.push_back(&op);
  outline(compute, 0);
  for (Operation* op : llvm::reverse(compute))
    op->erase();
  ASSERT_EQ(count<KernelOp>(graph), 1);
  PassManager passes(&context_);
  passes.addNestedPass<func::FuncOp>(createDivideRefusedKernels());
  ASSERT_TRUE(succeeded(passes.run(*module_)));
  EXPECT_EQ(count<KernelOp>(graph), 2);
  auto reasons = graph->getAttrOfType<ArrayAttr>("zefuse.not_joined");
  ASSERT_EQ(reasons.size(), 1u);
  EXPECT_TRUE(cast<StringAttr>(cast<DictionaryAttr>(reasons[0]).get("reason")).getValue().contains("schedule refuses"));
}

TEST_F(Fuse, AMatmulWritesTheOrderItsReaderWants) {
  // Attention's end: [B, H, S, D] permuted and reshaped to [B * S, H * D] for the next product.
  auto graph = fuse(R"(func.func @graph(%p: tensor<2x3x4x4xf32>, %v: tensor<2x3x4x8xf32>, %w: tensor<24x5xf32>)
    -> tensor<8x5xf32> attributes {zefuse.symbols = [], zefuse.symbol_sources = [],
      zefuse.inputs = [{arg = 0}, {arg = 1}, {arg = 2}],
      zefuse.outputs = [{result = 0, strides = affine_map<() -> (5, 1)>}]} {
  %o = zefuse.matmul %p, %v : (tensor<2x3x4x4xf32>, tensor<2x3x4x8xf32>) -> tensor<2x3x4x8xf32>
  %r = zefuse.view %o affine_map<(d0, d1) -> (d0 floordiv 4, d1 floordiv 8, d0 mod 4, d1 mod 8)> :
    tensor<2x3x4x8xf32> -> tensor<8x24xf32>
  %y = zefuse.matmul %r, %w : (tensor<8x24xf32>, tensor<24x5xf32>) -> tensor<8x5xf32>
  return %y : tensor<8x5xf32>
})");
  ASSERT_TRUE(graph);
  EXPECT_EQ(count<KernelOp>(graph), 0) << "no copy: the first product writes [B, S, H, D] order";
}

}  // namespace
}  // namespace zefuse
