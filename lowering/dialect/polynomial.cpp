#include "lowering/dialect/polynomial.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace zefuse {
namespace {

constexpr size_t most_terms = 64;  // more than a position in memory has: what grows so is left as it is

/// By structure: less than, equal to or greater than 0.
int compare(AffineExpr a, AffineExpr b) {
  if (a == b)
    return 0;
  auto order = [](auto x, auto y) { return x < y ? -1 : x > y ? 1 : 0; };
  if (a.getKind() != b.getKind())
    return order(int(a.getKind()), int(b.getKind()));
  if (auto dim = dyn_cast<AffineDimExpr>(a))
    return order(dim.getPosition(), cast<AffineDimExpr>(b).getPosition());
  if (auto symbol = dyn_cast<AffineSymbolExpr>(a))
    return order(symbol.getPosition(), cast<AffineSymbolExpr>(b).getPosition());
  if (auto constant = dyn_cast<AffineConstantExpr>(a))
    return order(constant.getValue(), cast<AffineConstantExpr>(b).getValue());
  auto left = cast<AffineBinaryOpExpr>(a), right = cast<AffineBinaryOpExpr>(b);
  const int first = compare(left.getLHS(), right.getLHS());
  return first != 0 ? first : compare(left.getRHS(), right.getRHS());
}

bool before(AffineExpr a, AffineExpr b) { return compare(a, b) < 0; }

Polynomial constantPolynomial(int64_t value) { return value == 0 ? Polynomial() : Polynomial{{{}, value}}; }

Polynomial factor(AffineExpr expr) { return {{{expr}, 1}}; }

std::optional<int64_t> constantOf(const Polynomial& polynomial) {
  if (polynomial.empty())
    return 0;
  if (polynomial.size() == 1 && polynomial.begin()->first.empty())
    return polynomial.begin()->second;
  return std::nullopt;
}

/// False: too large a number.
bool addTo(Polynomial& sum, const Factors& factors, int64_t coefficient) {
  auto [term, fresh] = sum.try_emplace(factors, 0);
  if (llvm::AddOverflow(term->second, coefficient, term->second))
    return false;
  if (term->second == 0)
    sum.erase(term);
  return true;
}

Factors product(const Factors& a, const Factors& b) {
  Factors factors(a.size() + b.size());
  std::merge(a.begin(), a.end(), b.begin(), b.end(), factors.begin(), before);
  return factors;
}

/// a + b * by; null: too large.
std::optional<Polynomial> plus(Polynomial a, const Polynomial& b, int64_t by = 1) {
  for (const auto& [factors, coefficient] : b) {
    int64_t scaled = 0;
    if (llvm::MulOverflow(coefficient, by, scaled) || !addTo(a, factors, scaled))
      return std::nullopt;
  }
  return a.size() <= most_terms ? std::optional(std::move(a)) : std::nullopt;
}

std::optional<Polynomial> times(const Polynomial& a, const Polynomial& b) {
  Polynomial result;
  for (const auto& [first, x] : a)
    for (const auto& [second, y] : b) {
      int64_t coefficient = 0;
      if (llvm::MulOverflow(x, y, coefficient) || !addTo(result, product(first, second), coefficient) ||
          result.size() > most_terms)
        return std::nullopt;
    }
  return result;
}

bool includes(const Factors& all, const Factors& some) {
  return std::includes(all.begin(), all.end(), some.begin(), some.end(), before);
}

Factors without(const Factors& all, const Factors& some) {
  Factors left;
  std::set_difference(all.begin(), all.end(), some.begin(), some.end(), std::back_inserter(left), before);
  return left;
}

Factors common(const Factors& a, const Factors& b) {
  Factors both;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both), before);
  return both;
}

using Term = std::pair<Factors, int64_t>;

/// What divides all terms.
Term contentOf(const Polynomial& polynomial) {
  Term content = *polynomial.begin();
  content.second = std::abs(content.second);
  for (const auto& [factors, coefficient] : polynomial)
    content = {common(content.first, factors), std::gcd(content.second, coefficient)};
  return content;
}

Polynomial dividedBy(const Polynomial& polynomial, const Term& term) {
  Polynomial result;
  for (const auto& [factors, coefficient] : polynomial)
    result[without(factors, term.first)] = coefficient / term.second;
  return result;
}

/// Expressions with quotients in one form. For one call: it keeps what it found.
class Normal {
public:
  Normal(ArrayRef<AffineExpr> sizes, MLIRContext* context) : sizes_(sizes), context_(context) {}

