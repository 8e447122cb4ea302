// Math functions of the kernels on an NVIDIA GPU, called zf_<name>_<f32|f64>, scalars alone. Compiled to LLVM bitcode
// for NVPTX; only what a kernel calls is linked into it. f32: powers by the device's instruction, else the polynomials
// that the CPU's kernels take as well (drivers/spirv/math), the rarer functions through f64.
#include "drivers/cuda/codegen/device_erf.h"
#include "drivers/cuda/codegen/device_exp.h"
#include "drivers/cuda/codegen/device_gamma.h"
#include "drivers/cuda/codegen/device_math.h"

// drivers/spirv/math takes them for huge arguments.
extern "C" float sinf(float x) { return float(zf::device::sin(x)); }
extern "C" float cosf(float x) { return float(zf::device::cos(x)); }

#include "drivers/spirv/math/tanh_erf.h"
#include "drivers/spirv/math/trig.h"

namespace device = zf::device;

namespace {
// Of a divisor between 1 and 2, as tanh has it: without the steps that the division of any numbers takes.
struct NearOne : zf::Portable {
  ZF_INLINE float divide(float a, float b) {
    const float inverse = __nvvm_rcp_approx_ftz_f(b), quotient = a * inverse;
    return __builtin_fmaf(__builtin_fmaf(-b, quotient, a), inverse, quotient);
  }
};
}  // namespace

// Short enough to be part of a kernel wherever it is called: a call would move registers through memory.
#define F32(name)                                                                                                      \
  extern "C" __attribute__((always_inline)) float zf_##name##_f32(float x) { return zf::name(x); }
#define INSTRUCTION(name)                                                                                              \
  extern "C" __attribute__((always_inline)) float zf_##name##_f32(float x) { return device::name##F32(x); }
INSTRUCTION(exp)
INSTRUCTION(exp2)
INSTRUCTION(exp10)
F32(expm1)
F32(log)
F32(log2)
F32(log10)
F32(log1p)
extern "C" __attribute__((always_inline)) float zf_tanh_f32(float x) { return zf::tanh<NearOne>(x); }
F32(erf)
F32(sin)
F32(cos)

