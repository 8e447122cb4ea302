// What the fusion pass is told, and that what is accepted also lowers.
#include <gtest/gtest.h>

#include "lowering/analysis/domain.h"
#include "lowering/analysis/fusible.h"
#include "lowering/dialect/Zefuse.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Parser/Parser.h"

namespace zefuse {
namespace {

const char* const header = R"(
#both = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
#col = affine_map<(d0, d1) -> (d1)>
#one = affine_map<(d0) -> (d0)>
!full = tensor<8x12xf32>
!row = tensor<8xf32>
#turned = affine_map<(d0, d1) -> (d1, d0)>
!square = tensor<8x8xf32>
)";

// exp of %x into %exp, row sums of %exp into %sum, quotient into %div.
const char* const softmax_ops = R"(
  %zero = arith.constant 0.0 : f32
  %er = tensor.empty() : !row
  %e = tensor.empty() : !full
  %exp = linalg.generic {indexing_maps = [#both, #both], iterator_types = ["parallel", "parallel"]} ins(%x : !full) outs(%e : !full) {
  ^bb0(%0: f32, %o: f32):
    %1 = math.exp %0 : f32
    linalg.yield %1 : f32
  } -> !full
  %i = linalg.fill ins(%zero : f32) outs(%er : !row) -> !row
  %sum = linalg.generic {indexing_maps = [#both, #row], iterator_types = ["parallel", "reduction"]} ins(%exp : !full) outs(%i : !row) {
  ^bb0(%0: f32, %o: f32):
    %1 = arith.addf %0, %o : f32
    linalg.yield %1 : f32
  } -> !row
)";

class Fusible : public testing::Test {
protected:
  Fusible() : context_(registry(), mlir::MLIRContext::Threading::DISABLED) { context_.loadAllAvailableDialects(); }
  static mlir::DialectRegistry registry() {
    mlir::DialectRegistry registry;
    registerDialects(registry);
    return registry;
  }
  // All ops of the function but its return.
  std::optional<std::string> reason(const std::string& signature, const std::string& body,
                                    KernelShape* shape = nullptr) {
    module_ = mlir::parseSourceString<mlir::ModuleOp>(
        header + ("func.func @graph(" + signature + " {\n" + body + "}\n"), &context_);
    if (!module_)
      return "does not parse";
    llvm::SmallVector<mlir::Operation*> ops;
    for (mlir::Operation& op :
         mlir::cast<mlir::func::FuncOp>(module_->getBody()->front()).getBody().front().without_terminator())
      ops.push_back(&op);
    return whyNotOneKernel(ops, shape);
  }
  mlir::MLIRContext context_;
  mlir::OwningOpRef<mlir::ModuleOp> module_;
};

const std::string divide = R"(
  %div = linalg.generic {indexing_maps = [#both, #row, #both], iterator_types = ["parallel", "parallel"]} ins(%exp, %sum : !full, !row) outs(%e : !full) {
  ^bb0(%0: f32, %1: f32, %o: f32):
    %2 = arith.divf %0, %1 : f32
    linalg.yield %2 : f32
  } -> !full
)";

TEST_F(Fusible, SoftmaxIsARowKernel) {
  KernelShape shape;
  EXPECT_EQ(reason("%x: !full) -> !full", softmax_ops + divide + "return %div : !full\n", &shape), std::nullopt);
  EXPECT_EQ(shape.kind, KernelShape::Kind::reduction);
  EXPECT_EQ(shape.reductions, 1u);
  EXPECT_EQ(shape.stages, 2u);
  ASSERT_EQ(shape.rows.size(), 1u);
  ASSERT_EQ(shape.columns.size(), 1u);
}

TEST_F(Fusible, AReductionBesideItsElementwiseInput) {
  EXPECT_EQ(reason("%x: !full) -> (!full, !row)", std::string(softmax_ops) + "return %exp, %sum : !full, !row\n"),
            std::nullopt);
}

TEST_F(Fusible, ElementForElementAnyNumberIsOneKernel) {
  // Each result is read outside; every other operation reads a broadcast row as well.
  std::string body = "%e = tensor.empty() : !full\n", last = "%x", results, types;
  for (int i = 0; i < 100; ++i) {
    const std::string name = "%v" + std::to_string(i);
    body +=
        name +
        " = linalg.generic {indexing_maps = [#both, #row, #both], iterator_types = [\"parallel\", \"parallel\"]} ins(" +
        last + ", " + (i % 2 ? "%y" : "%z") + R"( : !full, !row) outs(%e : !full) {
    ^bb0(%0: f32, %1: f32, %o: f32):
      %2 = arith.addf %0, %1 : f32
      linalg.yield %2 : f32
    } -> !full
    )";
    last = name;
    results += (i ? ", " : "") + name;
    types += i ? ", !full" : "!full";
  }
  KernelShape shape;
  EXPECT_EQ(reason("%x: !full, %y: !row, %z: !row) -> (" + types + ")",
                   body + "return " + results + " : " + types + "\n", &shape),
            std::nullopt);
  EXPECT_EQ(shape.kind, KernelShape::Kind::pointwise);
  EXPECT_TRUE(shape.columns.empty());
  EXPECT_EQ(shape.stages, 1u);
  int64_t elements = 1;
  for (mlir::AffineExpr size : shape.rows)
    elements *= mlir::cast<mlir::AffineConstantExpr>(size).getValue();
  EXPECT_EQ(elements, 8 * 12);
}

