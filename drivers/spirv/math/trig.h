// sin and cos in f32. The argument is reduced in f64: exact enough up to 2^28; beyond, lane by lane through libm.
#pragma once

#include "drivers/spirv/math/vec.h"

extern "C" float sinf(float);
extern "C" float cosf(float);

namespace zf {

template <typename V> struct Quadrant {
  V r;
  Int<V> n;
};

template <typename V> ZF_INLINE Quadrant<V> reduceByHalfPi(V x) {
  using D = Vec<double, lanes<V>>;
  D d;
  if constexpr (lanes<V> == 1)
    d = x;
  else
    d = __builtin_convertvector(x, D);
  D n = __builtin_elementwise_roundeven(d * D(0x1.45f306dc9c883p-1));
  D r = __builtin_elementwise_fma(n, D(-0x1.921fb54442d18p+0), d);
  r = __builtin_elementwise_fma(n, D(-0x1.1a62633145c07p-54), r);
  if constexpr (lanes<V> == 1)
    return {static_cast<float>(r), static_cast<int32_t>(n)};
  else
    return {__builtin_convertvector(r, V), __builtin_convertvector(n, Int<V>)};
}

// The sine of n quarter turns and r: a cosine for odd n, negative in the third and fourth quadrant.
template <typename V> ZF_INLINE V sinQuadrant(V r, Int<V> n) {
  V s = r * r;
  V sine = fma(poly(s, 0x1.6cd35ep-19f, -0x1.a00f88p-13f, 0x1.111108p-7f, -0x1.555556p-3f), s * r, r);
  V cosine = fma(poly(s, -0x1.241ab6p-22f, 0x1.a010ccp-16f, -0x1.6c16b8p-10f, 0x1.555556p-5f), s * s,
                 fma(s, c<V>(-0.5f), c<V>(1.0f)));
  V v = (n & 1) != 0 ? cosine : sine;
  return fromBits<V>(bits(v) ^ ((n & 2) << 30));
}

template <float (*libm)(float), typename V> ZF_INLINE V largeArguments(V x, V result) {
  constexpr float kLimit = 0x1p28f;
  if constexpr (lanes<V> == 1) {
    if (__builtin_expect(!(__builtin_fabsf(x) < kLimit), 0))
      return libm(x);
    return result;
  } else {
    auto large = !(abs(x) < c<V>(kLimit));
    if (__builtin_expect(__builtin_reduce_or(large) != 0, 0))
      for (int i = 0; i < lanes<V>; ++i)
        if (large[i])
          result[i] = libm(x[i]);
    return result;
  }
}

template <typename V> ZF_INLINE V sin(V x) {
  V y = abs(x) < c<V>(0x1p28f) ? x : c<V>(0.0f);
  auto [r, n] = reduceByHalfPi(y);
  V v = sinQuadrant(r, n);
  return largeArguments<sinf>(x, x == c<V>(0.0f) ? x : v);
}
template <typename V> ZF_INLINE V cos(V x) {
  V y = abs(x) < c<V>(0x1p28f) ? x : c<V>(0.0f);
  auto [r, n] = reduceByHalfPi(y);
  return largeArguments<cosf>(x, sinQuadrant(r, n + 1));
}

}  // namespace zf