// The same without the steps around it that subnormal results take: they are 0.
extern "C" __attribute__((always_inline)) float zf_native_exp2_f32(float x) { return __nvvm_ex2_approx_ftz_f(x); }
extern "C" __attribute__((always_inline)) float zf_native_recip_f32(float x) { return __nvvm_rcp_approx_ftz_f(x); }
extern "C" __attribute__((always_inline)) float zf_native_tanh_f32(float x) {
  float result;
  __asm__("tanh.approx.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

#define F64(name)                                                                                                      \
  extern "C" double zf_##name##_f64(double x) { return device::name(x); }
#define BOTH(name)                                                                                                     \
  F64(name)                                                                                                            \
  extern "C" float zf_##name##_f32(float x) { return float(device::name(x)); }
F64(exp)
F64(exp2)
F64(exp10)
F64(expm1)
F64(log)
F64(log2)
F64(log10)
F64(log1p)
F64(tanh)
F64(erf)
F64(sin)
F64(cos)
BOTH(acos)
BOTH(acosh)
BOTH(asin)
BOTH(asinh)
BOTH(atan)
BOTH(atanh)
BOTH(cbrt)
BOTH(cosh)
BOTH(erfc)
BOTH(sinh)
BOTH(tan)
BOTH(lgamma)
BOTH(tgamma)
BOTH(sinpi)
BOTH(cospi)

#define BINARY_F64(name)                                                                                               \
  extern "C" double zf_##name##_f64(double x, double y) { return device::name(x, y); }
#define BINARY(name)                                                                                                   \
  BINARY_F64(name)                                                                                                     \
  extern "C" float zf_##name##_f32(float x, float y) { return float(device::name(x, y)); }
BINARY(atan2)
BINARY(hypot)
BINARY(pow)
BINARY(fmod)
BINARY(remainder)

namespace {

constexpr double kPi = 3.14159265358979323846;

double tanpi(double x) {
  const double s = device::sinpi(x), c = device::cospi(x);
  return s / c;
}
double powr(double x, double y) {
  if (x < 0 || (x == 0 && y == 0) || (x == 1 && y - y != 0) || (x - x != 0 && y == 0))
    return device::nan();
  return x != x ? x : device::pow(x, y);
}
double rootn(double x, int n) {
  if (n == 0 || (x < 0 && n % 2 == 0))
    return device::nan();
  const double r = device::pow(device::fabs(x), 1.0 / n);
  return n % 2 ? __builtin_copysign(r, x) : r;
}
double logb(double x) {
  return x == 0 ? -device::inf() : device::isFinite(x) ? device::split(device::fabs(x)).exponent : x * x;
}
int ilogb(double x) {
  return x == 0 ? -2147483647 - 1 : device::isFinite(x) ? device::split(device::fabs(x)).exponent : 2147483647;
}
double frexp(double x) {
  return x == 0 || !device::isFinite(x) ? x : __builtin_copysign(0.5 * device::split(device::fabs(x)).mantissa, x);
}
int frexpExponent(double x) { return x == 0 || !device::isFinite(x) ? 0 : device::split(device::fabs(x)).exponent + 1; }
int remquoQuotient(double x, double y) {
  unsigned q;
  const double r = device::fmodQuotient(x, y, q);
  if (r != r || !device::isFinite(y))
    return 0;
  const double a = device::fabs(r), rest = device::fabs(y) - a;
  q += a > rest || (a == rest && (q & 1));
  return (x < 0) != (y < 0) ? -int(q & 127) : int(q & 127);
}
template <typename T, typename Bits> T nextafter(T x, T y) {
  if (x != x || y != y)
    return x + y;
  if (x == y)
    return y;
  if (x == 0)
    return __builtin_copysign(__builtin_bit_cast(T, Bits(1)), y);
  const Bits b = __builtin_bit_cast(Bits, x);
  return __builtin_bit_cast(T, (x < y) == (x > 0) ? b + 1 : b - 1);
}

}  // namespace

#define SAME(name, expression)                                                                                         \
  extern "C" double zf_##name##_f64(double x) { return expression; }                                                   \
  extern "C" float zf_##name##_f32(float x) { return float(expression); }
SAME(tanpi, tanpi(x))
SAME(acospi, device::acos(x) / kPi)
SAME(asinpi, device::asin(x) / kPi)
SAME(atanpi, device::atan(x) / kPi)
SAME(logb, logb(x))
SAME(frexp, frexp(x))
#define SAME2(name, expression)                                                                                        \
  extern "C" double zf_##name##_f64(double x, double y) { return expression; }                                         \
  extern "C" float zf_##name##_f32(float x, float y) { return float(expression); }
SAME2(atan2pi, device::atan2(x, y) / kPi)
SAME2(powr, powr(x, y))
#define WITH_INT(name, expression)                                                                                     \
  extern "C" double zf_##name##_f64(double x, int n) { return expression; }                                            \
  extern "C" float zf_##name##_f32(float x, int n) { return float(expression); }
WITH_INT(ldexp, device::ldexp(x, n))
WITH_INT(pown, device::pow(x, n))
WITH_INT(rootn, rootn(x, n))
#define TO_INT(name, expression)                                                                                       \
  extern "C" int zf_##name##_f64(double x) { return expression; }                                                      \
  extern "C" int zf_##name##_f32(float x) { return expression; }
TO_INT(ilogb, ilogb(x))
TO_INT(lgamma_sign, device::lgammaSign(x))
TO_INT(frexp_exponent, frexpExponent(x))
extern "C" int zf_remquo_quotient_f64(double x, double y) { return remquoQuotient(x, y); }
extern "C" int zf_remquo_quotient_f32(float x, float y) { return remquoQuotient(x, y); }
extern "C" double zf_nextafter_f64(double x, double y) { return nextafter<double, unsigned long long>(x, y); }
extern "C" float zf_nextafter_f32(float x, float y) { return nextafter<float, unsigned>(x, y); }
