#include "compiler/plan/exprs.h"

#include "common/plan/plan_generated.h"
#include "lowering/dialect/simplify.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "llvm/ADT/bit.h"
#include "llvm/Support/ErrorHandling.h"

using namespace mlir;

namespace zefuse {

uint32_t ExprTable::add(AffineExpr expr) { return emit(simplifyAffine(expr, 0, num_symbols_)); }

uint32_t ExprTable::constant(int64_t value, MLIRContext* context) {
  return emit(getAffineConstantExpr(value, context));
}

std::vector<uint32_t> ExprTable::addAll(ArrayRef<AffineExpr> exprs) {
  std::vector<uint32_t> result;
  for (AffineExpr expr : exprs)
    result.push_back(add(expr));
  return result;
}

uint32_t ExprTable::addAtLeastZero(AffineExpr expr) {
  expr = simplifyAffine(expr, 0, num_symbols_);
  if (auto value = dyn_cast<AffineConstantExpr>(expr))
    return constant(std::max<int64_t>(value.getValue(), 0), expr.getContext());
  uint32_t operand = emit(expr), zero = constant(0, expr.getContext());
  nodes_.emplace_back(0, operand, zero, plan::ExprOp::max);
  return nodes_.size() - 1;
}

uint32_t ExprTable::emit(AffineExpr expr) {
  if (auto it = index_.find(expr); it != index_.end())
    return it->second;
  plan::ExprNode node;
  if (auto value = dyn_cast<AffineConstantExpr>(expr)) {
    node = plan::ExprNode(value.getValue(), 0, 0, plan::ExprOp::constant);
  } else if (auto symbol = dyn_cast<AffineSymbolExpr>(expr)) {
    const auto& [plan_symbol, definition] = symbols_[symbol.getPosition()];
    if (definition)
      return index_[expr] = emitDefinition(definition);
    node = plan::ExprNode(plan_symbol, 0, 0, plan::ExprOp::symbol);
  } else {
    auto binary = cast<AffineBinaryOpExpr>(expr);
    uint32_t lhs = emit(binary.getLHS()), rhs = emit(binary.getRHS());
    plan::ExprOp op;
    switch (expr.getKind()) {
    case AffineExprKind::Add: op = plan::ExprOp::add; break;
    case AffineExprKind::Mul: op = plan::ExprOp::mul; break;
    case AffineExprKind::Mod: op = plan::ExprOp::mod; break;
    case AffineExprKind::FloorDiv: op = plan::ExprOp::floordiv; break;
    case AffineExprKind::CeilDiv: op = plan::ExprOp::ceildiv; break;
    default: llvm_unreachable("not a binary affine expression");
    }
    node = plan::ExprNode(0, lhs, rhs, op);
  }
  nodes_.push_back(node);
  index_[expr] = nodes_.size() - 1;
  return nodes_.size() - 1;
}

uint32_t ExprTable::emitDefinition(Attribute definition) {
  if (auto leaf = dyn_cast<AffineMapAttr>(definition))
    return add(leaf.getValue().getResult(0));
  if (auto real = dyn_cast<FloatAttr>(definition)) {
    nodes_.emplace_back(llvm::bit_cast<int64_t>(real.getValueAsDouble()), 0, 0, plan::ExprOp::real);
    return nodes_.size() - 1;
  }
  auto parts = cast<ArrayAttr>(definition);
  StringRef name = cast<StringAttr>(parts[0]).getValue();
  uint32_t lhs = emitDefinition(parts[1]), rhs = parts.size() > 2 ? emitDefinition(parts[2]) : lhs;
  for (plan::ExprOp op : plan::EnumValuesExprOp())
    if (name == plan::EnumNameExprOp(op))
      nodes_.emplace_back(0, lhs, rhs, op);
  return nodes_.size() - 1;
}

}  // namespace zefuse
