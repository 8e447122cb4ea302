// tanh and erf in f32, without calls or branches.
#pragma once

#include "drivers/spirv/math/exp_log.h"

namespace zf {

// With E = e^(-2|x|): tanh|x| = (1 - E) / (1 + E), or 1 - 2E / (1 + E) where that cancels less. One division.
template <typename Isa = Portable, typename V> ZF_INLINE V tanh(V x) {
  V a = abs(x);
  auto [n, r] = reduceByLn2(clampHigh(c<V>(10.0f), a) * c<V>(-2.0f));
  V q = fma(expTail(r), r * r, r);
  V s = Isa::pow2(n);
  V e = fma(q, s, s);
  auto large = a > c<V>(0.6f);
  V d = Isa::divide(large ? e + e : fma(-q, s, c<V>(1.0f) - s), fma(q, s, c<V>(1.0f) + s));
  return copysign(large ? c<V>(1.0f) - d : d, x);
}

// |x| < 0.93: x + x P(x^2). Above: 1 - exp(a Q(a) - a), a = |x|, where Q fits (log(erfc(a)) + a) / a.
template <typename Isa = Portable, typename V> ZF_INLINE V erf(V x) {
  V a = abs(x);
  V s = x * x;
  V small = fma(poly(s, 0x1.5cd4b2p-14f, -0x1.aa3f3p-11f, 0x1.54c7f6p-8f, -0x1.b80e9p-6f, 0x1.ce2e0ap-4f,
                     -0x1.812742p-2f, 0x1.06eba8p-3f),
                x, x);
  V b = clampHigh(c<V>(4.0f), a);
  V q = poly(b, -0x1.78dc38p-17f, 0x1.527c04p-12f, -0x1.dd6ca8p-9f, 0x1.855152p-6f, -0x1.b32572p-4f, -0x1.45328ep-1f,
             -0x1.0778dcp-3f);
  V e = fma(q, b, -b);  // in [-18, -0.9]
  auto [n, r] = reduceByLn2(e);
  V tail = Isa::scale(fma(expTail(r), r * r, r) + c<V>(1.0f), n);
  V large = copysign(c<V>(1.0f) - tail, x);
  return a < c<V>(0.93f) ? small : large;
}

}  // namespace zf
