#include "lowering/dialect/shape.h"
#include "lowering/dialect/polynomial.h"
#include "lowering/dialect/simplify.h"

#include <numeric>
#include <optional>

#include "llvm/ADT/STLExtras.h"

using namespace mlir;

namespace zefuse {
namespace {

/// Inclusive bounds of an expression, as far as they are known.
struct Range {
  std::optional<int64_t> low, high;
};

std::optional<int64_t> constantOf(AffineExpr expr) {
  if (auto constant = dyn_cast<AffineConstantExpr>(expr))
    return constant.getValue();
  return std::nullopt;
}

void collectAddends(AffineExpr expr, SmallVectorImpl<AffineExpr>& terms) {
  if (expr.getKind() == AffineExprKind::Add) {
    auto binary = cast<AffineBinaryOpExpr>(expr);
    collectAddends(binary.getLHS(), terms);
    collectAddends(binary.getRHS(), terms);
  } else {
    terms.push_back(expr);
  }
}

SmallVector<AffineExpr> addendsOf(AffineExpr expr) {
  SmallVector<AffineExpr> terms;
  collectAddends(expr, terms);
  return terms;
}

/// Removes floordiv and mod where the operand's range makes them trivial, and splits sums over a divisor:
/// (a * 4 + b) floordiv 4 is a + b floordiv 4, and (a * 4 + b) mod 4 is b mod 4.
class InBoundsSimplifier {
public:
  explicit InBoundsSimplifier(ArrayRef<AffineExpr> sizes) : sizes_(sizes) {}

  AffineExpr simplify(AffineExpr expr) const {
    auto binary = dyn_cast<AffineBinaryOpExpr>(expr);
    if (!binary)
      return singleton(expr);
    AffineExpr lhs = simplify(binary.getLHS()), rhs = simplify(binary.getRHS());
    bool divides = expr.getKind() != AffineExprKind::Add && expr.getKind() != AffineExprKind::Mul;
    if (divides && constantOf(rhs) == 0)  // a size: no index is in bounds, and MLIR's own simplifications divide by it
      return rhs;
    switch (expr.getKind()) {
    case AffineExprKind::Add: return lhs + rhs;
    case AffineExprKind::Mul: return lhs * rhs;
    case AffineExprKind::FloorDiv: return divide(lhs, rhs);
    case AffineExprKind::CeilDiv: return lhs.ceilDiv(rhs);
    case AffineExprKind::Mod: return remainder(lhs, rhs);
    default: return expr;
    }
  }

private:
  /// A dimension of size one has only the index 0.
  AffineExpr singleton(AffineExpr expr) const {
    auto dim = dyn_cast<AffineDimExpr>(expr);
    if (dim && dim.getPosition() < sizes_.size() && constantOf(sizes_[dim.getPosition()]) == 1)
      return getAffineConstantExpr(0, expr.getContext());
    return expr;
  }

  Range range(AffineExpr expr) const {
    if (auto constant = constantOf(expr))
      return {constant, constant};
    if (auto dim = dyn_cast<AffineDimExpr>(expr)) {
      Range result{0, std::nullopt};
      if (dim.getPosition() < sizes_.size())
        if (auto size = constantOf(sizes_[dim.getPosition()]))
          result.high = *size - 1;
      return result;
    }
    if (isa<AffineSymbolExpr>(expr))
      return {0, std::nullopt};
    auto binary = cast<AffineBinaryOpExpr>(expr);
    Range lhs = range(binary.getLHS()), rhs = range(binary.getRHS());
    switch (expr.getKind()) {
    case AffineExprKind::Add: {
      Range result;
      if (lhs.low && rhs.low)
        result.low = *lhs.low + *rhs.low;
      if (lhs.high && rhs.high)
        result.high = *lhs.high + *rhs.high;
      return result;
    }
    case AffineExprKind::Mul: {
      auto factor = constantOf(binary.getRHS());
      if (!factor)
        return {lhs.low && *lhs.low >= 0 && rhs.low && *rhs.low >= 0 ? std::optional<int64_t>(0) : std::nullopt,
                std::nullopt};
      Range result;
      if (lhs.low)
        (*factor >= 0 ? result.low : result.high) = *lhs.low * *factor;
      if (lhs.high)
        (*factor >= 0 ? result.high : result.low) = *lhs.high * *factor;
      return result;
    }
    case AffineExprKind::FloorDiv: {
      auto divisor = constantOf(binary.getRHS());
      if (!divisor || *divisor <= 0 || !lhs.low || *lhs.low < 0)
        return {};
      Range result{*lhs.low / *divisor, std::nullopt};
      if (lhs.high)
        result.high = *lhs.high / *divisor;
      return result;
    }
    case AffineExprKind::Mod: {
      Range result{0, std::nullopt};
      if (auto divisor = constantOf(binary.getRHS()))
        result.high = *divisor - 1;
      return result;
    }
    default: return {};
    }
  }

