// What operations cost per element, in units of a simple vector operation.
#pragma once

#include "lowering/analysis/domain.h"
#include "mlir/IR/Operation.h"
#include "mlir/IR/Value.h"

namespace zefuse {

constexpr double assumed_symbol = 256;  // a symbolic size's value in the cost models

// With symbols counted so.
double estimated(const IndexSpace& space, mlir::AffineExpr size);

double opCost(mlir::Operation* op);

// Of a tensor's element from its operands'.
double costOf(mlir::Value tensor);

// Computing an element again costs more than storing and loading it.
bool isExpensive(mlir::Value tensor);

// Of a row (pointwise: of an element): 4 bytes count like one vector-lane operation.
double unitCost(Domain& domain, const KernelGraph& graph);

}  // namespace zefuse
