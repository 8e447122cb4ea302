// Checks and canonical forms of a MatmulDesc: what reaches oneDNN has few dimensions, none of them
// pointless.
#pragma once

#include <string>

#include "runtime/primitives/matmul/matmul.h"

namespace zefuse::primitives {

// invalid_argument: shapes do not fit; unsupported: dtype or rank. Names the operand.
Status checkDescriptor(const MatmulDesc& desc);

// The same product with batch dimensions merged wherever every operand's strides allow it, and with
// M where b is the same for all of them ([B, S, K] x [1, K, N] becomes [B*S, K] x [K, N]: oneDNN's
// 2-D path is the fast one). In the result every operand has rank out.rank, broadcast dimensions
// have size 1, and dimensions of size 1 have the stride a dense tensor would give them. Matrix
// dimensions keep strides of 0.
MatmulDesc canonical(const MatmulDesc& desc);

// "matmul f32[2,3] strides [3,1] x f32[3,4] strides [4,1] -> f32[2,4] strides [4,1]"
std::string toString(const MatmulDesc& desc);

}  // namespace zefuse::primitives
