#include "common/plan/expr.h"

#include <gtest/gtest.h>

#include <bit>
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
    const plan::ExprValues values(b.plan.exprs, {});
    ASSERT_TRUE(values.valid(e));
    EXPECT_EQ(values[e], c.expected) << plan::EnumNameExprOp(c.op) << " " << c.lhs << ", " << c.rhs;
  }
}

TEST(Expr, ReadsSymbols) {
  test::PlanBuilder b;
  const uint32_t s = b.expr(ExprOp::symbol, 1);
  const uint32_t e = b.op(ExprOp::mul, s, b.constant(3));
  const int64_t symbols[] = {100, 7};
  EXPECT_EQ(plan::ExprValues(b.plan.exprs, symbols)[e], 21);
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
  const plan::ExprValues values(b.plan.exprs, {});
  for (uint32_t e : bad)
    EXPECT_FALSE(values.valid(e)) << e;
  EXPECT_FALSE(values.valid(user));
  EXPECT_TRUE(values.valid(fine));
}

TEST(Expr, ComputesRealNumbersAsPythonDoes) {
  test::PlanBuilder b;
  auto real = [&](double number) { return b.expr(ExprOp::real, std::bit_cast<int64_t>(number)); };
  auto unary = [&](ExprOp op, uint32_t operand) { return b.op(op, operand, operand); };
  const uint32_t ten = unary(ExprOp::to_real, b.constant(10)), third = b.op(ExprOp::real_div, ten, real(3));
  // 10 * 0.7 * 3, in this order: 7.0 * 3.0.
  const uint32_t steps = b.op(ExprOp::real_mul, b.op(ExprOp::real_mul, ten, real(0.7)), real(3));
  const std::pair<uint32_t, int64_t> integers[] = {
      {unary(ExprOp::ceil, third), 4},
      {unary(ExprOp::floor, third), 3},
      {unary(ExprOp::trunc, b.op(ExprOp::real_mul, third, real(-1))), -3},
      {unary(ExprOp::floor, b.op(ExprOp::real_mul, third, real(-1))), -4},
      {unary(ExprOp::round, real(2.5)), 2},
      {unary(ExprOp::round, real(3.5)), 4},
      {unary(ExprOp::trunc, steps), 21},
      {unary(ExprOp::trunc, unary(ExprOp::sqrt, real(17))), 4},
      {unary(ExprOp::trunc, unary(ExprOp::log2, real(8))), 3},
      {unary(ExprOp::trunc, b.op(ExprOp::real_pow, real(9), real(0.5))), 3},
      {unary(ExprOp::trunc, b.op(ExprOp::real_mod, real(-7), real(3))), 2},
      {unary(ExprOp::trunc, b.op(ExprOp::real_min, real(2), real(-3))), -3},
      {unary(ExprOp::trunc, b.op(ExprOp::real_max, real(2), real(-3))), 2},
      {unary(ExprOp::trunc, unary(ExprOp::from_bits, unary(ExprOp::bits, real(5.5)))), 5},
      {unary(ExprOp::bits, third), std::bit_cast<int64_t>(10.0 / 3)},
      {b.op(ExprOp::pow, b.constant(-3), b.constant(3)), -27},
      {b.op(ExprOp::pow, b.constant(7), b.constant(0)), 1}};
  const plan::ExprValues values(b.plan.exprs, {});
  for (auto [e, expected] : integers) {
    ASSERT_TRUE(values.valid(e)) << e;
    EXPECT_EQ(values[e], expected) << plan::EnumNameExprOp(b.plan.exprs[e].op()) << " " << e;
  }
}

TEST(Expr, RealNumbersThatPythonRefusesHaveNoValue) {
  test::PlanBuilder b;
  auto real = [&](double number) { return b.expr(ExprOp::real, std::bit_cast<int64_t>(number)); };
  auto unary = [&](ExprOp op, uint32_t operand) { return b.op(op, operand, operand); };
  const uint32_t bad[] = {b.op(ExprOp::real_div, real(1), real(0)),
                          b.op(ExprOp::real_mod, real(1), real(0)),
                          b.op(ExprOp::real_pow, real(0), real(-1)),
                          b.op(ExprOp::real_pow, real(-8), real(0.5)),
                          unary(ExprOp::sqrt, real(-1)),
                          unary(ExprOp::log2, real(0)),
                          unary(ExprOp::asin, real(2)),
                          unary(ExprOp::ceil, real(1e300)),
                          unary(ExprOp::trunc, real(std::numeric_limits<double>::quiet_NaN())),
                          b.op(ExprOp::pow, b.constant(2), b.constant(-1)),
                          b.op(ExprOp::pow, b.constant(2), b.constant(63))};
  const plan::ExprValues values(b.plan.exprs, {});
  for (uint32_t e : bad)
    EXPECT_FALSE(values.valid(e)) << plan::EnumNameExprOp(b.plan.exprs[e].op()) << " " << e;
}

}  // namespace
}  // namespace zefuse::executor
