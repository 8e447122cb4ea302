// The importer without Python: graphs made by hand, and the stage-1 contract on modules that break it.
#include <gtest/gtest.h>

#include "compiler/builder/dtype.h"
#include "compiler/import/contract.h"
#include "compiler/import/errors.h"
#include "compiler/import/importer.h"
#include "lowering/dialect/Zefuse.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Parser/Parser.h"

using namespace mlir;

namespace zefuse {
namespace {

class ImportTest : public ::testing::Test {
protected:
  ImportTest() {
    DialectRegistry registry;
    registerDialects(registry);
    context.appendDialectRegistry(registry);
    context.loadAllAvailableDialects();
  }

  // What the contract says of one function body over %x: tensor<4x6xf32>; "" when it holds.
  std::string contractError(const std::string& body, const std::string& result = "tensor<4x6xf32>") {
    std::string text = "func.func @graph(%x: tensor<4x6xf32>) -> " + result +
                       " attributes {zefuse.symbols = [\"s0\"], zefuse.symbol_sources = [{input = 0, dim = 0}], "
                       "zefuse.inputs = [{arg = 0}], zefuse.outputs = []} {\n" +
                       body + "\n}";
    std::string message;
    ScopedDiagnosticHandler handler(&context, [&](Diagnostic& diagnostic) { message += diagnostic.str() + "\n"; });
    OwningOpRef<ModuleOp> module = parseSourceString<ModuleOp>(text, &context);
    EXPECT_TRUE(module) << message;
    if (!module)
      return "does not parse";
    return succeeded(verifyImported(*module)) ? "" : message;
  }

  // x[2, 3] -> relu, as the reader makes it.
  fx::Graph reluGraph(StringRef target) {
    auto constant = [&](int64_t value) { return fx::SizeExpr::constant(context, value); };
    fx::Meta meta;
    meta.kind = fx::Meta::Kind::tensor;
    meta.tensor = {fx::kF32, {constant(2), constant(3)}, {constant(3), constant(1)}, constant(0), true};
    auto schema = std::make_shared<fx::Schema>();
    schema->target = target.str();
    schema->op = "aten::" + target.split('.').second.split('.').first.str();
    schema->parameters = {{"self", {}}};
    fx::Graph graph;
    fx::Argument self;
    self.kind = fx::Argument::Kind::node;
    graph.nodes.resize(2);
    graph.nodes[0].kind = fx::Node::Kind::input;
    graph.nodes[0].name = "x";
    graph.nodes[0].meta = graph.nodes[1].meta = meta;
    graph.nodes[1].name = "y";
    graph.nodes[1].schema = schema;
    graph.nodes[1].arguments = {self};
    graph.nodes[1].used = {true};
    fx::Argument output = self;
    output.node = 1;
    graph.outputs = {output};
    return graph;
  }

