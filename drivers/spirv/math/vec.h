// One source for scalars and vectors: templates over V = float or a vector of floats. Every operation is element by
// element and exactly rounded, so a lane's bits depend neither on its position nor on the width.
#pragma once

#include <stdint.h>  // not <cstdint>: a GPU has no C++ library

namespace zf {

template <typename T, int N> struct VecOf {
  typedef T type __attribute__((ext_vector_type(N)));
};
template <typename T> struct VecOf<T, 1> {
  using type = T;
};
template <typename T, int N> using Vec = typename VecOf<T, N>::type;

template <typename V> constexpr int lanes = sizeof(V) / sizeof(decltype(V{}[0]));
template <> inline constexpr int lanes<float> = 1;
template <> inline constexpr int lanes<double> = 1;
template <> inline constexpr int lanes<int32_t> = 1;

template <typename V> struct ElementOf {
  using type = __typeof__(V{}[0] + V{}[0]);
};
template <> struct ElementOf<float> {
  using type = float;
};
template <> struct ElementOf<double> {
  using type = double;
};
template <> struct ElementOf<int32_t> {
  using type = int32_t;
};
template <typename V> using Element = typename ElementOf<V>::type;

// The integer vector of the same shape.
template <typename V> struct IntOf {
  using type = Vec<int32_t, lanes<V>>;
};
template <typename V> using Int = typename IntOf<V>::type;

#define ZF_INLINE static inline __attribute__((always_inline))  // "static" for members and for namespace scope alike

template <typename V> ZF_INLINE V fma(V a, V b, V c) { return __builtin_elementwise_fma(a, b, c); }
template <typename V> ZF_INLINE V abs(V a) { return __builtin_elementwise_abs(a); }
template <typename V> ZF_INLINE V copysign(V a, V b) { return __builtin_elementwise_copysign(a, b); }
template <typename V> ZF_INLINE V roundEven(V a) { return __builtin_elementwise_roundeven(a); }
template <typename V> ZF_INLINE Int<V> bits(V a) { return __builtin_bit_cast(Int<V>, a); }
template <typename V> ZF_INLINE V fromBits(Int<V> a) { return __builtin_bit_cast(V, a); }
template <typename V> ZF_INLINE Int<V> toInt(V a) {
  if constexpr (lanes<V> == 1)
    return static_cast<int32_t>(a);
  else
    return __builtin_convertvector(a, Int<V>);
}
template <typename V> ZF_INLINE V toFloat(Int<V> a) {
  if constexpr (lanes<V> == 1)
    return static_cast<float>(a);
  else
    return __builtin_convertvector(a, V);
}
template <typename V> ZF_INLINE V splat(double x) { return V(static_cast<Element<V>>(x)); }
template <typename V> ZF_INLINE V c(float x) { return V(x); }

// Larger and smaller; a NaN in `x` passes through (one max or min instruction).
template <typename V> ZF_INLINE V clampLow(V low, V x) { return low > x ? low : x; }
template <typename V> ZF_INLINE V clampHigh(V high, V x) { return high < x ? high : x; }

// Polynomial, highest coefficient first.
template <typename V> ZF_INLINE V poly(V, float a) { return V(a); }
template <typename V, typename... C> ZF_INLINE V horner(V x, V acc) { return acc; }
template <typename V, typename... C> ZF_INLINE V horner(V x, V acc, float next, C... rest) {
  return horner(x, fma(acc, x, V(next)), rest...);
}
template <typename V, typename... C> ZF_INLINE V poly(V x, float first, C... rest) {
  return horner(x, V(first), rest...);
}

}  // namespace zf
