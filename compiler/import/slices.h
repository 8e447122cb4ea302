// Products (matrix products, convolutions) of few results and a long sum on a GPU: cut along the sum.
#pragma once

#include "compiler/import/tensor_builder.h"

namespace zefuse {

// Adds partial results along their first dimension, which fusion joins with what comes after, then `bias` (of the
// sum's sizes; null: none), and rounds to `element`. Says at the product what was done.
mlir::Value sumOfSlices(TensorBuilder& build, mlir::Value partial, mlir::Value bias, mlir::Type element);

}  // namespace zefuse
