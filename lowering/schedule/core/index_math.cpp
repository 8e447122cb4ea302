#include "lowering/schedule/core/index_math.h"

using namespace mlir;

namespace zefuse {

Value IndexMath::expression(AffineExpr expr, ArrayRef<Value> symbols) const {
  if (auto constant = dyn_cast<AffineConstantExpr>(expr))
    return number(constant.getValue());
  if (auto symbol = dyn_cast<AffineSymbolExpr>(expr))
    return symbols[symbol.getPosition()];
  auto binary = cast<AffineBinaryOpExpr>(expr);
  Value lhs = expression(binary.getLHS(), symbols), rhs = expression(binary.getRHS(), symbols);
  switch (expr.getKind()) {
  case AffineExprKind::Add: return add(lhs, rhs);
  case AffineExprKind::Mul: return multiply(lhs, rhs);
  case AffineExprKind::FloorDiv: return divide(lhs, rhs);
  case AffineExprKind::Mod: return modulo(lhs, rhs);
  default: return divide(add(lhs, subtract(rhs, number(1))), rhs);
  }
}

}  // namespace zefuse
