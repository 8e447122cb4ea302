// Softmax of rows in the cache, without the division: attention divides its shorter result instead.
#pragma once

#include <cstdint>

namespace zefuse::onednn {

// row[i] = exp(row[i] - max); returns the sum. exp is a polynomial (Cephes' expf, 2 ulp), the same bits at each width.
// NaN anywhere makes the sum NaN.
float exponentials(float* row, int64_t count);

}  // namespace zefuse::onednn
