// Sums of sizes and indices in one form.
#pragma once

#include "mlir/IR/AffineExpr.h"

namespace zefuse {

// What MLIR's simplifyAffineExpr gives, also where the expression divides by a symbol or multiplies what is no
// constant. There MLIR's own, without assertions, takes two terms of the same operands for one: d0 mod s0 * 30 + d0
// floordiv s0 * 15 became d0 mod s0 * 60.
mlir::AffineExpr simplifyAffine(mlir::AffineExpr expr, unsigned num_dims, unsigned num_symbols);

// The quotient of a sum whose addends all have the divisor's factors: of s0 * s1 * s0 + s0 by s0, s1 * s0 + 1. Null
// where one has not. Of a divisor that may be 0 as well: nothing is divided by it then that anybody reads.
mlir::AffineExpr exactQuotient(mlir::AffineExpr expr, mlir::AffineExpr divisor);

// Whether the number divides the expression for certain. MLIR's AffineExpr::isMultipleOf takes (s0 * 2) floordiv 2 for
// even, since 2 divides both operands.
bool isMultipleOf(mlir::AffineExpr expr, int64_t number);

}  // namespace zefuse
