// What must hold of a graph's sizes at each call (zefuse.size_checks, docs/ir.md).
#pragma once

#include "compiler/import/op.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/StringMap.h"

namespace zefuse {

class SizeChecks {
public:
  SizeChecks(mlir::MLIRContext& context, unsigned num_symbols) : b_(&context), num_symbols_(num_symbols) {}

  // All that an operator's lowering has asked for.
  void add(const Op& op);
  // Whether the node is a check of tracing's, about sizes and metadata: no step. One that the reader has made a number
  // of is added, the rest is known.
  bool isTracings(const fx::Node& node);
  // As an attribute of the function, where there are some.
  void attachTo(mlir::Operation* function);

private:
  // Each number once for each class of error: the first node that asks for it is the one where eager would stop.
  void add(const fx::Node& node, const Op::Requirement& required);

  mlir::Builder b_;
  unsigned num_symbols_;
  llvm::StringMap<llvm::SmallDenseSet<mlir::AffineExpr, 4>> known_;  // by class of error
  llvm::SmallVector<mlir::Attribute> checks_;
};

}  // namespace zefuse
