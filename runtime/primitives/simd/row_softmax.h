// Softmax of rows in the cache, without the division: attention divides its shorter result instead.
#pragma once

#include <cstdint>

namespace zefuse::primitives {

struct RowSum {
  float maximum, sum;
};

// row[i] = exp(row[i] - maximum), and their sum. exp is a polynomial (Cephes' expf, 2 ulp), the same bits at each
// width. NaN anywhere makes the sum NaN. Of nothing but -infinity they are zeros, as is the sum.
RowSum exponentials(float* row, int64_t count);

// What a row's sum of products is divided by: not by a sum that is zero, whose products are.
inline float divisorOf(float sum) { return sum == 0 ? 1 : sum; }

// scores[i] = exp(scores[i] - log_sum), the weights, and gradient[i] = weight * (gradient[i] - row_sum): from the
// weights' gradient the scores'. Zeros where the sum is of nothing, with a logarithm of -infinity.
void softmaxGradient(float* scores, float* gradient, int64_t count, float log_sum, float row_sum);

}  // namespace zefuse::primitives