  /// expr = divisor * quotient + rest, taking the terms that the divisor divides.
  static std::pair<AffineExpr, AffineExpr> splitBy(AffineExpr expr, AffineExpr divisor) {
    MLIRContext* context = expr.getContext();
    AffineExpr quotient = getAffineConstantExpr(0, context), rest = quotient;
    auto constant = constantOf(divisor);
    for (AffineExpr term : addendsOf(expr)) {
      if (AffineExpr exact = exactQuotient(term, divisor))
        quotient = quotient + exact;
      else if (constant && isMultipleOf(term, *constant))
        quotient = quotient + term.floorDiv(*constant);
      else
        rest = rest + term;
    }
    return {quotient, rest};
  }

  /// Whether 0 <= expr < bound for certain, for a bound that divides: it is not 0 where anybody reads the quotient.
  bool within(AffineExpr expr, AffineExpr bound) const {
    if (constantOf(expr) == 0 && !constantOf(bound))
      return true;
    Range values = range(expr);
    if (!values.low || *values.low < 0)
      return false;
    if (auto constant = constantOf(bound))
      return values.high && *values.high < *constant;
    if (auto dim = dyn_cast<AffineDimExpr>(expr))  // d_i < sizes[i], also when the size is symbolic
      return dim.getPosition() < sizes_.size() && sizes_[dim.getPosition()] == bound;
    return false;
  }

  AffineExpr divide(AffineExpr lhs, AffineExpr rhs) const {
    auto [quotient, rest] = splitBy(lhs, rhs);
    if (within(rest, rhs))
      return quotient;
    // (x floordiv a) floordiv b is x floordiv (a * b) for positive constants.
    if (auto inner = dyn_cast<AffineBinaryOpExpr>(rest);
        inner && inner.getKind() == AffineExprKind::FloorDiv && constantOf(rhs) && constantOf(inner.getRHS()))
      return quotient + divide(inner.getLHS(), inner.getRHS() * rhs);
    // The rest's own terms may be too small to reach the next multiple: (d0 * 4 + d1) floordiv 8 with d1 < 4.
    if (auto divisor = constantOf(rhs)) {
      int64_t step = 0;
      for (AffineExpr term : addendsOf(rest)) {
        int64_t multiple = term.getLargestKnownDivisor();
        if (multiple > 1 && *divisor % multiple == 0)
          step = step == 0 ? multiple : std::gcd(step, multiple);
      }
      if (step > 1) {
        auto [outer, small] = splitBy(rest, getAffineConstantExpr(step, rest.getContext()));
        if (within(small, getAffineConstantExpr(step, rest.getContext())))
          return quotient + outer.floorDiv(*divisor / step);
      }
    }
    return quotient + rest.floorDiv(rhs);
  }

  AffineExpr remainder(AffineExpr lhs, AffineExpr rhs) const {
    auto [quotient, rest] = splitBy(lhs, rhs);
    (void)quotient;
    return within(rest, rhs) ? rest : rest % rhs;
  }

