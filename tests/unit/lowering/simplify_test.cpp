// simplifyAffine and the polynomials: a simplified expression has the value of the one before it, wherever it is
// evaluated.
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <random>
#include <string>

#include "lowering/dialect/polynomial.h"
#include "lowering/dialect/shape.h"
#include "lowering/dialect/simplify.h"
#include "mlir/IR/MLIRContext.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;

namespace zefuse {
namespace {

constexpr unsigned dims = 3, symbols = 2;

int64_t valueOf(AffineExpr expr, ArrayRef<int64_t> at) {
  if (auto constant = dyn_cast<AffineConstantExpr>(expr))
    return constant.getValue();
  if (auto dim = dyn_cast<AffineDimExpr>(expr))
    return at[dim.getPosition()];
  if (auto symbol = dyn_cast<AffineSymbolExpr>(expr))
    return at[dims + symbol.getPosition()];
  auto binary = cast<AffineBinaryOpExpr>(expr);
  const int64_t a = valueOf(binary.getLHS(), at), b = valueOf(binary.getRHS(), at);
  const int64_t rest = b == 0 ? 0 : (a % b + b) % b, quotient = b == 0 ? 0 : (a - rest) / b;
  switch (expr.getKind()) {
  case AffineExprKind::Add: return a + b;
  case AffineExprKind::Mul: return a * b;
  case AffineExprKind::Mod: return rest;
  case AffineExprKind::FloorDiv: return quotient;
  default: return quotient + (rest != 0);
  }
}

std::string textOf(AffineExpr expr) {
  std::string text;
  llvm::raw_string_ostream(text) << expr;
  return text;
}

void expectSame(AffineExpr expr) {
  const AffineExpr simple = simplifyAffine(expr, dims, symbols);
  for (const auto& at : {std::array<int64_t, 5>{0, 0, 0, 3, 2}, {1, 2, 3, 4, 5}, {7, 5, 2, 3, 4}, {11, 13, 17, 5, 3}})
    ASSERT_EQ(valueOf(simple, at), valueOf(expr, at)) << textOf(expr) << " became " << textOf(simple);
  const SmallVector<AffineExpr> sizes(dims, getAffineConstantExpr(32, expr.getContext()));
  const AffineExpr bounded = simplifyInBounds(expr, sizes, symbols);
  for (const auto& at : {std::array<int64_t, 5>{0, 0, 0, 3, 2}, {1, 2, 3, 4, 5}, {7, 5, 2, 3, 4}, {11, 13, 17, 5, 3}})
    ASSERT_EQ(valueOf(bounded, at), valueOf(expr, at)) << textOf(expr) << " within bounds became " << textOf(bounded);
}

void expectSameAsPolynomial(AffineExpr expr) {
  MLIRContext* context = expr.getContext();
  const AffineExpr sizes[] = {getAffineSymbolExpr(0, context), getAffineSymbolExpr(1, context),
                              getAffineConstantExpr(4, context)};
  const AffineExpr normal = expressionOf(normalPolynomialOf(expr), context);
  const AffineExpr in_bounds = expressionOf(normalPolynomialOf(expr, sizes), context);
  for (const auto& at :
       {std::array<int64_t, 5>{0, 0, 0, 3, 2}, {1, 2, 3, 4, 5}, {2, 1, 2, 3, 4}, {4, 2, 1, 5, 3}, {0, 0, 3, 1, 1}}) {
    ASSERT_EQ(valueOf(normal, at), valueOf(expr, at)) << textOf(expr) << " became " << textOf(normal);
    ASSERT_EQ(valueOf(in_bounds, at), valueOf(expr, at)) << textOf(expr) << " became " << textOf(in_bounds);
  }
}

struct Terms {
  MLIRContext context;
  AffineExpr d(unsigned i) { return getAffineDimExpr(i, &context); }
  AffineExpr s(unsigned i) { return getAffineSymbolExpr(i, &context); }
};

// A transposed tensor of s0 rows, flattened: MLIR's own gave (d0 mod s0) * 60.
TEST(Simplify, QuotientAndRestOfOneDivision) {
  Terms t;
  expectSame((t.d(0) % t.s(0)) * 30 + t.d(0).floorDiv(t.s(0)) * 15 + t.d(1));
  expectSame((t.d(0) % t.s(0)) * t.s(1) + t.d(0).floorDiv(t.s(0)) * 15 + t.d(0) * t.s(0));
  expectSame((t.d(0) % 4) * 7 + t.d(0).floorDiv(4) * 15 + t.d(1) * t.s(0));
  expectSame(t.d(0) * t.s(0) + t.s(0) * t.s(0));
}

TEST(Simplify, EqualSumsAreOneExpression) {
  Terms t;
  auto simple = [](AffineExpr expr) { return simplifyAffine(expr, dims, symbols); };
  EXPECT_EQ(simple(t.d(1) * 5 + t.d(0) * (t.s(0) * 5) + t.d(2)), simple(t.d(2) + t.d(0) * (t.s(0) * 5) + t.d(1) * 5));
  EXPECT_EQ(simple(t.d(0) * t.s(0) + 3 - t.d(0) * t.s(0)), getAffineConstantExpr(3, &t.context));
  EXPECT_EQ(simple(t.d(0) % t.s(0) - t.d(0) % t.s(0)), getAffineConstantExpr(0, &t.context));
  EXPECT_EQ(simple((t.d(0) * t.s(0) * 4 + 8).floorDiv(4)), simple(t.d(0) * t.s(0) + 2));
}

// What torch gives for the size of a square that was flattened and took its shape again.
TEST(Simplify, ProductsByOneOfTheirFactors) {
  Terms t;
  EXPECT_EQ(exactQuotient(t.s(0) * t.s(0), t.s(0)), t.s(0));
  EXPECT_EQ(exactQuotient(t.s(0) * t.s(1) * t.d(0) * 6, t.s(0) * t.d(0) * 2), t.s(1) * 3);
  EXPECT_EQ(exactQuotient(t.s(0) * t.s(1) + t.s(1), t.s(1)), t.s(0) + 1);
  EXPECT_EQ(exactQuotient(t.s(0) * t.s(1) + 1, t.s(1)), AffineExpr());
  EXPECT_EQ(exactQuotient(t.s(0) * 3, t.s(0) * 2), AffineExpr());
  EXPECT_EQ(exactQuotient(t.s(0), t.s(0) - t.s(0)), AffineExpr());  // a constant 0
  const AffineExpr sizes[] = {t.s(0), t.s(1), t.s(0)};
  EXPECT_EQ(simplifyInBounds((t.s(0) * t.s(0)).floorDiv(t.s(0)) * t.d(0), sizes, symbols), t.d(0) * t.s(0));
  EXPECT_EQ(simplifyInBounds((t.d(1) * t.s(0) * t.s(1) + t.d(0)).floorDiv(t.s(0)), sizes, symbols), t.d(1) * t.s(1));
  EXPECT_EQ(simplifyInBounds((t.d(0) * t.s(1)) % t.s(1), sizes, symbols), getAffineConstantExpr(0, &t.context));
}

TEST(Simplify, QuotientsInOneForm) {
  Terms t;
  const AffineExpr sizes[] = {t.s(0), t.s(1), getAffineConstantExpr(4, &t.context)};
  auto normal = [&](AffineExpr expr) { return expressionOf(normalPolynomialOf(expr, sizes), &t.context); };
  // Rows from the second on, flattened.
  EXPECT_EQ(normal((t.d(0).floorDiv(t.s(1)) + 1) * t.s(1) + t.d(0) % t.s(1)), t.d(0) + t.s(1));
  // Behind the first element of batches of 2 x 2, three rows of two, as MLIR simplifies their index.
  const AffineExpr row = t.d(0) + (t.d(1) + 1).floorDiv(2);
  EXPECT_EQ(normal((t.d(0) * 2 + t.d(1) + 1).floorDiv(4) * 4 + row % 2 * 2 - (t.d(1) + 1).floorDiv(2) * 2 + t.d(1) + 1),
            t.d(0) * 2 + t.d(1) + 1);
  EXPECT_EQ(normal((t.d(0) * t.s(1) + t.d(1)).floorDiv(t.s(1))), t.d(0));
  EXPECT_EQ(normal((t.d(0) * t.s(1) + t.d(1)).floorDiv(t.s(0) * t.s(1))), getAffineConstantExpr(0, &t.context));
  EXPECT_EQ(normal((t.d(0) * 4 + t.d(2)).floorDiv(t.s(1) * 4)), t.d(0).floorDiv(t.s(1)));
  EXPECT_EQ(normal((t.d(0) * t.s(0) - t.d(0) + t.d(1)).floorDiv(t.s(0) - 1)), t.d(1).floorDiv(t.s(0) - 1) + t.d(0));
  EXPECT_TRUE(sameValue((t.s(0) - 2).floorDiv(2) + 1, t.s(0).floorDiv(2)));  // how many windows there are
  EXPECT_FALSE(sameValue((t.s(0) - 1).floorDiv(2) + 1, t.s(0).floorDiv(2)));
}

// Windows of an odd number of channels in two groups: half of (d0 * (s0 * 2)) floordiv 2 + d1 was taken of each addend.
TEST(Simplify, QuotientsThatAreNoMultiples) {
  Terms t;
  const AffineExpr half = (t.d(0) * (t.s(0) * 2)).floorDiv(2);
  EXPECT_FALSE(isMultipleOf(half, 2));
  EXPECT_TRUE(isMultipleOf((t.s(0) * 4).floorDiv(2) + t.d(0) * 6, 2));
  expectSame((half + t.d(1)).floorDiv(2));
  expectSame((half + t.d(1)) % 2);
  const AffineExpr sizes[] = {getAffineConstantExpr(2, &t.context), t.s(0), t.s(1)};
  EXPECT_EQ(simplifyInBounds((t.d(1) * 2 + t.d(0) + t.d(2) * (t.s(0) * 2)).floorDiv(2), sizes, symbols),
            t.d(1) + t.d(2) * t.s(0));
}

TEST(Simplify, RandomExpressions) {
  Terms t;
  std::mt19937 random(7);
  auto below = [&](unsigned n) { return unsigned(random() % n); };
  std::function<AffineExpr(unsigned)> make = [&](unsigned depth) -> AffineExpr {
    if (depth == 0)
      return below(4) == 0 ? t.s(below(symbols)) : t.d(below(dims));
    const AffineExpr left = make(depth - 1 - below(depth));
    switch (below(7)) {
    case 0: return left * (int64_t(below(9)) - 4);
    case 1: return left * t.s(below(symbols));
    case 2: return left.floorDiv(t.s(below(symbols)));
    case 3: return left % t.s(below(symbols));
    case 4: return below(2) ? left.floorDiv(1 + below(5)) : left % (1 + below(5));
    default: return left + make(depth - 1 - below(depth));
    }
  };
  for (int i = 0; i < 5000 && !HasFailure(); ++i) {
    const AffineExpr expr = make(1 + below(6));
    expectSame(expr);
    expectSameAsPolynomial(expr);
  }
}

}  // namespace
}  // namespace zefuse
