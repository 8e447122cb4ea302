// Math functions of the kernels, called zf_<name>_<f32|f64>[x<lanes>]. Compiled to LLVM bitcode; only what a kernel
// calls is linked into it.
//
// Three kinds:
//   inline    f32 polynomials of drivers/spirv/math, which every driver takes;
//   libmvec   glibc's vector functions in their 256-bit form (the same bits on every ISA level), filled up for scalars;
//   libm      lane by lane.
// In each kind a lane's result depends on its argument alone.
#include "drivers/spirv/math/tanh_erf.h"
#include "drivers/spirv/math/trig.h"

#define ZF_EXPORT extern "C" __attribute__((always_inline))
#define ZF_CALL extern "C" __attribute__((noinline))

using zf::Vec;
using v4f = Vec<float, 4>;
using v8f = Vec<float, 8>;
using v16f = Vec<float, 16>;
using v2d = Vec<double, 2>;
using v4d = Vec<double, 4>;
using v8d = Vec<double, 8>;
using v4i = Vec<int32_t, 4>;
using v8i = Vec<int32_t, 8>;
using v16i = Vec<int32_t, 16>;
using v2i = Vec<int32_t, 2>;

#define INLINE_F32(name)                                                                                               \
  ZF_EXPORT float zf_##name##_f32(float x) { return zf::name(x); }                                                     \
  ZF_EXPORT v4f zf_##name##_f32x4(v4f x) { return zf::name(x); }                                                       \
  ZF_EXPORT v8f zf_##name##_f32x8(v8f x) { return zf::name(x); }                                                       \
  ZF_EXPORT v16f zf_##name##_f32x16(v16f x) { return zf::name(x); }
INLINE_F32(log)
INLINE_F32(log2)
INLINE_F32(log10)
INLINE_F32(log1p)
// linkMathLibrary takes the _avx512 form where there is one and the ISA level allows.
#define INLINE_F32_512(name)                                                                                           \
  INLINE_F32(name)                                                                                                     \
  ZF_EXPORT v16f zf_##name##_f32x16_avx512(v16f x) { return zf::name<zf::Avx512>(x); }
INLINE_F32_512(exp)
INLINE_F32_512(exp2)
INLINE_F32_512(exp10)
INLINE_F32_512(expm1)
INLINE_F32_512(tanh)
INLINE_F32_512(erf)

// Long enough that one copy per kernel is better than one per use.
#define CALL_F32(name)                                                                                                 \
  ZF_CALL float zf_##name##_f32(float x) { return zf::name(x); }                                                       \
  ZF_CALL v4f zf_##name##_f32x4(v4f x) { return zf::name(x); }                                                         \
  ZF_CALL v8f zf_##name##_f32x8(v8f x) { return zf::name(x); }                                                         \
  ZF_CALL v16f zf_##name##_f32x16(v16f x) { return zf::name(x); }
CALL_F32(sin)
CALL_F32(cos)

// glibc's libmvec. A function of n lanes built of calls of the native width; missing lanes repeat the last one.
template <typename V, auto Function, typename... A> ZF_INLINE V inPieces(A... args) {
  using E = zf::Element<V>;
  constexpr int kNative = sizeof(E) == 4 ? 8 : 4;
  constexpr int kLanes = zf::lanes<V>;
  using N = Vec<E, kNative>;
  if constexpr (kLanes == 1) {
    N r = Function(N(args)...);
    return r[0];
  } else if constexpr (kLanes == kNative) {
    return Function(args...);
  } else if constexpr (kLanes < kNative) {
    auto fill = [](V x) {
      N n;
      for (int i = 0; i < kNative; ++i)
        n[i] = x[i < kLanes ? i : kLanes - 1];
      return n;
    };
    N r = Function(fill(args)...);
    V out;
    for (int i = 0; i < kLanes; ++i)
      out[i] = r[i];
    return out;
  } else {
    auto half = [](V x, int first) {
      N n;
      for (int i = 0; i < kNative; ++i)
        n[i] = x[first + i];
      return n;
    };
    N lo = Function(half(args, 0)...), hi = Function(half(args, kNative)...);
    V out;
    for (int i = 0; i < kNative; ++i) {
      out[i] = lo[i];
      out[kNative + i] = hi[i];
    }
    return out;
  }
}

