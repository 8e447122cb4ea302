#include "compiler/import/size_expr.h"

#include "mlir/IR/AffineExpr.h"

#include "lowering/dialect/simplify.h"

using namespace mlir;

namespace zefuse::fx {
namespace {

// What `value` says of each leaf of this kind, in the order of a walk.
template <typename Leaf, typename T> std::vector<T> leavesOf(AffineExpr expr, T (Leaf::*value)() const) {
  std::vector<T> found;
  expr.walk([&](AffineExpr part) {
    if (auto leaf = dyn_cast<Leaf>(part))
      found.push_back((leaf.*value)());
  });
  return found;
}

}  // namespace

SizeExpr::SizeExpr(AffineExpr expr) : expr_(expr ? expr.getAsOpaquePointer() : nullptr) {}

SizeExpr::operator AffineExpr() const { return AffineExpr::getFromOpaquePointer(expr_); }

SizeExpr SizeExpr::constant(MLIRContext& context, int64_t value) {
  return SizeExpr(getAffineConstantExpr(value, &context));
}

SizeExpr SizeExpr::symbol(MLIRContext& context, unsigned position) {
  return SizeExpr(getAffineSymbolExpr(position, &context));
}

std::optional<int64_t> SizeExpr::constant() const {
  auto number = dyn_cast<AffineConstantExpr>(AffineExpr(*this));
  return number ? std::optional<int64_t>(number.getValue()) : std::nullopt;
}

std::optional<unsigned> SizeExpr::symbol() const {
  auto symbol = dyn_cast<AffineSymbolExpr>(AffineExpr(*this));
  return symbol ? std::optional<unsigned>(symbol.getPosition()) : std::nullopt;
}

std::vector<unsigned> SizeExpr::symbolsWithin() const { return leavesOf(*this, &AffineSymbolExpr::getPosition); }

std::vector<int64_t> SizeExpr::constantsWithin() const { return leavesOf(*this, &AffineConstantExpr::getValue); }

SizeExpr SizeExpr::constantLike(int64_t value) const {
  return SizeExpr(getAffineConstantExpr(value, AffineExpr(*this).getContext()));
}

SizeExpr SizeExpr::operator+(SizeExpr other) const { return SizeExpr(AffineExpr(*this) + AffineExpr(other)); }
SizeExpr SizeExpr::operator*(SizeExpr other) const { return SizeExpr(AffineExpr(*this) * AffineExpr(other)); }
SizeExpr SizeExpr::operator*(int64_t factor) const { return SizeExpr(AffineExpr(*this) * factor); }
SizeExpr SizeExpr::operator%(SizeExpr other) const { return SizeExpr(AffineExpr(*this) % AffineExpr(other)); }

/// Of s0 * s0 by s0 s0, as torch writes the size of a flattened square that takes its shape again: so that sizes that
/// are the same are one expression.
SizeExpr SizeExpr::floorDiv(SizeExpr other) const {
  AffineExpr exact = exactQuotient(*this, other);
  return SizeExpr(exact ? exact : AffineExpr(*this).floorDiv(AffineExpr(other)));
}

SizeExpr SizeExpr::floorDiv(int64_t divisor) const { return SizeExpr(AffineExpr(*this).floorDiv(divisor)); }

}  // namespace zefuse::fx