TEST_F(Fusible, ElementsOfATransposedResultAreAnotherKernelsOrder) {
  // %b is made of %a's elements in another order, and both are read outside: one of them is stored out of order, which
  // an analysis has to find a place for.
  KernelShape shape;
  EXPECT_EQ(reason("%x: tensor<8x8xf32>) -> (tensor<8x8xf32>, tensor<8x8xf32>)", R"(
    %e = tensor.empty() : tensor<8x8xf32>
    %a = linalg.generic {indexing_maps = [#both, #both], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) {
    ^bb0(%0: f32, %o: f32):
      %2 = math.exp %0 : f32
      linalg.yield %2 : f32
    } -> tensor<8x8xf32>
    %b = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d1, d0)>, #both], iterator_types = ["parallel", "parallel"]} ins(%a : tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) {
    ^bb0(%0: f32, %o: f32):
      %2 = math.sin %0 : f32
      linalg.yield %2 : f32
    } -> tensor<8x8xf32>
    return %a, %b : tensor<8x8xf32>, tensor<8x8xf32>
  )",
                   &shape),
            std::nullopt);
  EXPECT_EQ(shape.rows.size(), 2u);
}

TEST_F(Fusible, AViewReadOutsideIsNoOutput) {
  // The transposed view is free: its source is the output.
  EXPECT_EQ(reason("%x: !full) -> tensor<12x8xf32>", softmax_ops + divide + R"(
    %t = zefuse.view %div affine_map<(d0, d1) -> (d1, d0)> : !full -> tensor<12x8xf32>
    return %t : tensor<12x8xf32>
  )"),
            std::nullopt);
}

TEST_F(Fusible, AResultPerElementOfAnotherReductionIsRefused) {
  // sum over columns of (x / rowsum): each element of the outer reduction needs a whole row.
  auto why = reason("%x: !full) -> tensor<12xf32>", softmax_ops + divide + R"(
    %ec = tensor.empty() : tensor<12xf32>
    %ic = linalg.fill ins(%zero : f32) outs(%ec : tensor<12xf32>) -> tensor<12xf32>
    %c = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d1, d0)>, #row], iterator_types = ["parallel", "reduction"]} ins(%div : !full) outs(%ic : tensor<12xf32>) {
    ^bb0(%0: f32, %o: f32):
      %1 = arith.addf %0, %o : f32
      linalg.yield %1 : f32
    } -> tensor<12xf32>
    return %c : tensor<12xf32>
  )");
  ASSERT_TRUE(why.has_value());
  EXPECT_NE(why->find("iteration space"), std::string::npos) << *why;
}