  Polynomial of(AffineExpr expr) {
    if (auto found = known_.find(expr); found != known_.end())
      return found->second;
    Polynomial made = make(expr).value_or(factor(expr));
    known_.try_emplace(expr, made);
    return made;
  }

private:
  /// Null: too large, or no form is known.
  std::optional<Polynomial> make(AffineExpr expr) {
    if (auto constant = dyn_cast<AffineConstantExpr>(expr))
      return constantPolynomial(constant.getValue());
    auto binary = dyn_cast<AffineBinaryOpExpr>(expr);
    if (!binary)
      return factor(expr);
    const Polynomial left = of(binary.getLHS()), right = of(binary.getRHS());
    switch (expr.getKind()) {
    case AffineExprKind::Add: return plus(left, right);
    case AffineExprKind::Mul: return times(left, right);
    case AffineExprKind::FloorDiv: return quotient(left, right);
    case AffineExprKind::CeilDiv: {
      auto reaching = plus(left, right);
      return reaching && addTo(*reaching, {}, -1) ? quotient(std::move(*reaching), right) : std::nullopt;
    }
    case AffineExprKind::Mod: {
      auto whole = quotient(left, right);
      auto taken = whole ? times(*whole, right) : std::nullopt;
      return taken ? plus(left, *taken, -1) : std::nullopt;
    }
    default: return std::nullopt;
    }
  }

  std::optional<Polynomial> quotient(Polynomial dividend, const Polynomial& divisor) {
    const auto number = constantOf(divisor);
    if (divisor.empty() || (number && *number < 1))
      return std::nullopt;
    Polynomial whole = takeMultiples(dividend, divisor);
    if (isWithin(dividend, divisor))
      return whole;
    auto rest = joined(dividend, divisor);
    if (!rest)
      rest = reduced(dividend, divisor);
    if (!rest)
      rest = factor(expressionOf(dividend, context_).floorDiv(expressionOf(divisor, context_)));
    return plus(std::move(whole), *rest);
  }

  /// Leaves of the dividend what the divisor does not divide. Coefficients that stay are no multiples and not negative.
  static Polynomial takeMultiples(Polynomial& dividend, const Polynomial& divisor) {
    Polynomial whole;
    if (divisor.size() == 1) {
      const auto& [by, number] = *divisor.begin();
      for (const auto& [factors, coefficient] : Polynomial(dividend)) {
        const int64_t count = includes(factors, by) ? llvm::divideFloorSigned(coefficient, number) : 0;
        if (count == 0)
          continue;
        whole[without(factors, by)] = count;
        addTo(dividend, factors, -count * number);
      }
      return whole;
    }
    // Of a sum: where it takes terms away for good, so that this comes to an end.
    const auto& [by, number] = *std::max_element(divisor.begin(), divisor.end(), [](const auto& a, const auto& b) {
      return a.first.size() != b.first.size() ? a.first.size() < b.first.size() : FactorsLess()(a.first, b.first);
    });
    for (bool found = true; std::exchange(found, false);)
      for (const auto& [factors, coefficient] : dividend) {
        if (!includes(factors, by) || coefficient % number != 0)
          continue;
        const Polynomial count = {{without(factors, by), coefficient / number}};
        auto taken = times(count, divisor);
        auto left = taken ? plus(dividend, *taken, -1) : std::nullopt;
        if (!left || left->size() >= dividend.size())
          continue;
        addTo(whole, count.begin()->first, count.begin()->second);
        dividend = std::move(*left);
        found = true;
        break;
      }
    return whole;
  }

  /// Whether 0 <= value < bound, wherever there is an element: a dimension is at most its size less 1.
  bool isWithin(const Polynomial& value, const Polynomial& bound) {
    if (value.empty())
      return true;
    if (!isNeverNegative(value))
      return false;
    Polynomial most;
    for (const auto& [factors, coefficient] : value) {
      Polynomial term = constantPolynomial(coefficient);
      for (AffineExpr each : factors) {
        auto dim = dyn_cast<AffineDimExpr>(each);
        if (!dim && !isa<AffineSymbolExpr>(each))
          return false;
        if (dim && dim.getPosition() >= sizes_.size())
          return false;
        auto last = dim ? plus(of(sizes_[dim.getPosition()]), constantPolynomial(-1)) : factor(each);
        auto grown = last ? times(term, *last) : std::nullopt;
        if (!grown)
          return false;
        term = std::move(*grown);
      }
      auto sum = plus(std::move(most), term);
      if (!sum)
        return false;
      most = std::move(*sum);
    }
    auto left = plus(bound, most, -1);
    return left && addTo(*left, {}, -1) && isNeverNegative(*left);
  }

