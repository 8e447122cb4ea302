// Affine expressions of graph symbols as the plan's expression nodes.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/plan/plan_generated.h"
#include "mlir/IR/AffineExpr.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/DenseMap.h"

namespace zefuse {

// Interns expressions: equal ones share a node, operands come before their users. Not thread-safe.
class ExprTable {
public:
  explicit ExprTable(unsigned num_symbols) : num_symbols_(num_symbols) {}

  // `expr` has no dimensions.
  uint32_t add(mlir::AffineExpr expr);
  uint32_t constant(int64_t value, mlir::MLIRContext* context);
  std::vector<uint32_t> addAll(llvm::ArrayRef<mlir::AffineExpr> exprs);
  // The larger of expr and 0.
  uint32_t addAtLeastZero(mlir::AffineExpr expr);

  const std::vector<plan::ExprNode>& nodes() const { return nodes_; }

private:
  uint32_t emit(mlir::AffineExpr expr);

  unsigned num_symbols_;
  llvm::DenseMap<mlir::AffineExpr, uint32_t> index_;
  std::vector<plan::ExprNode> nodes_;
};

}  // namespace zefuse
