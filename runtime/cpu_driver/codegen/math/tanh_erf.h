// tanh and erf in f32, without calls or branches.
#pragma once

#include "exp_log.h"

namespace zf {

// With t = e^(-2|x|) - 1 in (-1, 0]: tanh|x| = -t / (2 + t).
template <typename V> ZF_INLINE V tanh(V x) {
  V a = abs(x);
  V y = clampHigh(c<V>(10.0f), a);
  auto [n, r] = reduceByLn2(y * c<V>(-2.0f));
  V q = fma(expTail(r), r * r, r);
  V s = pow2<V>(toInt(n != n ? c<V>(0.0f) : n));
  V t = fma(q, s, s - c<V>(1.0f));
  V result = copysign(-t / (c<V>(2.0f) + t), x);
  return x != x ? x : result;
}

// |x| < 0.93: x + x P(x^2). Above: 1 - exp(a Q(a) - a), a = |x|, where Q fits (log(erfc(a)) + a) / a.
template <typename V> ZF_INLINE V erf(V x) {
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
  V p = fma(expTail(r), r * r, r) + c<V>(1.0f);
  V tail = p * pow2<V>(toInt(n != n ? c<V>(0.0f) : n));
  V large = copysign(c<V>(1.0f) - tail, x);
  V result = a < c<V>(0.93f) ? small : large;
  return x != x ? x : result;
}

}  // namespace zf