  MLIRContext context;
};

TEST_F(ImportTest, LoweredOperator) {
  OwningOpRef<ModuleOp> module = importGraph(context, reluGraph("aten.relu.default"), {});
  auto function = *module->getOps<func::FuncOp>().begin();
  EXPECT_FALSE(function.getOps<linalg::GenericOp>().empty());
  EXPECT_TRUE(function.getOps<AtenOp>().empty());
}

TEST_F(ImportTest, UnknownOperatorFallsBackWithReason) {
  OwningOpRef<ModuleOp> module = importGraph(context, reluGraph("aten.mystery.default"), {});
  auto function = *module->getOps<func::FuncOp>().begin();
  ASSERT_FALSE(function.getOps<AtenOp>().empty());
  EXPECT_EQ((*function.getOps<AtenOp>().begin()).getReason(), "no lowering for aten::mystery");
}

TEST_F(ImportTest, WrongResultTypeIsAnError) {
  fx::Graph graph = reluGraph("aten.relu.default");
  graph.nodes[1].meta.tensor.sizes[0] = fx::SizeExpr::constant(context, 1);  // relu cannot shrink its input
  EXPECT_THROW(importGraph(context, graph, {}), ImportError);
}

TEST_F(ImportTest, DtypeThatNothingHolds) {
  fx::Graph graph = reluGraph("aten.relu.default");
  graph.nodes[0].meta.tensor.dtype = 9;  // complex64
  try {
    importGraph(context, graph, {});
    FAIL();
  } catch (const ImportError& error) {
    EXPECT_STREQ(error.what(), "FX node 'x': tensors of complex64 are not supported");
  }
}

const char* const kGeneric = R"(
  %e = tensor.empty() : tensor<4x6xf32>
  %r = linalg.generic {indexing_maps = [MAP, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<4x6xf32>) outs(%e : tensor<4x6xf32>) {
  ^bb0(%a: f32, %b: f32):
    BODY
    linalg.yield %c : f32
  } -> tensor<4x6xf32>
  return %r : tensor<4x6xf32>)";

std::string generic(std::string map, std::string body) {
  std::string text = kGeneric;
  text.replace(text.find("MAP"), 3, map);
  text.replace(text.find("BODY"), 4, body);
  return text;
}

TEST_F(ImportTest, ContractHolds) {
  EXPECT_EQ(contractError(generic("affine_map<(d0, d1) -> (d0, d1)>", "%c = math.exp %a : f32")), "");
}

TEST_F(ImportTest, ContractNamesAnInputMapThatIsNoProjection) {
  std::string error = contractError(generic("affine_map<(d0, d1) -> (d0, d1 floordiv 2)>", "%c = math.exp %a : f32"));
  EXPECT_NE(error.find("(d0, d1 floordiv 2)> is not a projected permutation"), std::string::npos) << error;
}

TEST_F(ImportTest, ContractNamesAForeignOperationInABody) {
  std::string error = contractError(generic("affine_map<(d0, d1) -> (d0, d1)>",
                                            "%i = arith.constant 0 : index\n %d = tensor.dim %x, %i : tensor<4x6xf32>\n"
                                            "%c = math.exp %a : f32"));
  EXPECT_NE(error.find("not allowed in a linalg.generic body"), std::string::npos) << error;
}

TEST_F(ImportTest, ContractWantsCheckedIndices) {
  std::string error =
      contractError(generic("affine_map<(d0, d1) -> (d0, d1)>",
                            "%v = arith.fptosi %a : f32 to i64\n %i = arith.index_cast %v : i64 to index\n"
                            "%c = tensor.extract %x[%i, %i] : tensor<4x6xf32>"));
  EXPECT_NE(error.find("an index must come from zefuse.checked_index"), std::string::npos) << error;
}

TEST_F(ImportTest, ContractWantsSizeMaps) {
  std::string error = contractError(
      "%y = zefuse.aten \"aten::foo\"(%x) {overload = \"\", args = [], operand_strides = [affine_map<() -> (6, 1)>], "
      "result_strides = [affine_map<() -> (1)>], reason = \"\"} : (tensor<4x6xf32>) -> tensor<?xf32>\n"
      "return %x : tensor<4x6xf32>");
  EXPECT_NE(error.find("dynamic type without a size map"), std::string::npos) << error;
}

TEST_F(ImportTest, ContractCountsSymbols) {
  std::string error = contractError("%y = zefuse.size affine_map<()[s0, s1] -> (s1)>\n return %x : tensor<4x6xf32>");
  EXPECT_NE(error.find("map has 2 symbols, the graph 1"), std::string::npos) << error;
}

TEST_F(ImportTest, ContractWantsOneCombiner) {
  std::string error = contractError(R"(
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4xf32>
  %f = linalg.fill ins(%z : f32) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>],
      iterator_types = ["parallel", "reduction"]} ins(%x : tensor<4x6xf32>) outs(%f : tensor<4xf32>) {
  ^bb0(%a: f32, %b: f32):
    %m = arith.mulf %a, %a : f32
    %c = arith.addf %m, %b : f32
    linalg.yield %c : f32
  } -> tensor<4xf32>
  return %r : tensor<4xf32>)",
                                    "tensor<4xf32>");
  EXPECT_NE(error.find("a reduction's body is one combiner"), std::string::npos) << error;
}

}  // namespace
}  // namespace zefuse
