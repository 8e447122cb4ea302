#pragma once

#include "compiler/import/op.h"

namespace zefuse {

enum class Softmax : uint8_t {
  plain,
  log,
  safe  // a row of -inf gives zeros instead of NaN (attention)
};

// Over one dimension, in x's dtype (f32 or f64).
mlir::Value softmaxOver(TensorBuilder& build, mlir::Value x, int64_t dim, Softmax kind);

// log(sum(exp(x))) over one dimension, which is dropped; -inf for a row of -inf.
mlir::Value logSumExpOver(TensorBuilder& build, mlir::Value x, int64_t dim);

}  // namespace zefuse