TEST_F(Fusible, ARowResultBroadcastToMoreDimsIsRefused) {
  auto why = reason("%x: !full) -> tensor<5x8xf32>", std::string(softmax_ops) + R"(
    %eb = tensor.empty() : tensor<5x8xf32>
    %b = linalg.generic {indexing_maps = [#col, #both], iterator_types = ["parallel", "parallel"]} ins(%sum : !row) outs(%eb : tensor<5x8xf32>) {
    ^bb0(%0: f32, %o: f32):
      linalg.yield %0 : f32
    } -> tensor<5x8xf32>
    return %b : tensor<5x8xf32>
  )");
  EXPECT_EQ(why, std::nullopt) << "dims that the reduction does not keep are columns";
}

TEST_F(Fusible, ViewsThatMixRowsAndColumnsAreRefused) {
  // Each sum is read along a diagonal: no split of the dims tells which rows share it.
  auto why = reason("%x: !full) -> tensor<4x24xf32>", std::string(softmax_ops) + R"(
    %v = zefuse.view %exp affine_map<(d0, d1) -> ((d0 * 24 + d1) floordiv 12, (d0 * 24 + d1) mod 12)> : !full -> tensor<4x24xf32>
    %w = zefuse.view %sum affine_map<(d0, d1) -> ((d0 + d1) mod 8)> : !row -> tensor<4x24xf32>
    %eb = tensor.empty() : tensor<4x24xf32>
    %b = linalg.generic {indexing_maps = [#both, #both, #both], iterator_types = ["parallel", "parallel"]} ins(%v, %w : tensor<4x24xf32>, tensor<4x24xf32>) outs(%eb : tensor<4x24xf32>) {
    ^bb0(%0: f32, %1: f32, %o: f32):
      %2 = arith.addf %0, %1 : f32
      linalg.yield %2 : f32
    } -> tensor<4x24xf32>
    return %b : tensor<4x24xf32>
  )");
  ASSERT_TRUE(why.has_value());
  EXPECT_NE(why->find("share the reduction's result"), std::string::npos) << *why;
}

TEST_F(Fusible, PartsOfADimSplitIt) {
  // The reader's second dim holds (3, 8): the sum keeps the 8, so rows are 8 and the rest are columns.
  KernelShape shape;
  EXPECT_EQ(reason("%x: !full) -> tensor<4x24xf32>", std::string(softmax_ops) + R"(
    %w = zefuse.view %sum affine_map<(d0, d1) -> ((d0 * 24 + d1) mod 8)> : !row -> tensor<4x24xf32>
    %eb = tensor.empty() : tensor<4x24xf32>
    %b = linalg.generic {indexing_maps = [#both, #both], iterator_types = ["parallel", "parallel"]} ins(%w : tensor<4x24xf32>) outs(%eb : tensor<4x24xf32>) {
    ^bb0(%0: f32, %o: f32):
      %2 = math.exp %0 : f32
      linalg.yield %2 : f32
    } -> tensor<4x24xf32>
    return %b : tensor<4x24xf32>
  )",
                   &shape),
            std::nullopt);
  ASSERT_EQ(shape.rows.size(), 1u);
  EXPECT_EQ(shape.columns.size(), 2u);
}

// `steps` elementwise operations, each of the one before, the first of a tensor and its transpose; and the row sum of
// each where `sums`. All are read outside.
static std::pair<std::string, std::string> recurrence(size_t steps, bool sums) {
  std::string body = "%zero = arith.constant 0.0 : f32\n%e = tensor.empty() : !square\n%er = tensor.empty() : !row\n"
                     "%i = linalg.fill ins(%zero : f32) outs(%er : !row) -> !row\n";
  std::string returned, types;
  auto output = [&](const std::string& value, const std::string& type) {
    returned += (returned.empty() ? "" : ", ") + value;
    types += (types.empty() ? "" : ", ") + type;
  };
  for (size_t step = 1; step <= steps; ++step) {
    const std::string now = "%a" + std::to_string(step);
    const std::string before = step == 1 ? "%x" : "%a" + std::to_string(step - 1);
    body += now + " = linalg.generic {indexing_maps = [#both, " + (step == 1 ? "#turned" : "#both") +
            ", #both], iterator_types = [\"parallel\", \"parallel\"]} ins(" + before + ", " +
            (step == 1 ? "%x" : before) + R"( : !square, !square) outs(%e : !square) {
    ^bb0(%0: f32, %1: f32, %o: f32):
      %2 = arith.addf %0, %1 : f32
      linalg.yield %2 : f32
    } -> !square
)";
    output(now, "!square");
    if (!sums)
      continue;
    const std::string sum = "%s" + std::to_string(step);
    body += sum +
            " = linalg.generic {indexing_maps = [#both, #row], iterator_types = [\"parallel\", \"reduction\"]} ins(" +
            now + R"( : !square) outs(%i : !row) {
    ^bb0(%0: f32, %o: f32):
      %2 = arith.addf %0, %o : f32
      linalg.yield %2 : f32
    } -> !row
)";
    output(sum, "!row");
  }
  return {"%x: !square) -> (" + types + ")", body + "return " + returned + " : " + types + "\n"};
}

