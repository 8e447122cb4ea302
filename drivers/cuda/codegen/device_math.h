// Double precision for a GPU that has no math library: scalar code, one to three ulp, with divisions, square roots and
// fused multiply-adds as the only operations that round. Plain C++, so that the host can check it (device_math_test).
//
// The polynomials of exp, log, sin, cos and atan are those of fdlibm: "Copyright (C) 1993 by Sun Microsystems, Inc. All
// rights reserved. Permission to use, copy, modify, and distribute this software is freely granted, provided that this
// notice is preserved."
#pragma once

namespace zf::device {

#define ZF_DEVICE static inline

using u64 = unsigned long long;
using u128 = unsigned __int128;

ZF_DEVICE u64 bitsOf(double x) { return __builtin_bit_cast(u64, x); }
ZF_DEVICE double fromBitsOf(u64 x) { return __builtin_bit_cast(double, x); }
ZF_DEVICE double fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
ZF_DEVICE double fabs(double x) { return __builtin_fabs(x); }
ZF_DEVICE double sqrt(double x) { return __builtin_sqrt(x); }
ZF_DEVICE double inf() { return __builtin_inf(); }
ZF_DEVICE double nan() { return __builtin_nan(""); }
ZF_DEVICE bool isFinite(double x) { return x - x == 0; }

template <int N> ZF_DEVICE double poly(double x, const double (&c)[N]) {  // highest coefficient first
  double acc = c[0];
#pragma unroll
  for (int i = 1; i < N; ++i)
    acc = fma(acc, x, c[i]);
  return acc;
}

// x * 2^n, rounded once.
ZF_DEVICE double ldexp(double x, int n) {
  n = n > 2200 ? 2200 : n < -2200 ? -2200 : n;
  if (n < -1022) {  // two steps down: the first stays normal, so only the last rounds
    x *= 0x1p-969;
    n += 969;
    if (n < -1022) {
      x *= 0x1p-969;
      n += 969;
    }
    if (n < -1022)
      n = -1022;
  } else if (n > 1023) {
    x *= 0x1p1023;
    n -= 1023;
    if (n > 1023) {
      x *= 0x1p1023;
      n -= 1023;
    }
    if (n > 1023)
      n = 1023;
  }
  return x * fromBitsOf(u64(1023 + n) << 52);
}

struct Split {
  double mantissa;  // [1, 2)
  int exponent;
};
// Of a finite number above zero.
ZF_DEVICE Split split(double x) {
  int e = 0;
  if (x < 0x1p-1022) {
    x *= 0x1p54;
    e = -54;
  }
  const u64 b = bitsOf(x);
  return {fromBitsOf((b & 0xfffffffffffffull) | 0x3ff0000000000000ull), e + int(b >> 52) - 1023};
}

// e^(x + low), |low| far below |x|.
ZF_DEVICE double expSum(double x, double low) {
  if (x != x)
    return x;
  if (x > 709.9)
    return inf();
  if (x < -745.2)
    return 0;
  const double n = __builtin_rint(x * 1.44269504088896338700e+00);
  const double hi = fma(n, -6.93147180369123816490e-01, x), lo = fma(n, 1.90821492927058770002e-10, -low);
  const double r = hi - lo, t = r * r;
  constexpr double p[] = {4.13813679705723846039e-08, -1.65339022054652515390e-06, 6.61375632143793436117e-05,
                          -2.77777777770155933842e-03, 1.66666666666666019037e-01};
  const double c = r - t * poly(t, p);
  return ldexp(1 - ((lo - (r * c) / (2 - c)) - hi), int(n));
}
ZF_DEVICE double exp(double x) { return expSum(x, 0); }

struct Pair {
  double hi, lo;
};
ZF_DEVICE Pair quickSum(double a, double b) {  // |a| >= |b|
  const double s = a + b;
  return {s, b - (s - a)};
}
ZF_DEVICE Pair product(double a, double b) {
  const double p = a * b;
  return {p, fma(a, b, -p)};
}

// log(x) to some 65 bits, x finite and above zero.
ZF_DEVICE Pair logPair(double x) {
  auto [m, k] = split(x);
  if (m > 1.41421356237309504880) {
    m *= 0.5;
    ++k;
  }
  const double f = m - 1, d = m + 1, dl = m - (d - 1);  // d + dl = m + 1
  double s = f / d;
  double sl = fma(-s, d, f);
  sl = fma(-s, dl, sl) / d;
  // 2 (s + s^3/3 + s^5/5 + ...), the first two terms with their low parts.
  Pair z = product(s, s);
  z.lo = fma(2 * s, sl, z.lo);
  constexpr double tail[] = {1.0 / 27, 1.0 / 25, 1.0 / 23, 1.0 / 21, 1.0 / 19, 1.0 / 17,
                             1.0 / 15, 1.0 / 13, 1.0 / 11, 1.0 / 9,  1.0 / 7,  1.0 / 5};
  const double rest = poly(z.hi, tail) * z.hi;  // of z, beside 1/3
  const double third = 0x1.5555555555555p-2, third_low = 0x1.5555555555555p-56;
  Pair c = quickSum(third, rest);
  c.lo += third_low;
  Pair t = product(z.hi, c.hi);
  t.lo += fma(z.hi, c.lo, z.lo * c.hi);
  Pair u = product(s, t.hi);
  u.lo += fma(s, t.lo, sl * t.hi);
  Pair v = quickSum(s, u.hi);
  v.lo += u.lo + sl;
  const double ln2_hi = 6.93147180369123816490e-01, ln2_lo = 1.90821492927058770002e-10;  // hi: 33 bits
  const double k_hi = k * ln2_hi;                                                         // exact
  if (k == 0)
    return quickSum(2 * v.hi, 2 * v.lo);
  Pair sum = quickSum(k_hi, 2 * v.hi);
  sum.lo += fma(double(k), ln2_lo, 2 * v.lo);
  return quickSum(sum.hi, sum.lo);
}

// What log makes of what is no finite number above zero; `x` otherwise stays to be computed.
ZF_DEVICE bool logSpecial(double x, double& result) {
  if (x > 0 && isFinite(x))
    return false;
  result = x == 0 ? -inf() : x != x || x < 0 ? nan() : x;
  return true;
}
ZF_DEVICE double log(double x) {
  double r;
  if (logSpecial(x, r))
    return r;
  auto [m, k] = split(x);
  if (m > 1.41421356237309504880) {
    m *= 0.5;
    ++k;
  }
  const double f = m - 1, s = f / (2 + f), z = s * s;
  constexpr double p[] = {1.479819860511658591e-01, 1.531383769920937332e-01, 1.818357216161805012e-01,
                          2.222219843214978396e-01, 2.857142874366239149e-01, 3.999999999940941908e-01,
                          6.666666666666735130e-01};
  const double half = 0.5 * f * f, tail = poly(z, p) * z, n = k;
  return n * 6.93147180369123816490e-01 - ((half - (s * (half + tail) + n * 1.90821492927058770002e-10)) - f);
}
ZF_DEVICE double log2(double x) {
  double r;
  if (logSpecial(x, r))
    return r;
  auto [m, k] = split(x);
  if (m > 1.41421356237309504880) {
    m *= 0.5;
    ++k;
  }
  const Pair l = logPair(m);
  const Pair p = product(l.hi, 0x1.71547652b82fep+0);
  return k + (p.hi + fma(l.hi, 0x1.777d0ffda0d24p-56, fma(l.lo, 0x1.71547652b82fep+0, p.lo)));
}
ZF_DEVICE double log10(double x) {
  double r;
  if (logSpecial(x, r))
    return r;
  const Pair l = logPair(x);
  const Pair p = product(l.hi, 0x1.bcb7b1526e50ep-2);
  return p.hi + fma(l.hi, 0x1.95355baaafad3p-57, fma(l.lo, 0x1.bcb7b1526e50ep-2, p.lo));
}
ZF_DEVICE double log1p(double x) {
  const double u = 1 + x;
  if (u == 1)
    return x;
  return isFinite(u) && u > 0 ? log(u) * (x / (u - 1)) : log(u);
}
ZF_DEVICE double expm1(double x) {
  const double u = exp(x);
  if (u == 1)
    return x;
  const double d = u - 1;
  return d == -1 || !isFinite(u) ? d : d * (x / log(u));
}
ZF_DEVICE double exp2(double x) {
  const Pair p = product(x, 0x1.62e42fefa39efp-1);
  return isFinite(p.hi) ? expSum(p.hi, fma(x, 0x1.abc9e3b39803fp-56, p.lo)) : exp(p.hi);
}
ZF_DEVICE double exp10(double x) {
  const Pair p = product(x, 0x1.26bb1bbb55516p+1);
  return isFinite(p.hi) ? expSum(p.hi, fma(x, -0x1.f48ad494ea3e9p-53, p.lo)) : exp(p.hi);
}

ZF_DEVICE bool isInteger(double y) { return __builtin_trunc(y) == y; }
ZF_DEVICE bool isOdd(double y) { return isInteger(y) && fabs(y) < 0x1p53 && (static_cast<long long>(y) & 1); }

ZF_DEVICE double pow(double x, double y) {
  if (y == 0 || x == 1)
    return 1;
  if (x != x || y != y)
    return nan();
  const double a = fabs(x);
  const bool negative = (bitsOf(x) >> 63) && isOdd(y);
  if (!isFinite(y)) {
    if (a == 1)
      return 1;
    return (a > 1) == (y > 0) ? inf() : 0;
  }
  if (a == 0 || !isFinite(a)) {
    const double r = (a == 0) == (y > 0) ? 0 : inf();
    return negative ? -r : r;
  }
  if (x < 0 && !isInteger(y))
    return nan();
  const Pair l = logPair(a);
  const Pair p = product(l.hi, y);
  const double low = fma(l.lo, y, p.lo);
  double r = !(fabs(p.hi) < 1e4) ? (p.hi > 0 ? inf() : 0) : expSum(p.hi, low);
  return negative ? -r : r;
}

struct Turn {
  double r, low;  // of [-pi/4, pi/4]
  int n;          // quarter turns, modulo 4
};

// 2/pi after 64 zero bits.
#ifdef __NVPTX__
__attribute__((address_space(4)))
#endif
static const u64 two_over_pi[] = {
    0,
    0xa2f9836e4e441529,
    0xfc2757d1f534ddc0,
    0xdb6295993c439041,
    0xfe5163abdebbc561,
    0xb7246e3a424dd2e0,
    0x06492eea09d1921c,
    0xfe1deb1cb129a73e,
    0xe88235f52ebb4484,
    0xe99c7026b45f7e41,
    0x3991d639835339f4,
    0x9c845f8bbdf9283b,
    0x1ff897ffde05980f,
    0xef2f118b5a0a6d1f,
    0x6d367ecf27cb09b7,
    0x4f463f669e5fea2d,
    0x7527bac7ebe5f17b,
    0x3d0739f78a5292ea,
    0x6bfb5fb11f8d5d08,
    0x56033046fc7b6bab,
    0xf0cfbc209af4361d,
};

// |x| >= 2^20: m 2^e times those bits of 2/pi that matter modulo 4 (Payne and Hanek).
ZF_DEVICE Turn reduceLarge(double x) {
  const u64 b = bitsOf(x);
  const int e = int((b >> 52) & 2047) - 1075;
  const u64 m = (b & 0xfffffffffffffull) | 0x10000000000000ull;
  const int first = e - 2 + 64, word = first >> 6, shift = first & 63;
  u64 w[3];
  for (int i = 0; i < 3; ++i)
    w[i] = shift == 0 ? two_over_pi[word + i]
                      : (two_over_pi[word + i] << shift) | (two_over_pi[word + i + 1] >> (64 - shift));
  // m * w modulo 2^192, which is a number of quarter turns times 2^190.
  const u128 p0 = u128(m) * w[2], p1 = u128(m) * w[1] + u64(p0 >> 64);
  const u64 high = m * w[0] + u64(p1 >> 64), middle = u64(p1);
  int n = int(high >> 62);
  // The fraction, 126 bits, as a signed number of [-1/2, 1/2).
  u128 f = ((u128(high) << 64) | middle) << 2;
  const bool above = (f >> 127) != 0;
  n += above;
  if (above)
    f = ~f + 1;
  double hi = 0, lo = 0;
  if (f != 0) {
    const u64 top = u64(f >> 64);
    const int zeros = top ? __builtin_clzll(top) : 64 + __builtin_clzll(u64(f));
    f <<= zeros;
    hi = ldexp(double(u64(f >> 75)), -53 - zeros);
    lo = ldexp(double(u64(f >> 22) & ((1ull << 53) - 1)), -106 - zeros);
  }
  const double pio2 = 0x1.921fb54442d18p+0, pio2_low = 0x1.1a62633145c07p-54;
  Pair r = product(hi, pio2);
  r.lo += fma(hi, pio2_low, lo * pio2);
  r = quickSum(r.hi, r.lo);
  const bool minus = above != (b >> 63);
  if (b >> 63)
    n = -n;
  return {minus ? -r.hi : r.hi, minus ? -r.lo : r.lo, n & 3};
}
ZF_DEVICE Turn reduce(double x) {
  if (!(fabs(x) < 0x1p20))
    return reduceLarge(x);
  const double n = __builtin_rint(x * 0x1.45f306dc9c883p-1);
  const double a = fma(n, -0x1.921fb54442d18p+0, x);
  Pair p = product(n, -0x1.1a62633145c07p-54);
  Pair s = {a + p.hi, 0};
  const double t = s.hi - a;
  s.lo = (a - (s.hi - t)) + (p.hi - t);  // the sum of any two numbers
  s.lo += fma(n, 0x1.f1976b7ed8fbcp-110, p.lo);
  return {s.hi + s.lo, s.lo - ((s.hi + s.lo) - s.hi), int(static_cast<long long>(n) & 3)};
}
ZF_DEVICE double sinKernel(double r, double low) {
  constexpr double p[] = {1.58969099521155010221e-10, -2.50507602534068634195e-08, 2.75573137070700676789e-06,
                          -1.98412698298579493134e-04, 8.33333333332248946124e-03};
  const double z = r * r, v = z * r;
  return r - ((z * (0.5 * low - v * poly(z, p)) - low) - v * -1.66666666666666324348e-01);
}
ZF_DEVICE double cosKernel(double r, double low) {
  constexpr double p[] = {-1.13596475577881948265e-11, 2.08757232129817482790e-09,  -2.75573143513906633035e-07,
                          2.48015872894767294178e-05,  -1.38888888888741095749e-03, 4.16666666666666019037e-02};
  const double z = r * r, half = 0.5 * z, w = 1 - half;
  return w + (((1 - w) - half) + (z * (z * poly(z, p)) - r * low));
}
ZF_DEVICE double sinQuarter(const Turn& t, int add) {
  const int n = (t.n + add) & 3;
  const double v = n & 1 ? cosKernel(t.r, t.low) : sinKernel(t.r, t.low);
  return n & 2 ? -v : v;
}
ZF_DEVICE double sin(double x) { return !isFinite(x) ? nan() : x == 0 ? x : sinQuarter(reduce(x), 0); }
ZF_DEVICE double cos(double x) { return !isFinite(x) ? nan() : sinQuarter(reduce(x), 1); }
ZF_DEVICE double tan(double x) {
  if (!isFinite(x))
    return nan();
  if (x == 0)
    return x;
  const Turn t = reduce(x);
  const double s = sinKernel(t.r, t.low), c = cosKernel(t.r, t.low);
  return t.n & 1 ? -c / s : s / c;
}

ZF_DEVICE double atan(double x) {
  if (x != x)
    return x;
  const double a = fabs(x);
  double t = a, hi = 0, lo = 0;
  if (a >= 2.4375) {
    t = -1 / a;
    hi = 1.57079632679489655800e+00;
    lo = 6.12323399573676603587e-17;
  } else if (a >= 1.1875) {
    t = (a - 1.5) / (1 + 1.5 * a);
    hi = 9.82793723247329054082e-01;
    lo = 1.39033110312309984516e-17;
  } else if (a >= 0.6875) {
    t = (a - 1) / (a + 1);
    hi = 7.85398163397448278999e-01;
    lo = 3.06161699786838301793e-17;
  } else if (a >= 0.4375) {
    t = (2 * a - 1) / (2 + a);
    hi = 4.63647609000806093515e-01;
    lo = 2.26987774529616870924e-17;
  }
  constexpr double p[] = {1.62858201153657823623e-02,  -3.65315727442169155270e-02, 4.97687799461593236017e-02,
                          -5.83357013379057348645e-02, 6.66107313738753120669e-02,  -7.69187620504482999495e-02,
                          9.09088713343650656196e-02,  -1.11111104054623557880e-01, 1.42857142725034663711e-01,
                          -1.99999999998764832476e-01, 3.33333333333329318027e-01};
  const double z = t * t;
  const double r = hi - ((t * (z * poly(z, p)) - lo) - t);
  return __builtin_copysign(r, x);
}
ZF_DEVICE double atan2(double y, double x) {
  if (x != x || y != y)
    return nan();
  const double pi = 0x1.921fb54442d18p+1, pi_low = 0x1.1a62633145c07p-53;
  const bool left = bitsOf(x) >> 63;
  const double ax = fabs(x), ay = fabs(y);
  double r;
  if (ay == 0)
    r = left ? pi : 0;
  else if (ax == 0)
    r = pi / 2;
  else if (!isFinite(ax))
    r = !isFinite(ay) ? (left ? 3 * pi / 4 : pi / 4) : left ? pi : 0;
  else if (!isFinite(ay))
    r = pi / 2;
  else {
    const double q = ay / ax;
    r = q > 0x1p60 ? pi / 2 : left && q < 0x1p-60 ? 0 : atan(q);
    if (left)
      r = pi - (r - pi_low);
  }
  return __builtin_copysign(r, y);
}
ZF_DEVICE double asin(double x) {
  if (!(fabs(x) <= 1))
    return nan();
  return fabs(x) < 0x1p-27 ? x : atan2(x, sqrt((1 - x) * (1 + x)));
}
ZF_DEVICE double acos(double x) { return !(fabs(x) <= 1) ? nan() : 2 * atan2(sqrt(1 - x), sqrt(1 + x)); }

ZF_DEVICE double sinh(double x) {
  const double a = fabs(x);
  double r;
  if (a < 22) {
    const double t = expm1(a);
    r = 0.5 * (t + t / (t + 1));
  } else {
    const double h = exp(0.5 * a);
    r = (0.5 * h) * h;
  }
  return __builtin_copysign(r, x);
}
ZF_DEVICE double cosh(double x) {
  const double a = fabs(x);
  if (a < 22) {
    const double t = exp(a);
    return 0.5 * t + 0.5 / t;
  }
  const double h = exp(0.5 * a);
  return (0.5 * h) * h;
}
ZF_DEVICE double tanh(double x) {
  const double a = fabs(x);
  double r = 1;
  if (a < 1) {
    const double t = expm1(-2 * a);
    r = -t / (t + 2);
  } else if (a < 22) {
    r = 1 - 2 / (expm1(2 * a) + 2);
  } else if (x != x) {
    return x;
  }
  return __builtin_copysign(r, x);
}
ZF_DEVICE double asinh(double x) {
  const double a = fabs(x);
  double r;
  if (a > 0x1p28)
    r = log(a) + 6.93147180559945286227e-01;
  else if (a > 2)
    r = log(2 * a + 1 / (sqrt(a * a + 1) + a));
  else
    r = log1p(a + a * a / (1 + sqrt(1 + a * a)));
  return __builtin_copysign(r, x);
}
ZF_DEVICE double acosh(double x) {
  if (!(x >= 1))
    return nan();
  if (x > 0x1p28)
    return log(x) + 6.93147180559945286227e-01;
  if (x > 2)
    return log(2 * x - 1 / (x + sqrt(x * x - 1)));
  const double t = x - 1;
  return log1p(t + sqrt(2 * t + t * t));
}
ZF_DEVICE double atanh(double x) {
  const double a = fabs(x);
  const double t = 2 * a;
  const double r = 0.5 * (a < 0.5 ? log1p(t + t * a / (1 - a)) : log1p(t / (1 - a)));
  return __builtin_copysign(r, x);
}
ZF_DEVICE double cbrt(double x) {
  if (x == 0 || !isFinite(x))
    return x;
  auto [m, e] = split(fabs(x));
  const int third = e >= 0 ? e / 3 : -((2 - e) / 3), rest = e - 3 * third;  // rest in 0..2
  const double v = ldexp(m, rest);                                          // [1, 8)
  double t = fma(fma(v, -0.0145, 0.2563), v, 0.78);
  for (int i = 0; i < 3; ++i) {  // Halley: three times the digits
    const double c = t * t * t;
    t = t * ((c + 2 * v) / (2 * c + v));
  }
  t = t - (fma(t * t, t, -v) / (3 * t * t));
  return __builtin_copysign(ldexp(t, third), x);
}
ZF_DEVICE double hypot(double x, double y) {
  double a = fabs(x), b = fabs(y);
  if (a == inf() || b == inf())
    return inf();
  if (x != x || y != y)
    return nan();
  if (a < b) {
    const double t = a;
    a = b;
    b = t;
  }
  if (b == 0)
    return a;
  const double scale = a > 0x1p500 ? 0x1p-600 : a < 0x1p-400 ? 0x1p600 : 1;
  a *= scale;
  b *= scale;
  const Pair p = product(b, b), q = product(a, a);
  Pair s = quickSum(q.hi, p.hi);
  const double root = sqrt(s.hi);
  const Pair back = product(root, root);
  const double rest = ((s.hi - back.hi) - back.lo) + (s.lo + q.lo + p.lo);
  return (root + rest / (2 * root)) / scale;
}

// The remainder of x / y with x's sign, exact; the quotient's low bits too.
ZF_DEVICE double fmodQuotient(double x, double y, unsigned& quotient) {
  quotient = 0;
  const double ay = fabs(y);
  double a = fabs(x);
  if (!isFinite(x) || y != y || y == 0)
    return nan();
  if (!isFinite(y) || a < ay)
    return x;
  const int shift = split(a).exponent - split(ay).exponent;
  // Bit by bit: 2^i |y| is exact, and so is each difference. Of small numbers both are scaled up first.
  const double scale = ay < 0x1p-900 ? 0x1p100 : 1;
  const bool scaled = scale != 1 && a < 0x1p900;
  double d = scaled ? ay * scale : ay;
  a = scaled ? a * scale : a;
  for (int i = shift; i >= 0; --i) {
    const double part = ldexp(d, i);
    const bool take = a >= part;
    a = take ? a - part : a;
    quotient = (quotient << 1) | take;
  }
  return __builtin_copysign(scaled ? a / scale : a, x);
}
ZF_DEVICE double fmod(double x, double y) {
  unsigned q;
  return fmodQuotient(x, y, q);
}
ZF_DEVICE double remainder(double x, double y) {
  unsigned q;
  const double r = fmodQuotient(x, y, q);
  if (r != r || !isFinite(y))
    return r;
  const double a = fabs(r), ay = fabs(y), rest = ay - a;
  const bool up = a > rest || (a == rest && (q & 1));
  const double v = up ? -rest : a;
  return v == 0 ? __builtin_copysign(0.0, x) : bitsOf(x) >> 63 ? -v : v;
}

// Half turns: sin(pi x) and cos(pi x).
ZF_DEVICE double sinpi(double x) {
  if (!isFinite(x))
    return nan();
  if (isInteger(x))
    return __builtin_copysign(0.0, x);
  double r = x - 2 * __builtin_rint(0.5 * x);  // [-1, 1], exact
  r = r > 0.5 ? 1 - r : r < -0.5 ? -1 - r : r;
  return sin(3.14159265358979323846 * r);
}
ZF_DEVICE double cospi(double x) {
  if (!isFinite(x))
    return nan();
  const double r = fabs(x - 2 * __builtin_rint(0.5 * x));
  return r <= 0.25  ? cos(3.14159265358979323846 * r)
         : r < 0.75 ? sin(3.14159265358979323846 * (0.5 - r))
                    : -cos(3.14159265358979323846 * (1 - r));
}

}  // namespace zf::device
