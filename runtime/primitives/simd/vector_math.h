// Functions of vectors that are the same on every host: polynomials, no tables, no library.
//
// Vectors are passed by reference and everything is inlined: a caller compiled for a larger processor passes them in
// other registers than a function of its own would.
#pragma once

#include <cstdint>

namespace zefuse::primitives {

template <int lanes> struct VectorOf {
  typedef float Float __attribute__((vector_size(lanes * sizeof(float)), aligned(4)));
  typedef int32_t Int __attribute__((vector_size(lanes * sizeof(int32_t)), aligned(4)));
};

// x becomes e^r - 1 and `power` 2^n, where x is n log(2) + r and r is small. From -87.33 to 88: no more fits in a
// power.
template <int lanes>
[[gnu::always_inline]] inline void splitExponential(typename VectorOf<lanes>::Float& x,
                                                    typename VectorOf<lanes>::Float& power) {
  using Float = typename VectorOf<lanes>::Float;
  using Int = typename VectorOf<lanes>::Int;
  const Float magic = Float{} + 12582912.f;  // 1.5 * 2^23: adding it rounds to an integer
  const Float shifted = x * 1.44269504f + magic;
  const Float whole = shifted - magic;
  const Float r = x - whole * 0.693359375f + whole * 2.12194440e-4f;
  Float p = r * 1.9875691500e-4f + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  x = p * r * r + r;
  power = (Float)(((Int)shifted - (Int)magic + 127) << 23);  // casts of vectors keep the bits
}

// e^x, within 2 ulp; below -87.3 as of -87.3. NaN stays.
template <int lanes> [[gnu::always_inline]] inline void exponential(typename VectorOf<lanes>::Float& x) {
  using Float = typename VectorOf<lanes>::Float;
  const Float lowest = Float{} - 87.33654f;
  Float power;
  x = x < lowest ? lowest : x;  // NaN stays
  splitExponential<lanes>(x, power);
  x = (x + 1.f) * power;
}

// 2^x, within 2 ulp, of what is not above 1; below -126 as of -126. NaN stays. Coefficients: Cephes' exp2f.
template <int lanes> [[gnu::always_inline]] inline void powerOfTwo(typename VectorOf<lanes>::Float& x) {
  using Float = typename VectorOf<lanes>::Float;
  using Int = typename VectorOf<lanes>::Int;
  const Float magic = Float{} + 12582912.f, lowest = Float{} - 126.f;
  x = x < lowest ? lowest : x;  // NaN stays
  const Float shifted = x + magic;
  const Float r = x - (shifted - magic);
  Float p = r * 1.535336188319500e-4f + 1.339887440266574e-3f;
  p = p * r + 9.618437357674640e-3f;
  p = p * r + 5.550332471162809e-2f;
  p = p * r + 2.402264791363012e-1f;
  p = p * r + 6.931472028550421e-1f;
  p = p * r + 1.f;
  x = p * (Float)(((Int)shifted - (Int)magic + 127) << 23);
}

// 1 / (1 + e^-x), within 3 ulp where the result is a normal number. 0 where e^-x is beyond f32, as in eager: times an
// infinity that is NaN.
template <int lanes> [[gnu::always_inline]] inline void sigmoid(typename VectorOf<lanes>::Float& x) {
  using Float = typename VectorOf<lanes>::Float;
  const Float most = Float{} + 87.f, none = Float{} - 88.73f, zero = Float{};
  Float e = -x;
  e = e > most ? most : e;
  exponential<lanes>(e);
  x = x < none ? zero : 1.f / (1.f + e);
}

// Within 3 ulp: (e^2x - 1) / (e^2x + 1), whose upper part is summed so that nothing cancels near zero. NaN stays.
template <int lanes> [[gnu::always_inline]] inline void hyperbolicTangent(typename VectorOf<lanes>::Float& x) {
  using Float = typename VectorOf<lanes>::Float;
  const Float limit = Float{} + 9.5f;  // from here on the result rounds to one
  Float power;
  x = x > limit ? limit : x;
  x = x < -limit ? -limit : x;
  x = x + x;
  splitExponential<lanes>(x, power);
  x = x * power + (power - 1.f);
  x = x / (x + 2.f);
}

}  // namespace zefuse::primitives
