// Every OpenCL math function as a scalar and as a 16-lane kernel, f32 and f64.
#define UNARY(name)                                                                                                 \
  __kernel void f32_##name(__global const float* x, __global float* y) { size_t i = get_global_id(0); y[i] = name(x[i]); } \
  __kernel void f32x16_##name(__global const float* x, __global float* y) {                                         \
    size_t i = get_global_id(0); vstore16(name(vload16(i, x)), i, y); }
#define BINARY(name)                                                                                                \
  __kernel void f32_##name(__global const float* x, __global const float* z, __global float* y) {                   \
    size_t i = get_global_id(0); y[i] = name(x[i], z[i]); }                                                         \
  __kernel void f32x16_##name(__global const float* x, __global const float* z, __global float* y) {                \
    size_t i = get_global_id(0); vstore16(name(vload16(i, x), vload16(i, z)), i, y); }
#define UNARY64(name)                                                                                               \
  __kernel void f64_##name(__global const double* x, __global double* y) { size_t i = get_global_id(0); y[i] = name(x[i]); } \
  __kernel void f64x16_##name(__global const double* x, __global double* y) {                                       \
    size_t i = get_global_id(0); vstore16(name(vload16(i, x)), i, y); }
#define ALL(M) M(acos) M(acosh) M(acospi) M(asin) M(asinh) M(asinpi) M(atan) M(atanh) M(atanpi) M(cbrt) M(ceil)     \
  M(cos) M(cosh) M(cospi) M(erfc) M(erf) M(exp) M(exp2) M(exp10) M(expm1) M(fabs) M(floor) M(lgamma) M(log) M(log2) \
  M(log10) M(log1p) M(logb) M(rint) M(round) M(rsqrt) M(sin) M(sinh) M(sinpi) M(sqrt) M(tan) M(tanh) M(tanpi)       \
  M(tgamma) M(trunc) M(sign) M(native_exp) M(half_exp)
#define ALL64(M) M(acos) M(cbrt) M(cos) M(erf) M(exp) M(exp2) M(expm1) M(log) M(log2) M(log1p) M(sin) M(tanh) M(sqrt) M(round)
ALL(UNARY)
BINARY(atan2) BINARY(pow) BINARY(hypot) BINARY(fmod) BINARY(remainder) BINARY(fmax) BINARY(fmin) BINARY(fdim)
BINARY(copysign) BINARY(nextafter) BINARY(maxmag)
#ifdef F64
ALL64(UNARY64)
#endif