TEST_F(Fusible, AnalysingALongerRecurrenceTakesAsMuchMore) {
  for (bool sums : {false, true}) {
    auto nodes = [&](size_t steps) {
      const auto [signature, body] = recurrence(steps, sums);
      const size_t before = nodesWalked();
      EXPECT_EQ(reason(signature, body), std::nullopt) << steps << " steps";
      return nodesWalked() - before;
    };
    const size_t few = nodes(16), many = nodes(64);
    EXPECT_GT(few, 16u);
    EXPECT_LT(many, 5 * few) << "nodes of four times as many operations; of few " << few;
  }
}

TEST_F(Fusible, IllegalOpsAreNamed) {
  auto why = reason("%x: tensor<8xbf16>) -> tensor<8xbf16>", R"(
    %e = tensor.empty() : tensor<8xbf16>
    %r = linalg.generic {indexing_maps = [#one, #one], iterator_types = ["parallel"]} ins(%x : tensor<8xbf16>) outs(%e : tensor<8xbf16>) {
    ^bb0(%0: bf16, %o: bf16):
      %1 = arith.mulf %0, %0 : bf16
      linalg.yield %1 : bf16
    } -> tensor<8xbf16>
    return %r : tensor<8xbf16>
  )");
  ASSERT_TRUE(why.has_value());
  EXPECT_EQ(*why, "arith.mulf on bf16 has no SPIR-V lowering");
}

TEST_F(Fusible, UnrelatedSpacesAreRefused) {
  auto why = reason("%x: !full, %y: tensor<7xf32>) -> (!full, !row, tensor<7xf32>)", std::string(softmax_ops) + R"(
    %e7 = tensor.empty() : tensor<7xf32>
    %r = linalg.generic {indexing_maps = [#one, #one], iterator_types = ["parallel"]} ins(%y : tensor<7xf32>) outs(%e7 : tensor<7xf32>) {
    ^bb0(%0: f32, %o: f32):
      %1 = math.exp %0 : f32
      linalg.yield %1 : f32
    } -> tensor<7xf32>
    return %exp, %sum, %r : !full, !row, tensor<7xf32>
  )");
  ASSERT_TRUE(why.has_value());
  EXPECT_NE(why->find("iteration space"), std::string::npos) << *why;
}

}  // namespace
}  // namespace zefuse