  ArrayRef<AffineExpr> sizes_;
};

}  // namespace

RankedTensorType shapedTensor(ArrayRef<AffineExpr> sizes, Type element, unsigned num_symbols) {
  SmallVector<int64_t> dims;
  bool dynamic = false;
  for (AffineExpr size : sizes) {
    auto constant = constantOf(size);
    dynamic |= !constant;
    dims.push_back(constant.value_or(ShapedType::kDynamic));
  }
  Attribute encoding;
  if (dynamic)
    encoding = AffineMapAttr::get(AffineMap::get(0, num_symbols, sizes, element.getContext()));
  return RankedTensorType::get(dims, element, encoding);
}

SmallVector<AffineExpr> shapeOf(RankedTensorType type) {
  if (auto map = dyn_cast_or_null<AffineMapAttr>(type.getEncoding()))
    return llvm::to_vector(map.getValue().getResults());
  SmallVector<AffineExpr> sizes;
  for (int64_t size : type.getShape())
    sizes.push_back(getAffineConstantExpr(size, type.getContext()));
  return sizes;
}

unsigned numSymbols(RankedTensorType type) {
  auto map = dyn_cast_or_null<AffineMapAttr>(type.getEncoding());
  return map ? map.getValue().getNumSymbols() : 0;
}

bool sameShape(RankedTensorType a, RankedTensorType b) {
  return a.getShape() == b.getShape() && a.getEncoding() == b.getEncoding();
}

RankedTensorType withElement(RankedTensorType type, Type element) {
  return RankedTensorType::get(type.getShape(), element, type.getEncoding());
}

AffineExpr numElements(RankedTensorType type) { return numElements(shapeOf(type), type.getContext()); }

AffineExpr numElements(ArrayRef<AffineExpr> sizes, MLIRContext* context) {
  AffineExpr product = getAffineConstantExpr(1, context);
  for (AffineExpr size : sizes)
    product = product * size;
  return product;
}

bool sameValue(AffineExpr a, AffineExpr b) {
  if (a == b || polynomialOf(a) == polynomialOf(b))
    return true;
  return (hasDivision(a) || hasDivision(b)) && normalPolynomialOf(a) == normalPolynomialOf(b);
}

bool isAtLeast(AffineExpr a, AffineExpr b) {
  return isNeverNegative(polynomialOf(a - b)) ||
         ((hasDivision(a) || hasDivision(b)) && isNeverNegative(normalPolynomialOf(a - b)));
}

SmallVector<AffineExpr> contiguousStrides(ArrayRef<AffineExpr> sizes, MLIRContext* context) {
  SmallVector<AffineExpr> strides(sizes.size());
  AffineExpr stride = getAffineConstantExpr(1, context);
  for (size_t i = sizes.size(); i-- > 0;) {
    strides[i] = stride;
    stride = sizes[i] * stride;
  }
  return strides;
}

AffineMap stridedLayout(ArrayRef<AffineExpr> strides, AffineExpr offset, unsigned num_symbols, MLIRContext* context) {
  AffineExpr element = offset ? offset : getAffineConstantExpr(0, context);
  for (auto [i, stride] : llvm::enumerate(strides))
    element = element + getAffineDimExpr(i, context) * stride;
  return AffineMap::get(strides.size(), num_symbols, element);
}

AffineMap contiguousLayout(RankedTensorType type, unsigned num_symbols) {
  return stridedLayout(contiguousStrides(shapeOf(type), type.getContext()), nullptr, num_symbols, type.getContext());
}

/// What `expr` grows by with each step of the dimension, read off its sums and products; null where that does not say.
static AffineExpr coefficientOf(AffineExpr expr, AffineExpr dim) {
  if (expr == dim)
    return getAffineConstantExpr(1, expr.getContext());
  if (!expr.isFunctionOfDim(cast<AffineDimExpr>(dim).getPosition()))
    return getAffineConstantExpr(0, expr.getContext());
  auto binary = dyn_cast<AffineBinaryOpExpr>(expr);
  if (!binary || (binary.getKind() != AffineExprKind::Add && binary.getKind() != AffineExprKind::Mul))
    return {};
  const AffineExpr left = coefficientOf(binary.getLHS(), dim), right = coefficientOf(binary.getRHS(), dim);
  if (!left || !right)
    return {};
  if (binary.getKind() == AffineExprKind::Add)
    return left + right;
  if (constantOf(right) == 0)
    return left * binary.getRHS();
  return constantOf(left) == 0 ? binary.getLHS() * right : AffineExpr();
}

/// The strides where the sums and products do not say so at once: of a dimension that was flattened, whose places are
/// quotients and rests by sizes that are symbols.
static std::optional<Strided> stridedByParts(AffineExpr expr, ArrayRef<AffineExpr> sizes, unsigned symbols) {
  MLIRContext* context = expr.getContext();
  Polynomial begin;
  SmallVector<Polynomial> steps(sizes.size());
  for (const auto& [factors, coefficient] : normalPolynomialOf(expr, sizes)) {
    Factors others;
    std::optional<unsigned> along;
    for (AffineExpr factor : factors) {
      auto dim = dyn_cast<AffineDimExpr>(factor);
      if (dim ? along.has_value() : !factor.isSymbolicOrConstant())
        return std::nullopt;
      if (dim)
        along = dim.getPosition();
      else
        others.push_back(factor);
    }
    (along ? steps[*along] : begin)[others] = coefficient;
  }
  auto simple = [&](const Polynomial& polynomial) {
    return simplifyAffine(expressionOf(polynomial, context), unsigned(sizes.size()), symbols);
  };
  Strided result{{}, simple(begin)};
  for (auto [size, step] : llvm::zip_equal(sizes, steps))
    result.strides.push_back(constantOf(size) == 1 ? getAffineConstantExpr(0, context) : simple(step));
  return result;
}

std::optional<Strided> asStrided(AffineMap layout, ArrayRef<AffineExpr> sizes) {
  MLIRContext* context = layout.getContext();
  AffineMap simple = simplifyInBounds(layout, sizes);
  AffineExpr expr = simple.getResult(0);
  unsigned dims = layout.getNumDims(), symbols = layout.getNumSymbols();
  SmallVector<AffineExpr> zeros(dims, getAffineConstantExpr(0, context));
  auto at = [&](ArrayRef<AffineExpr> point) { return simplifyAffine(expr.replaceDims(point), dims, symbols); };
  Strided result;
  result.offset = at(zeros);
  AffineExpr rebuilt = result.offset;
  for (unsigned i = 0; i < dims; ++i) {
    SmallVector<AffineExpr> unit = zeros;
    unit[i] = getAffineConstantExpr(1, context);
    AffineExpr stride = coefficientOf(expr, getAffineDimExpr(i, context));
    stride = simplifyAffine(stride ? stride : at(unit) - result.offset, dims, symbols);
    if (constantOf(sizes[i]) == 1)  // any stride is right for the only index
      stride = getAffineConstantExpr(0, context);
    result.strides.push_back(stride);
    rebuilt = rebuilt + getAffineDimExpr(i, context) * stride;
  }
  // Strided only if the map is exactly offset + sum of d_i * stride_i.
  AffineExpr difference = simplifyAffine(expr - rebuilt, dims, symbols);
  if (constantOf(difference) != 0 && polynomialOf(expr) != polynomialOf(rebuilt))
    return stridedByParts(expr, sizes, symbols);
  return result;
}

AffineExpr simplifyInBounds(AffineExpr expr, ArrayRef<AffineExpr> sizes, unsigned num_symbols) {
  AffineExpr before;
  // Each round can expose another: a removed mod leaves a plain dimension. Two or three rounds reach the fixed point.
  for (int round = 0; round < 4 && before != expr; ++round) {
    before = expr;
    expr = InBoundsSimplifier(sizes).simplify(expr);
    expr = simplifyAffine(expr, sizes.size(), num_symbols);
  }
  return expr;
}

AffineMap simplifyInBounds(AffineMap map, ArrayRef<AffineExpr> sizes) {
  SmallVector<AffineExpr> results;
  for (AffineExpr expr : map.getResults())
    results.push_back(simplifyInBounds(expr, sizes, map.getNumSymbols()));
  return AffineMap::get(map.getNumDims(), map.getNumSymbols(), results, map.getContext());
}

}  // namespace zefuse
