#include "runtime/onednn/row_softmax.h"

#include <bit>

namespace zefuse::onednn {

namespace {

constexpr int64_t lanes = 16;  // accumulators, so that the order of additions is the same on every host

typedef float Vector __attribute__((vector_size(lanes * sizeof(float)), aligned(4)));
typedef int32_t Integers __attribute__((vector_size(lanes * sizeof(int32_t)), aligned(4)));

// Vectors are passed by reference: clones for smaller processors pass them in other registers.
[[gnu::always_inline]] inline void exponential(Vector& x) {
  const Vector lowest = x * 0 - 87.33654f;
  x = x < lowest ? lowest : x;              // NaN stays
  const Vector magic = x * 0 + 12582912.f;  // 1.5 * 2^23: adding it rounds to an integer
  const Vector shifted = x * 1.44269504f + magic;
  const Vector whole = shifted - magic;
  const Vector r = x - whole * 0.693359375f + whole * 2.12194440e-4f;
  Vector p = r * 1.9875691500e-4f + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.f;
  const Integers power = (std::bit_cast<Integers>(shifted) - std::bit_cast<Integers>(magic) + 127) << 23;
  x = p * std::bit_cast<Vector>(power);
}

}  // namespace

[[gnu::target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")]] float exponentials(float* row, int64_t count) {
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

  Vector sums = most * 0;
  for (int64_t lane = 0; lane < lanes; ++lane)
    sums[lane] = 0;
  for (int64_t i = 0; i < full; i += lanes) {
    Vector x = *reinterpret_cast<const Vector*>(row + i) - maximum;
    exponential(x);
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
    exponential(x);
    for (int64_t i = full; i < count; ++i) {
      row[i] = x[i - full];
      total += x[i - full];
    }
  }
  return total;
}

}  // namespace zefuse::onednn
