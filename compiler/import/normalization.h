#pragma once

#include "compiler/import/op.h"

namespace zefuse {

enum class Softmax : uint8_t {
  plain,
  log,
  safe  // a row of -inf gives zeros instead of NaN (attention)
};

// exp(x), where that is no normal number of f32 0. Eager's attention does so; and processors multiply such numbers in
// microcode: scores masked by -100 (Swin's windows) made the product by the values 40 times slower.
Scalar normalExp(Scalar x);

// Over one dimension, in x's dtype (f32 or f64). `power`: exp or normalExp; not for a log.
mlir::Value softmaxOver(TensorBuilder& build, mlir::Value x, int64_t dim, Softmax kind, Scalar (*power)(Scalar) = exp);

// log(sum(exp(x))) over one dimension, which is dropped; -inf for a row of -inf.
mlir::Value logSumExpOver(TensorBuilder& build, mlir::Value x, int64_t dim, Scalar (*power)(Scalar) = exp);

}  // namespace zefuse
