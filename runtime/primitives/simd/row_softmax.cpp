#include "runtime/primitives/simd/row_softmax.h"

#include <algorithm>
#include <limits>

#include "runtime/primitives/simd/vector_math.h"

namespace zefuse::primitives {

namespace {

constexpr int64_t lanes = 16;  // accumulators, so that the order of additions is the same on every host

using Vector = VectorOf<lanes>::Float;

constexpr float minus_infinity = -std::numeric_limits<float>::infinity();

// Of a row in which no number is larger than -infinity.
RowSum exponentialsOfNothing(float* row, int64_t count) {
  const bool numbers = std::all_of(row, row + count, [](float x) { return x == x; });
  std::fill_n(row, count, 0.f);
  return {minus_infinity, numbers ? 0 : std::numeric_limits<float>::quiet_NaN()};
}

}  // namespace

[[gnu::target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")]] RowSum exponentials(float* row, int64_t count) {
  const int64_t full = count / lanes * lanes;
  Vector most;
  for (int64_t lane = 0; lane < lanes; ++lane)
    most[lane] = row[0];
  for (int64_t i = 0; i < full; i += lanes) {
    const Vector x = *reinterpret_cast<const Vector*>(row + i);
    most = x > most ? x : most;
  }
  float maximum = most[0];
  for (int64_t lane = 1; lane < lanes; ++lane)
    maximum = most[lane] > maximum ? most[lane] : maximum;
  for (int64_t i = full; i < count; ++i)
    maximum = row[i] > maximum ? row[i] : maximum;
  if (maximum == minus_infinity)
    return exponentialsOfNothing(row, count);

  Vector sums = most * 0;
  for (int64_t lane = 0; lane < lanes; ++lane)
    sums[lane] = 0;
  for (int64_t i = 0; i < full; i += lanes) {
    Vector x = *reinterpret_cast<const Vector*>(row + i) - maximum;
    exponential<lanes>(x);
    *reinterpret_cast<Vector*>(row + i) = x;
    sums += x;
  }
  float total = 0;
  for (int64_t lane = 0; lane < lanes; ++lane)
    total += sums[lane];
  if (full < count) {
    Vector x = sums;
    for (int64_t i = full; i < full + lanes; ++i)
      x[i - full] = i < count ? row[i] - maximum : 0;
    exponential<lanes>(x);
    for (int64_t i = full; i < count; ++i) {
      row[i] = x[i - full];
      total += x[i - full];
    }
  }
  return {maximum, total};
}

[[gnu::target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")]] void
softmaxGradient(float* scores, float* gradient, int64_t count, float log_sum, float row_sum) {
  if (log_sum == minus_infinity) {
    std::fill_n(scores, count, 0.f);
    std::fill_n(gradient, count, 0.f);
    return;
  }
  for (int64_t i = 0; i < count; i += lanes) {
    const int64_t there = std::min(lanes, count - i);
    Vector x, g;
    if (there == lanes) {
      x = *reinterpret_cast<const Vector*>(scores + i);
      g = *reinterpret_cast<const Vector*>(gradient + i);
    } else {
      x = g = Vector{};
      for (int64_t lane = 0; lane < there; ++lane) {
        x[lane] = scores[i + lane];
        g[lane] = gradient[i + lane];
      }
    }
    x -= log_sum;
    exponential<lanes>(x);
    g = x * (g - row_sum);
    if (there == lanes) {
      *reinterpret_cast<Vector*>(scores + i) = x;
      *reinterpret_cast<Vector*>(gradient + i) = g;
    } else {
      for (int64_t lane = 0; lane < there; ++lane) {
        scores[i + lane] = x[lane];
        gradient[i + lane] = g[lane];
      }
    }
  }
}

}  // namespace zefuse::primitives
