// exp, log and their kin in f32, without calls or branches. Coefficients: minimax fits (Remez) of the remainders named
// beside them; errors in ulp are measured by tests/unit/codegen/math_test.cpp.
#pragma once

#include "drivers/spirv/math/vec.h"

namespace zf {

// A whole number as a float and as an integer.
template <typename V> struct Rounded {
  V value;
  Int<V> integer;
};

// How to divide, and to multiply by 2^n: with integer instructions anywhere, by vscalefps on AVX-512 (16 lanes). The
// bits are the same: both round once.
struct Portable {
  template <typename V> ZF_INLINE V divide(V a, V b) { return a / b; }
  // 2^n for n in [-126, 127].
  template <typename V> ZF_INLINE V pow2(Rounded<V> n) { return fromBits<V>((n.integer + 127) << 23); }
  // p * 2^n for n in [-252, 254], rounded once where the result is subnormal.
  template <typename V> ZF_INLINE V scale(V p, Rounded<V> n) {
    Int<V> half = n.integer >> 1;
    return p * fromBits<V>((half + 127) << 23) * fromBits<V>((n.integer - half + 127) << 23);
  }
};
#ifdef __x86_64__
struct Avx512 {
  template <typename V> ZF_INLINE V divide(V a, V b) { return a / b; }
  template <typename V> ZF_INLINE V scale(V p, Rounded<V> n) {
    constexpr int kCurrentRounding = 4;
    typedef float Native __attribute__((vector_size(64)));
    return __builtin_bit_cast(V, __builtin_ia32_scalefps512_mask(__builtin_bit_cast(Native, p),
                                                                 __builtin_bit_cast(Native, n.value), Native{}, 0xffff,
                                                                 kCurrentRounding));
  }
  template <typename V> ZF_INLINE V pow2(Rounded<V> n) { return scale(V(1.0f), n); }
};
#endif

// e^r - 1 - r = r^2 * P(r) on |r| <= ln(2)/2
template <typename V> ZF_INLINE V expTail(V r) {
  return poly(r, 0x1.6a2256p-10f, 0x1.123b02p-7f, 0x1.5558f8p-5f, 0x1.55549p-3f, 0x1.fffffcp-2f);
}

// Rounds to the nearest integer by adding 1.5 * 2^23: the integer stands in the low bits. |x| < 2^22. For a NaN the
// integer is arbitrary, and whatever it scales is a NaN already.
template <typename V> ZF_INLINE Rounded<V> roundProduct(V x, float factor) {
  V t = fma(x, c<V>(factor), c<V>(0x1.8p23f));
  return {t - c<V>(0x1.8p23f), bits(t) - 0x4b400000};
}

template <typename V> struct Reduced {
  Rounded<V> n;
  V r;
};
// x = n ln 2 + r
template <typename V> ZF_INLINE Reduced<V> reduceByLn2(V x) {
  Rounded<V> n = roundProduct(x, 0x1.715476p+0f);
  V r = fma(n.value, c<V>(-0x1.62e400p-1f), x);
  return {n, fma(n.value, c<V>(-0x1.7f7d1cp-20f), r)};
}

// p, or zero where x is below `least`, from where on p * 2^n rounds to zero. An Intel processor is slow
// to find that out (a softmax's masked elements: a bf16 prompt took nearly twice as long), not for a zero. A NaN stays.
template <typename V> ZF_INLINE V zeroBelow(float least, V x, V p) { return x < c<V>(least) ? c<V>(0.0f) : p; }

template <typename Isa = Portable, typename V> ZF_INLINE V exp(V x) {
  auto [n, r] = reduceByLn2(clampHigh(c<V>(89.0f), clampLow(c<V>(-104.5f), x)));
  return Isa::scale(zeroBelow(-104.0f, x, fma(expTail(r), r * r, r) + c<V>(1.0f)), n);
}

template <typename Isa = Portable, typename V> ZF_INLINE V exp2(V x) {
  V y = clampHigh(c<V>(129.0f), clampLow(c<V>(-151.0f), x));
  Rounded<V> n = roundProduct(y, 1.0f);
  V r = y - n.value;
  V p = fma(poly(r, 0x1.41fbbcp-13f, 0x1.5f3e52p-10f, 0x1.3b2d4cp-7f, 0x1.c6aee8p-5f, 0x1.ebfbdcp-3f, 0x1.62e43p-1f), r,
            c<V>(1.0f));
  return Isa::scale(zeroBelow(-150.0f, x, p), n);
}

template <typename Isa = Portable, typename V> ZF_INLINE V exp10(V x) {
  V y = clampHigh(c<V>(39.0f), clampLow(c<V>(-46.0f), x));
  Rounded<V> n = roundProduct(y, 0x1.a934f0p+1f);
  V r = fma(n.value, c<V>(-0x1.344000p-2f), y);  // log10(2) in two parts, the first short: the product is exact
  r = fma(n.value, c<V>(-0x1.3509f8p-18f), r);
  V p = fma(poly(r, 0x1.15dafcp-4f, 0x1.a9acacp-3f, 0x1.142c04p-1f, 0x1.2bd6a6p+0f, 0x1.047058p+1f, 0x1.53524cp+1f,
                 0x1.26bb1cp+1f),
            r, c<V>(1.0f));
  return Isa::scale(zeroBelow(-45.2f, x, p), n);
}

template <typename Isa = Portable, typename V> ZF_INLINE V expm1(V x) {
  auto [n, r] = reduceByLn2(clampHigh(c<V>(89.0f), clampLow(c<V>(-17.5f), x)));
  V q = fma(expTail(r), r * r, r);
  // 2^n (q + 1) - 1, as twice its half: 2^128 does not exist
  V s = Isa::pow2(Rounded<V>{n.value - c<V>(1.0f), n.integer - 1});
  V half = fma(q, s, s - c<V>(0.5f));
  return copysign(half + half, x);
}

// x = 2^k * (1 + f), 1 + f in [sqrt(1/2), sqrt(2)); x positive and normal.
template <typename V> struct LogParts {
  V k, f;
};
template <typename V> ZF_INLINE LogParts<V> logParts(V x) {
  Int<V> i = bits(x) - 0x3f3504f3;
  Int<V> k = i >> 23;
  V m = fromBits<V>((i & 0x7fffff) + 0x3f3504f3);
  return {toFloat<V>(k), m - c<V>(1.0f)};
}
// The same for any positive x; subnormals are scaled first.
template <typename V> ZF_INLINE LogParts<V> logPartsAny(V x) {
  auto small = x < c<V>(0x1p-126f);
  LogParts<V> p = logParts(small ? x * c<V>(0x1p23f) : x);
  p.k = small ? p.k - c<V>(23.0f) : p.k;
  return p;
}
// log(1 + f) - f = -f^2/2 + f^3 P(f)
template <typename V> ZF_INLINE V logTail(V f) {
  V p = poly(f, 0x1.145796p-4f, -0x1.de3c04p-4f, 0x1.e6f06ap-4f, -0x1.fc220ap-4f, 0x1.233768p-3f, -0x1.555c4ep-3f,
             0x1.99a4b6p-3f, -0x1.000006p-2f, 0x1.555548p-2f);
  V f2 = f * f;
  return fma(f2 * f, p, f2 * c<V>(-0.5f));
}
// log of zero, negative, infinite and NaN arguments.
template <typename V> ZF_INLINE V logSpecial(V x, V result) {
  result = x == c<V>(0.0f) ? c<V>(-__builtin_inff()) : result;
  result = x < c<V>(0.0f) ? c<V>(__builtin_nanf("")) : result;
  return x < c<V>(__builtin_inff()) ? result : x;  // infinity and NaN
}

template <typename V> ZF_INLINE V log(V x) {
  auto [k, f] = logPartsAny(x);
  V tail = fma(k, c<V>(0x1.7f7d1cp-20f), logTail(f));
  return logSpecial(x, fma(k, c<V>(0x1.62e400p-1f), f + tail));
}

template <typename V> ZF_INLINE V log2(V x) {
  auto [k, f] = logPartsAny(x);
  V t = logTail(f);
  // (f + t) * log2(e) with log2(e) = 1 + 0.4427: f and k keep all their bits to the last addition
  V s = fma(f, c<V>(0x1.c551d9p-2f), fma(t, c<V>(0x1.c551d9p-2f), t));
  return logSpecial(x, k + (f + s));
}

template <typename V> ZF_INLINE V log10(V x) {
  auto [k, f] = logPartsAny(x);
  V t = logTail(f);
  // log10(e) in two parts, the first short
  V s = fma(k, c<V>(0x1.3509f8p-18f), fma(f, c<V>(0x1.6f62a4p-11f), t * c<V>(0x1.bcb7b2p-2f)));
  s = fma(f, c<V>(0x1.bc0000p-2f), s);
  return logSpecial(x, fma(k, c<V>(0x1.344000p-2f), s));
}

template <typename V> ZF_INLINE V log1p(V x) {
  V u = c<V>(1.0f) + x;
  auto [k, f0] = logParts(u);
  // What rounding 1 + x lost, in units of u's significand.
  V lost = x > c<V>(1.0f) ? c<V>(1.0f) - (u - x) : x - (u - c<V>(1.0f));
  V e = clampHigh(c<V>(126.0f), k);
  V correction = lost * Portable::pow2(Rounded<V>{-e, -toInt(e)}) * (c<V>(1.0f) - f0);
  auto plain = k == c<V>(0.0f);
  V f = plain ? x : f0;
  V tail = logTail(f) + (plain ? c<V>(0.0f) : correction);
  tail = fma(k, c<V>(0x1.7f7d1cp-20f), tail);
  V r = fma(k, c<V>(0x1.62e400p-1f), f + tail);
  r = x == c<V>(-1.0f) ? c<V>(-__builtin_inff()) : r;
  r = x < c<V>(-1.0f) ? c<V>(__builtin_nanf("")) : copysign(r, x);
  return x < c<V>(__builtin_inff()) ? r : x;
}

}  // namespace zf