  /// (a + b floordiv c) floordiv e is (a * c + b) floordiv (c * e).
  std::optional<Polynomial> joined(const Polynomial& dividend, const Polynomial& divisor) {
    for (const auto& [factors, coefficient] : dividend) {
      if (coefficient != 1 || factors.size() != 1 || factors.front().getKind() != AffineExprKind::FloorDiv)
        continue;
      auto inner = cast<AffineBinaryOpExpr>(factors.front());
      const Polynomial by = of(inner.getRHS());
      Polynomial others = dividend;
      others.erase(factors);
      auto scaled = times(others, by), divided = times(divisor, by);
      auto sum = scaled ? plus(std::move(*scaled), of(inner.getLHS())) : std::nullopt;
      return sum && divided ? quotient(std::move(*sum), *divided) : std::nullopt;
    }
    return std::nullopt;
  }

  /// Both sides divided by what divides all of the divisor and of the dividend but what is less than that: (d0 * 4 +
  /// d1) floordiv 8 is d0 floordiv 2 where d1 < 4.
  std::optional<Polynomial> reduced(const Polynomial& dividend, const Polynomial& divisor) {
    const Term content = contentOf(divisor);
    for (const auto& [factors, coefficient] : dividend) {
      const Term by = {common(content.first, factors), std::gcd(content.second, coefficient)};
      if (by.first.empty() && by.second == 1)
        continue;
      Polynomial multiples, rest;
      for (const auto& [each, count] : dividend) {
        const int64_t whole = includes(each, by.first) ? llvm::divideFloorSigned(count, by.second) * by.second : 0;
        if (whole != 0)
          multiples[each] = whole;
        if (count != whole)
          rest[each] = count - whole;
      }
      if (!multiples.empty() && isWithin(rest, {{by.first, by.second}}))
        return quotient(dividedBy(multiples, by), dividedBy(divisor, by));
    }
    return std::nullopt;
  }

  ArrayRef<AffineExpr> sizes_;
  MLIRContext* context_;
  llvm::DenseMap<AffineExpr, Polynomial> known_;
};

}  // namespace

bool FactorsLess::operator()(const Factors& a, const Factors& b) const {
  return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end(), before);
}

Polynomial polynomialOf(AffineExpr expr) {
  if (auto constant = dyn_cast<AffineConstantExpr>(expr))
    return constantPolynomial(constant.getValue());
  auto binary = dyn_cast<AffineBinaryOpExpr>(expr);
  if (!binary || (binary.getKind() != AffineExprKind::Add && binary.getKind() != AffineExprKind::Mul))
    return factor(expr);
  Polynomial left = polynomialOf(binary.getLHS()), right = polynomialOf(binary.getRHS());
  auto made = binary.getKind() == AffineExprKind::Add ? plus(std::move(left), right) : times(left, right);
  return made ? std::move(*made) : factor(expr);
}

Polynomial normalPolynomialOf(AffineExpr expr, ArrayRef<AffineExpr> sizes) {
  return Normal(sizes, expr.getContext()).of(expr);
}

AffineExpr expressionOf(const Polynomial& polynomial, MLIRContext* context) {
  AffineExpr sum = getAffineConstantExpr(0, context), constant = sum;
  for (const auto& [factors, coefficient] : polynomial) {
    AffineExpr term = getAffineConstantExpr(1, context);
    for (AffineExpr each : factors)
      term = term * each;
    (factors.empty() ? constant : sum) = (factors.empty() ? constant : sum) + term * coefficient;
  }
  return sum + constant;
}

bool hasDivision(AffineExpr expr) {
  auto binary = dyn_cast<AffineBinaryOpExpr>(expr);
  if (!binary)
    return false;
  return (expr.getKind() != AffineExprKind::Add && expr.getKind() != AffineExprKind::Mul) ||
         hasDivision(binary.getLHS()) || hasDivision(binary.getRHS());
}

bool isNeverNegative(const Polynomial& polynomial) {
  return llvm::all_of(polynomial, [](const auto& term) {
    return term.second > 0 && llvm::all_of(term.first, [](AffineExpr factor) {
             auto division = dyn_cast<AffineBinaryOpExpr>(factor);
             return !division || factor.getKind() == AffineExprKind::Mod ||
                    isNeverNegative(polynomialOf(division.getLHS()));
           });
  });
}

}  // namespace zefuse
