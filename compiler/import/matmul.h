// The product that matmul.cpp and attention.cpp share.
#pragma once

#include "compiler/import/op.h"

namespace zefuse {

// alpha * a @ b + bias; equal ranks of at least 2. Refuses dtypes that neither oneDNN multiplies on every CPU we
// support nor the GPU's kernels do; f16, which only those do, is else a fallback. `result`: the result's element type,
// a's own when null (f32 keeps what bf16 operands' sums would lose).
mlir::Value emitMatmul(Op& op, mlir::Value a, mlir::Value b, mlir::Value bias, double alpha, mlir::Type result = {});

}  // namespace zefuse
