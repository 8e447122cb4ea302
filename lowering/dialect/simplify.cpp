#include "lowering/dialect/simplify.h"

#include <tuple>

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"

using namespace mlir;

namespace zefuse {
namespace {

/// Gives what is not affine (a product of two unknowns, a division by one) a symbol of its own, so that the rest is a
/// sum that MLIR simplifies.
class Simplifier {
public:
  Simplifier(unsigned num_dims, unsigned num_symbols) : num_dims_(num_dims), num_symbols_(num_symbols) {}

  AffineExpr simplify(AffineExpr expr) {
    if (expr.isPureAffine())
      return simplifyAffineExpr(expr, num_dims_, num_symbols_);
    AffineExpr affine = named(expr);
    affine = simplifyAffineExpr(affine, num_dims_, num_symbols_ + unsigned(meanings_.size()));
    llvm::DenseMap<AffineExpr, AffineExpr> meanings;
    for (auto [i, meaning] : llvm::enumerate(meanings_))
      meanings[symbol(i, expr.getContext())] = meaning;
    return ordered(affine.replace(meanings));
  }

private:
  AffineExpr symbol(size_t number, MLIRContext* context) const {
    return getAffineSymbolExpr(num_symbols_ + unsigned(number), context);
  }

  /// The expression with symbols for what is not affine.
  AffineExpr named(AffineExpr expr) {
    auto binary = dyn_cast<AffineBinaryOpExpr>(expr);
    if (!binary || expr.isPureAffine())
      return expr;
    const bool sum = expr.getKind() == AffineExprKind::Add;
    if (sum || isa<AffineConstantExpr>(binary.getRHS()))
      return getAffineBinaryOpExpr(expr.getKind(), named(binary.getLHS()), named(binary.getRHS()));
    // Each operand by itself: the symbols of this expression mean nothing there.
    AffineExpr lhs = Simplifier(num_dims_, num_symbols_).simplify(binary.getLHS());
    AffineExpr rhs = Simplifier(num_dims_, num_symbols_).simplify(binary.getRHS());
    AffineExpr made = getAffineBinaryOpExpr(expr.getKind(), lhs, rhs);
    if (made.isPureAffine())
      return made;
    auto rest = cast<AffineBinaryOpExpr>(made);
    if (made.getKind() != expr.getKind() || isa<AffineConstantExpr>(rest.getRHS()))
      return named(made);
    auto [found, fresh] = names_.try_emplace(made, AffineExpr());
    if (fresh) {
      found->second = symbol(meanings_.size(), expr.getContext());
      meanings_.push_back(made);
    }
    return found->second;
  }

  /// The addends by the first dimension or symbol that they begin with, a dimension alone before its products, the rest
  /// behind them: d0 + d0 * s0 + s0 + d1. So that equal sums are one expression, as MLIR's are.
  AffineExpr ordered(AffineExpr expr) const {
    SmallVector<AffineExpr> addends;
    collect(expr, addends);
    llvm::stable_sort(addends, [&](AffineExpr a, AffineExpr b) { return place(a) < place(b); });
    AffineExpr sum = getAffineConstantExpr(0, expr.getContext());
    for (AffineExpr addend : addends)
      sum = sum + addend;
    return sum;
  }

  static void collect(AffineExpr expr, SmallVectorImpl<AffineExpr>& addends) {
    auto binary = dyn_cast<AffineBinaryOpExpr>(expr);
    if (!binary || expr.getKind() != AffineExprKind::Add) {
      addends.push_back(expr);
      return;
    }
    collect(binary.getLHS(), addends);
    collect(binary.getRHS(), addends);
  }

  using Place = std::tuple<unsigned, int64_t, int64_t>;

  Place place(AffineExpr addend) const {
    constexpr unsigned simple = 0, other = 1, constant = 2;
    const int64_t most = std::max(num_dims_, num_symbols_);
    if (isa<AffineConstantExpr>(addend))
      return {constant, 0, 0};
    auto factor = dyn_cast<AffineBinaryOpExpr>(addend);
    if (factor && addend.getKind() == AffineExprKind::Mul && isa<AffineConstantExpr>(factor.getRHS()))
      addend = factor.getLHS();
    AffineExpr first = addend, second;
    if (auto binary = dyn_cast<AffineBinaryOpExpr>(addend))
      first = binary.getLHS(), second = binary.getRHS();
    auto symbol = dyn_cast_if_present<AffineSymbolExpr>(second);
    if (second && !symbol && !isa<AffineConstantExpr>(second))
      return {other, 0, 0};
    if (auto dim = dyn_cast<AffineDimExpr>(first))
      return {simple, dim.getPosition(), symbol ? symbol.getPosition() : -1};
    if (auto of = dyn_cast<AffineSymbolExpr>(first))
      return {simple, of.getPosition(), symbol ? symbol.getPosition() : most};
    return {other, 0, 0};
  }

  const unsigned num_dims_, num_symbols_;
  SmallVector<AffineExpr> meanings_;  // of the symbols after the expression's own
  llvm::DenseMap<AffineExpr, AffineExpr> names_;
};

/// The factors of a product that are no constants, and the constants' product.
int64_t factorsOf(AffineExpr expr, SmallVectorImpl<AffineExpr>& factors) {
  if (auto constant = dyn_cast<AffineConstantExpr>(expr))
    return constant.getValue();
  if (expr.getKind() != AffineExprKind::Mul) {
    factors.push_back(expr);
    return 1;
  }
  auto product = cast<AffineBinaryOpExpr>(expr);
  const int64_t left = factorsOf(product.getLHS(), factors);
  return left * factorsOf(product.getRHS(), factors);
}

}  // namespace

AffineExpr exactQuotient(AffineExpr expr, AffineExpr divisor) {
  if (expr.getKind() == AffineExprKind::Add) {
    auto sum = cast<AffineBinaryOpExpr>(expr);
    AffineExpr left = exactQuotient(sum.getLHS(), divisor), right = exactQuotient(sum.getRHS(), divisor);
    return left && right ? left + right : AffineExpr();
  }
  SmallVector<AffineExpr> factors, divisors;
  const int64_t number = factorsOf(expr, factors), by = factorsOf(divisor, divisors);
  if (by == 0 || number % by != 0)
    return {};
  if (number == 0)
    return getAffineConstantExpr(0, expr.getContext());
  for (AffineExpr factor : divisors) {
    auto* found = llvm::find(factors, factor);
    if (found == factors.end())
      return {};
    factors.erase(found);
  }
  AffineExpr quotient = getAffineConstantExpr(1, expr.getContext());
  for (AffineExpr factor : factors)
    quotient = quotient * factor;
  return quotient * (number / by);
}

bool isMultipleOf(AffineExpr expr, int64_t number) {
  return number != 0 && expr.getLargestKnownDivisor() % number == 0;
}

AffineExpr simplifyAffine(AffineExpr expr, unsigned num_dims, unsigned num_symbols) {
  return Simplifier(num_dims, num_symbols).simplify(expr);
}

}  // namespace zefuse
