// The product that matmul.cpp and attention.cpp share.
#pragma once

#include "compiler/import/op.h"

namespace zefuse {

// alpha * a @ b + bias; equal ranks of at least 2. Refuses dtypes that no target multiplies; what some do (f16, f64,
// integers: a GPU's kernels, or the CPU's own for what oneDNN does not take) is else a fallback. `result`: the result's
// element type, a's own when null (f32 keeps what bf16 operands' sums would lose). `bf16_math`: operands of f32 may be
// rounded to bf16.
mlir::Value emitMatmul(Op& op, mlir::Value a, mlir::Value b, mlir::Value bias, double alpha, mlir::Type result = {},
                       bool bf16_math = false);

// Refuses types that only kernels of the CPU's own multiply.
void wantLibraryType(Op& op, mlir::Type element);

}  // namespace zefuse