#define WIDTHS_1(M, name, f)                                                                                           \
  M(name, f, float, f32) M(name, f, v4f, f32x4) M(name, f, v8f, f32x8) M(name, f, v16f, f32x16)
#define WIDTHS_1D(M, name, f)                                                                                          \
  M(name, f, double, f64) M(name, f, v2d, f64x2) M(name, f, v4d, f64x4) M(name, f, v8d, f64x8)
#define MVEC_UNARY(name, f, V, suffix)                                                                                 \
  ZF_CALL V zf_##name##_##suffix(V x) { return inPieces<V, f>(x); }
#define MVEC_BINARY(name, f, V, suffix)                                                                                \
  ZF_CALL V zf_##name##_##suffix(V x, V y) { return inPieces<V, f>(x, y); }

#define MVEC_F32(name)                                                                                                 \
  extern "C" v8f _ZGVdN8v_##name##f(v8f);                                                                              \
  WIDTHS_1(MVEC_UNARY, name, _ZGVdN8v_##name##f)
#define MVEC_F64(name)                                                                                                 \
  extern "C" v4d _ZGVdN4v_##name(v4d);                                                                                 \
  WIDTHS_1D(MVEC_UNARY, name, _ZGVdN4v_##name)
#define MVEC(name) MVEC_F32(name) MVEC_F64(name)
MVEC(acos)
MVEC(acosh)
MVEC(asin)
MVEC(asinh)
MVEC(atan)
MVEC(atanh)
MVEC(cbrt)
MVEC(cosh)
MVEC(erfc)
MVEC(sinh)
MVEC(tan)
MVEC_F64(cos)
MVEC_F64(erf)
MVEC_F64(exp)
MVEC_F64(exp2)
MVEC_F64(exp10)
MVEC_F64(expm1)
MVEC_F64(log)
MVEC_F64(log2)
MVEC_F64(log10)
MVEC_F64(log1p)
MVEC_F64(sin)
MVEC_F64(tanh)
#define MVEC2(name)                                                                                                    \
  extern "C" v8f _ZGVdN8vv_##name##f(v8f, v8f);                                                                        \
  extern "C" v4d _ZGVdN4vv_##name(v4d, v4d);                                                                           \
  WIDTHS_1(MVEC_BINARY, name, _ZGVdN8vv_##name##f)                                                                     \
  WIDTHS_1D(MVEC_BINARY, name, _ZGVdN4vv_##name)
MVEC2(atan2)
MVEC2(hypot)
MVEC2(pow)

// libm, lane by lane.
template <typename R, typename V, typename F, typename... A> ZF_INLINE R perLane(F f, V x, A... rest) {
  if constexpr (zf::lanes<V> == 1) {
    return f(x, rest...);
  } else {
    R r;
    for (int i = 0; i < zf::lanes<V>; ++i)
      r[i] = f(x[i], rest[i]...);
    return r;
  }
}
#define LIBM_UNARY(name, f, V, suffix)                                                                                 \
  ZF_CALL V zf_##name##_##suffix(V x) {                                                                                \
    return perLane<V>([](auto a) { return f(a); }, x);                                                                 \
  }
#define LIBM_BINARY(name, f, V, suffix)                                                                                \
  ZF_CALL V zf_##name##_##suffix(V x, V y) {                                                                           \
    return perLane<V>([](auto a, auto b) { return f(a, b); }, x, y);                                                   \
  }
#define LIBM_FLOAT_INT(name, f, V, suffix)                                                                             \
  ZF_CALL V zf_##name##_##suffix(V x, Vec<int32_t, zf::lanes<V>> y) {                                                  \
    return perLane<V>([](auto a, int b) { return f(a, b); }, x, y);                                                    \
  }
#define LIBM_TO_INT(name, f, V, suffix)                                                                                \
  ZF_CALL Vec<int32_t, zf::lanes<V>> zf_##name##_##suffix(V x) {                                                       \
    return perLane<Vec<int32_t, zf::lanes<V>>>([](auto a) { return f(a); }, x);                                        \
  }
