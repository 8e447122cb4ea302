// Expressions as polynomials over dimensions, symbols and quotients. AffineExprs have no one form for them: (s0 * s2) *
// s1 and (s0 * s1) * s2 are different pointers, and so are (d0 + 1) * s0 and d0 * s0 + s0.
#pragma once

#include <map>
#include <vector>

#include "mlir/IR/AffineExpr.h"
#include "llvm/ADT/ArrayRef.h"

namespace zefuse {

// What is neither sum nor product is a factor. In an order by structure, the same in every process.
using Factors = std::vector<mlir::AffineExpr>;

struct FactorsLess {
  bool operator()(const Factors& a, const Factors& b) const;
};

using Polynomial = std::map<Factors, int64_t, FactorsLess>;  // coefficients, none of them 0

// Divisions are factors as they are.
Polynomial polynomialOf(mlir::AffineExpr expr);

// Quotients are in one form as well, rests are sums with them: of d0 floordiv s0 * s0 + d0 mod s0, d0. Divisors are
// sizes: of one that is 0 nobody reads the quotient. `sizes`: of the dimensions, where they are known; a quotient of
// what is less than the divisor is left out.
Polynomial normalPolynomialOf(mlir::AffineExpr expr, llvm::ArrayRef<mlir::AffineExpr> sizes = {});

mlir::AffineExpr expressionOf(const Polynomial& polynomial, mlir::MLIRContext* context);

// Whether it has a quotient or a rest in it.
bool hasDivision(mlir::AffineExpr expr);

// Whether it is positive or 0 for all dimensions and symbols, which are never negative, as far as its coefficients
// tell.
bool isNeverNegative(const Polynomial& polynomial);

}  // namespace zefuse
