#include "common/plan/expr.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/unit/executor/plan_builder.h"

namespace zefuse::executor {
namespace {

using plan::ExprOp;
constexpr int64_t smallest = std::numeric_limits<int64_t>::min();

TEST(Expr, EvaluatesEveryOperatorAsPythonDoes) {
  test::PlanBuilder b;
  struct Case {
    ExprOp op;
    int64_t lhs, rhs, expected;
  };
  const Case cases[] = {{ExprOp::add, 3, -5, -2},      {ExprOp::mul, -3, 5, -15},     {ExprOp::floordiv, 7, 2, 3},
                        {ExprOp::floordiv, -7, 2, -4}, {ExprOp::floordiv, 7, -2, -4}, {ExprOp::floordiv, -8, 2, -4},
                        {ExprOp::ceildiv, 7, 2, 4},    {ExprOp::ceildiv, -7, 2, -3},  {ExprOp::ceildiv, 8, 2, 4},
                        {ExprOp::mod, 7, 3, 1},        {ExprOp::mod, -7, 3, 2},       {ExprOp::mod, 7, -3, -2},
                        {ExprOp::min, -1, 4, -1},      {ExprOp::max, -1, 4, 4}};
  for (const Case& c : cases) {
    test::PlanBuilder b;
    const uint32_t e = b.op(c.op, b.constant(c.lhs), b.constant(c.rhs));
    const ExprValues values(b.plan.exprs, {});
    ASSERT_TRUE(values.valid(e));
    EXPECT_EQ(values[e], c.expected) << plan::EnumNameExprOp(c.op) << " " << c.lhs << ", " << c.rhs;
  }
}

TEST(Expr, ReadsSymbols) {
  test::PlanBuilder b;
  const uint32_t s = b.expr(ExprOp::symbol, 1);
  const uint32_t e = b.op(ExprOp::mul, s, b.constant(3));
  const int64_t symbols[] = {100, 7};
  EXPECT_EQ(ExprValues(b.plan.exprs, symbols)[e], 21);
}

TEST(Expr, OverflowAndDivisionByZeroHaveNoValueAndSpread) {
  test::PlanBuilder b;
  const uint32_t big = b.constant(std::numeric_limits<int64_t>::max()), one = b.constant(1);
  const uint32_t low = b.constant(smallest), minus = b.constant(-1), zero = b.constant(0);
  const uint32_t bad[] = {b.op(ExprOp::add, big, one),       b.op(ExprOp::mul, big, big),
                          b.op(ExprOp::floordiv, one, zero), b.op(ExprOp::ceildiv, one, zero),
                          b.op(ExprOp::mod, one, zero),      b.op(ExprOp::floordiv, low, minus),
                          b.op(ExprOp::mod, low, minus)};
  const uint32_t user = b.op(ExprOp::min, bad[0], one), fine = b.op(ExprOp::add, one, one);
  const ExprValues values(b.plan.exprs, {});
  for (uint32_t e : bad)
    EXPECT_FALSE(values.valid(e)) << e;
  EXPECT_FALSE(values.valid(user));
  EXPECT_TRUE(values.valid(fine));
}

}  // namespace
}  // namespace zefuse::executor
