// Affine expressions of graph symbols as the plan's expression nodes.
#pragma once

#include <cstdint>
#include <vector>

#include "common/plan/plan_generated.h"
#include "mlir/IR/AffineExpr.h"
#include "mlir/IR/Attributes.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/DenseMap.h"

namespace zefuse {

// Interns expressions: equal ones share a node, operands come before their users. Not thread-safe.
class ExprTable {
public:
  explicit ExprTable(unsigned num_symbols) : num_symbols_(num_symbols), symbols_(num_symbols) {}

  // What symbol number `symbol` of the graph is: a symbol of the plan, or (docs/ir.md, zefuse.symbol_sources) an
  // expression of other symbols. For each symbol, before the first expression that uses it.
  void setSymbol(unsigned symbol, uint32_t plan_symbol) { symbols_[symbol] = {plan_symbol, {}}; }
  void setSymbol(unsigned symbol, mlir::Attribute definition) { symbols_[symbol] = {0, definition}; }

  // `expr` has no dimensions.
  uint32_t add(mlir::AffineExpr expr);
  uint32_t constant(int64_t value, mlir::MLIRContext* context);
  std::vector<uint32_t> addAll(llvm::ArrayRef<mlir::AffineExpr> exprs);
  // The larger of expr and 0.
  uint32_t addAtLeastZero(mlir::AffineExpr expr);

  const std::vector<plan::ExprNode>& nodes() const { return nodes_; }

private:
  uint32_t emit(mlir::AffineExpr expr);

  uint32_t emitDefinition(mlir::Attribute definition);

  unsigned num_symbols_;
  std::vector<std::pair<uint32_t, mlir::Attribute>> symbols_;
  llvm::DenseMap<mlir::AffineExpr, uint32_t> index_;
  std::vector<plan::ExprNode> nodes_;
};

}  // namespace zefuse
