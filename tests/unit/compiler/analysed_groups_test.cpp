// Answers about groups of operations are found again for groups that are the same, and for no others.
#include <gtest/gtest.h>

#include "compiler/fuse/analysed_groups.h"
#include "compiler/fuse/graph.h"
#include "compiler/fuse/outline.h"
#include "lowering/dialect/Zefuse.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Parser/Parser.h"

namespace zefuse {
namespace {

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size())
    text.replace(at, what.size(), by);
  return text;
}

// An elementwise operation, the sums of its rows, and their quotient: three operations.
std::string layer(const std::string& number, const std::string& from, const std::string& math = "math.exp") {
  const std::string text = R"(
  %z_N = arith.constant 0.0 : f32
  %er_N = tensor.empty() : !row
  %e_N = tensor.empty() : !full
  %exp_N = linalg.generic {indexing_maps = [#both, #both], iterator_types = ["parallel", "parallel"]} ins(FROM : !full) outs(%e_N : !full) {
  ^bb0(%0: f32, %o: f32):
    %1 = MATH %0 : f32
    linalg.yield %1 : f32
  } -> !full
  %i_N = linalg.fill ins(%z_N : f32) outs(%er_N : !row) -> !row
  %sum_N = linalg.generic {indexing_maps = [#both, #row], iterator_types = ["parallel", "reduction"]} ins(%exp_N : !full) outs(%i_N : !row) {
  ^bb0(%0: f32, %o: f32):
    %1 = arith.addf %0, %o : f32
    linalg.yield %1 : f32
  } -> !row
  %div_N = linalg.generic {indexing_maps = [#both, #row, #both], iterator_types = ["parallel", "parallel"]} ins(%exp_N, %sum_N : !full, !row) outs(%e_N : !full) {
  ^bb0(%0: f32, %1: f32, %o: f32):
    %2 = arith.divf %0, %1 : f32
    linalg.yield %2 : f32
  } -> !full
)";
  return replaced(replaced(replaced(text, "_N", "_" + number), "FROM", from), "MATH", math);
}

std::string sum(const std::string& name, const std::string& a, const std::string& b) {
  return "  %e" + name + " = tensor.empty() : !full\n  %" + name +
         " = linalg.generic {indexing_maps = [#both, #both, #both], iterator_types = [\"parallel\", \"parallel\"]} "
         "ins(" +
         a + ", " + b + " : !full, !full) outs(%e" + name + R"( : !full) {
  ^bb0(%0: f32, %1: f32, %o: f32):
    %2 = arith.addf %0, %1 : f32
    linalg.yield %2 : f32
  } -> !full
)";
}

class Analysed : public testing::Test {
protected:
  Analysed() : context_(registry(), mlir::MLIRContext::Threading::DISABLED) { context_.loadAllAvailableDialects(); }
  static mlir::DialectRegistry registry() {
    mlir::DialectRegistry registry;
    registerDialects(registry);
    return registry;
  }
  void parse(const std::string& body, const std::string& returned, const std::string& types) {
    module_ = mlir::parseSourceString<mlir::ModuleOp>(R"(
#both = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
!full = tensor<8x12xf32>
!row = tensor<8xf32>
func.func @graph(%x: !full, %y: !full) -> ()" + types + ") {\n" +
                                                          body + "  return " + returned + " : " + types + "\n}\n",
                                                      &context_);
    ASSERT_TRUE(module_);
    for (mlir::Operation& op :
         mlir::cast<mlir::func::FuncOp>(module_->getBody()->front()).getBody().front().without_terminator())
      if (isCompute(&op))
        ops_.push_back(&op);
  }
  // Asks about the operations of these numbers; true where that was an analysis. The answer must be what it is without.
  bool asked(std::initializer_list<size_t> numbers) {
    llvm::SmallVector<mlir::Operation*> ops;
    for (size_t number : numbers)
      ops.push_back(ops_[number]);
    const size_t before = groups_.analyses();
    KernelShape shape, expected;
    const auto reason = groups_.whyNotOneKernel(ops, shape);
    EXPECT_EQ(reason, whyNotOneKernel(bodyOf(ops).ops.getArrayRef(), &expected));
    EXPECT_EQ(shape.kind, expected.kind);
    EXPECT_EQ(shape.rows, expected.rows);
    EXPECT_EQ(shape.columns, expected.columns);
    EXPECT_EQ(shape.reductions, expected.reductions);
    EXPECT_EQ(shape.stages, expected.stages);
    return groups_.analyses() > before;
  }

  mlir::MLIRContext context_;
  mlir::OwningOpRef<mlir::ModuleOp> module_;
  llvm::SmallVector<mlir::Operation*> ops_;
  AnalysedGroups groups_{&context_};
};

TEST_F(Analysed, TheNextPassAsksNothingAnew) {
  parse(layer("a", "%x"), "%div_a", "!full");
  EXPECT_TRUE(asked({0, 1}));
  EXPECT_TRUE(asked({0, 1, 2}));
  KernelShape shape;
  AnalysedGroups next(&context_);
  EXPECT_EQ(next.whyNotOneKernel(ops_, shape), std::nullopt);
  EXPECT_EQ(next.analyses(), 2u);
  EXPECT_EQ(shape.reductions, 1u);
}

TEST_F(Analysed, LayersAreTheSame) {
  parse(layer("a", "%x") + layer("b", "%div_a") + layer("c", "%y"), "%div_b, %div_c", "!full, !full");
  EXPECT_TRUE(asked({0, 1, 2}));
  EXPECT_FALSE(asked({3, 4, 5}));
  EXPECT_FALSE(asked({6, 7, 8}));
  EXPECT_TRUE(asked({0, 1}));
  EXPECT_TRUE(asked({1, 2}));
  EXPECT_FALSE(asked({3, 4}));
  EXPECT_FALSE(asked({7, 8}));
}

TEST_F(Analysed, WhatIsComputedTells) {
  parse(layer("a", "%x") + layer("b", "%x", "math.sin"), "%div_a, %div_b", "!full, !full");
  EXPECT_TRUE(asked({0, 1, 2}));
  EXPECT_TRUE(asked({3, 4, 5}));
  EXPECT_TRUE(asked({0})) << "sums read it outside";
}

TEST_F(Analysed, WhoReadsResultsTells) {
  parse(layer("a", "%x") + layer("b", "%y"), "%div_a, %exp_b, %div_b", "!full, !full, !full");
  EXPECT_TRUE(asked({0, 1, 2}));
  EXPECT_TRUE(asked({3, 4, 5}));
}

TEST_F(Analysed, WhichOperandsAreOneTells) {
  parse(sum("p", "%x", "%x") + sum("q", "%x", "%y") + sum("r", "%y", "%x"), "%p, %q, %r", "!full, !full, !full");
  EXPECT_TRUE(asked({0}));
  EXPECT_TRUE(asked({1}));
  EXPECT_FALSE(asked({2}));
}

TEST_F(Analysed, WhatIsMadeInsideTells) {
  parse(sum("p", "%x", "%y") + sum("q", "%p", "%y") + sum("r", "%x", "%p"), "%p, %q, %r", "!full, !full, !full");
  EXPECT_TRUE(asked({0, 1}));
  EXPECT_TRUE(asked({0, 2}));
  EXPECT_TRUE(asked({1})) << "what it reads is made outside";
}

}  // namespace
}  // namespace zefuse