#define LIBM_TO_INT2(name, f, V, suffix)                                                                               \
  ZF_CALL Vec<int32_t, zf::lanes<V>> zf_##name##_##suffix(V x, V y) {                                                  \
    return perLane<Vec<int32_t, zf::lanes<V>>>([](auto a, auto b) { return f(a, b); }, x, y);                          \
  }
#define LIBM(M, name, f) WIDTHS_1(M, name, f) WIDTHS_1D(M, name, f)

namespace {

#define OVERLOAD(name, builtin)                                                                                        \
  ZF_INLINE float name(float x) { return builtin##f(x); }                                                              \
  ZF_INLINE double name(double x) { return builtin(x); }
#define OVERLOAD2(name, builtin)                                                                                       \
  ZF_INLINE float name(float x, float y) { return builtin##f(x, y); }                                                  \
  ZF_INLINE double name(double x, double y) { return builtin(x, y); }
OVERLOAD(libmLgamma, __builtin_lgamma)
OVERLOAD(libmTgamma, __builtin_tgamma)
OVERLOAD(libmLogb, __builtin_logb)
OVERLOAD2(libmFmod, __builtin_fmod)
OVERLOAD2(libmRemainder, __builtin_remainder)
OVERLOAD2(libmNextafter, __builtin_nextafter)
extern "C" float lgammaf_r(float, int*);
extern "C" double lgamma_r(double, int*);

ZF_INLINE float libmLdexp(float x, int n) { return __builtin_ldexpf(x, n); }
ZF_INLINE double libmLdexp(double x, int n) { return __builtin_ldexp(x, n); }
ZF_INLINE int libmIlogb(float x) { return __builtin_ilogbf(x); }
ZF_INLINE int libmIlogb(double x) { return __builtin_ilogb(x); }

// f32 pi-functions compute in f64 (correct to half an ulp and a little); f64 ones reduce the argument exactly first.
constexpr double kPi = 3.14159265358979323846;
ZF_INLINE double sinpiReduced(double x) {
  double r = x - 2.0 * __builtin_rint(0.5 * x);  // [-1, 1], exact
  if (r > 0.5)
    r = 1.0 - r;
  else if (r < -0.5)
    r = -1.0 - r;
  return __builtin_sin(kPi * r);
}
ZF_INLINE double cospiReduced(double x) {
  double r = __builtin_fabs(x - 2.0 * __builtin_rint(0.5 * x));  // [0, 1]
  return r <= 0.25  ? __builtin_cos(kPi * r)
         : r < 0.75 ? __builtin_sin(kPi * (0.5 - r))
                    : -__builtin_cos(kPi * (1.0 - r));
}
ZF_INLINE double tanpiReduced(double x) {
  double r = x - __builtin_rint(x);  // [-1/2, 1/2]
  if (r == 0.5 || r == -0.5) {       // the poles alternate
    double whole = __builtin_floor(x);
    return whole - 2.0 * __builtin_floor(0.5 * whole) == 0 ? __builtin_inf() : -__builtin_inf();
  }
  if (r == 0) {
    bool odd = x - 2.0 * __builtin_rint(0.5 * x) != 0;
    return odd ? __builtin_copysign(0.0, -x) : __builtin_copysign(0.0, x);
  }
  return __builtin_tan(kPi * r);
}
template <typename T> ZF_INLINE T zfSinpi(T x) {
  return x == __builtin_rint(x) ? (x - x == 0 ? __builtin_copysign(T(0), x) : T(__builtin_nan("")))
                                : T(sinpiReduced(x));
}
template <typename T> ZF_INLINE T zfCospi(T x) { return x - x == 0 ? T(cospiReduced(x)) : T(__builtin_nan("")); }
template <typename T> ZF_INLINE T zfTanpi(T x) { return x - x == 0 ? T(tanpiReduced(x)) : T(__builtin_nan("")); }
template <typename T> ZF_INLINE T zfAcospi(T x) { return T(__builtin_acos(double(x)) / kPi); }
template <typename T> ZF_INLINE T zfAsinpi(T x) { return T(__builtin_asin(double(x)) / kPi); }
template <typename T> ZF_INLINE T zfAtanpi(T x) { return T(__builtin_atan(double(x)) / kPi); }
template <typename T> ZF_INLINE T zfAtan2pi(T y, T x) { return T(__builtin_atan2(double(y), double(x)) / kPi); }

// OpenCL's powr: x >= 0 only, and undefined where pow agrees with conventions.
template <typename T> ZF_INLINE T zfPowr(T x, T y) {
  if (x < 0 || (x == 0 && y == 0) || (x == 1 && y - y != 0) || (x - x != 0 && y == 0))
    return T(__builtin_nan(""));
  return x != x ? x : T(__builtin_pow(double(x), double(y)));
}
template <typename T> ZF_INLINE T zfPown(T x, int n) { return T(__builtin_pow(double(x), double(n))); }
template <typename T> ZF_INLINE T zfRootn(T x, int n) {
  if (n == 0 || (x < 0 && n % 2 == 0))
    return T(__builtin_nan(""));
  double r = __builtin_pow(__builtin_fabs(double(x)), 1.0 / n);
  return n % 2 ? T(__builtin_copysign(r, double(x))) : T(r);
}
template <typename T> ZF_INLINE T zfFrexp(T x) {
  int e = 0;
  return T(__builtin_frexp(double(x), &e));
}
template <typename T> ZF_INLINE int zfFrexpExponent(T x) {
  int e = 0;
  if (x - x == 0)
    (void)__builtin_frexp(double(x), &e);
  return e;
}
ZF_INLINE int zfLgammaSign(double x) {
  int s = 0;
  (void)lgamma_r(x, &s);
  return x == 0 || (x < 0 && x == __builtin_rint(x)) ? 0 : s;
}
template <typename T> ZF_INLINE int zfRemquo(T x, T y) {
  int q = 0;
  (void)__builtin_remquo(double(x), double(y), &q);
  return (q < 0 ? -1 : 1) * ((q < 0 ? -q : q) & 127);
}

}  // namespace

LIBM(LIBM_UNARY, lgamma, libmLgamma)
LIBM(LIBM_UNARY, tgamma, libmTgamma)
LIBM(LIBM_UNARY, logb, libmLogb)
LIBM(LIBM_UNARY, sinpi, zfSinpi)
LIBM(LIBM_UNARY, cospi, zfCospi)
LIBM(LIBM_UNARY, tanpi, zfTanpi)
LIBM(LIBM_UNARY, acospi, zfAcospi)
LIBM(LIBM_UNARY, asinpi, zfAsinpi)
LIBM(LIBM_UNARY, atanpi, zfAtanpi)
LIBM(LIBM_UNARY, frexp, zfFrexp)
LIBM(LIBM_BINARY, fmod, libmFmod)
LIBM(LIBM_BINARY, remainder, libmRemainder)
LIBM(LIBM_BINARY, nextafter, libmNextafter)
LIBM(LIBM_BINARY, atan2pi, zfAtan2pi)
LIBM(LIBM_BINARY, powr, zfPowr)
LIBM(LIBM_FLOAT_INT, ldexp, libmLdexp)
LIBM(LIBM_FLOAT_INT, pown, zfPown)
LIBM(LIBM_FLOAT_INT, rootn, zfRootn)
LIBM(LIBM_TO_INT, ilogb, libmIlogb)
LIBM(LIBM_TO_INT, frexp_exponent, zfFrexpExponent)
LIBM(LIBM_TO_INT, lgamma_sign, zfLgammaSign)
LIBM(LIBM_TO_INT2, remquo_quotient, zfRemquo)
