// Random numbers as a function of a seed and of the number of the element (zefuse.decompositions.random_numbers).
#pragma once

#include "compiler/builder/tensor_builder.h"

namespace zefuse {

// In [0, 1), a multiple of 2^-24: what zefuse_random.uniform has at the element of `result` that the body is at.
Scalar uniformAt(Body& body, mlir::RankedTensorType result, Scalar seed);

}  // namespace zefuse
