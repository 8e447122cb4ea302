// Functions of vectors that are the same on every host: polynomials, no tables, no library.
//
// Vectors are passed by reference and everything is inlined: a caller compiled for a larger processor passes them in
// other registers than a function of its own would.
#pragma once

#include <cstdint>

namespace zefuse::onednn {

template <int lanes> struct VectorOf {
  typedef float Float __attribute__((vector_size(lanes * sizeof(float)), aligned(4)));
  typedef int32_t Int __attribute__((vector_size(lanes * sizeof(int32_t)), aligned(4)));
};

// e^x, within 2 ulp; below -87.3 as of -87.3. NaN stays.
template <int lanes> [[gnu::always_inline]] inline void exponential(typename VectorOf<lanes>::Float& x) {
  using Float = typename VectorOf<lanes>::Float;
  using Int = typename VectorOf<lanes>::Int;
  const Float lowest = Float{} - 87.33654f;
  x = x < lowest ? lowest : x;               // NaN stays
  const Float magic = Float{} + 12582912.f;  // 1.5 * 2^23: adding it rounds to an integer
  const Float shifted = x * 1.44269504f + magic;
  const Float whole = shifted - magic;
  const Float r = x - whole * 0.693359375f + whole * 2.12194440e-4f;
  Float p = r * 1.9875691500e-4f + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.f;
  const Int power = ((Int)shifted - (Int)magic + 127) << 23;  // casts of vectors keep the bits
  x = p * (Float)power;
}

// 1 / (1 + e^-x), within 3 ulp where the result is a normal number.
template <int lanes> [[gnu::always_inline]] inline void sigmoid(typename VectorOf<lanes>::Float& x) {
  using Float = typename VectorOf<lanes>::Float;
  const Float most = Float{} + 87.f;
  Float e = -x;
  e = e > most ? most : e;
  exponential<lanes>(e);
  x = 1.f / (1.f + e);
}

// Within 3 ulp: near zero a polynomial, where the quotient of exponentials would cancel.
template <int lanes> [[gnu::always_inline]] inline void hyperbolicTangent(typename VectorOf<lanes>::Float& x) {
  using Float = typename VectorOf<lanes>::Float;
  const Float limit = Float{} + 9.5f;  // from here on the result rounds to one
  Float magnitude = x < 0.f ? -x : x;
  const Float square = x * x;
  Float small = square * -5.70498872745e-3f + 2.06390887954e-2f;
  small = small * square - 5.37397155531e-2f;
  small = small * square + 1.33314422036e-1f;
  small = small * square - 3.33332819422e-1f;
  small = small * square * x + x;
  Float e = magnitude > limit ? limit : magnitude;
  e = e + e;
  exponential<lanes>(e);
  Float large = 1.f - 2.f / (e + 1.f);
  large = x < 0.f ? -large : large;
  const Float near = Float{} + 0.625f;
  x = magnitude < near ? small : large;  // NaN: large, which is NaN
}

}  // namespace zefuse::onednn
