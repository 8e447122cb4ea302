// One kernel of each math function for f32 and f64, and one with barriers, local memory and atomics. See math_check.c.
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#define OF(type, letter, f, call)                                                                                      \
  kernel void f##_##letter(global const type *x, global const type *y, global type *out) {                             \
    size_t i = get_global_id(0);                                                                                       \
    out[i] = call;                                                                                                     \
  }
#define UNARY(name) OF(float, f, name, name(x[i])) OF(double, d, name, name(x[i]))
#define BINARY(name) OF(float, f, name, name(x[i], y[i])) OF(double, d, name, name(x[i], y[i]))
UNARY(exp) UNARY(exp2) UNARY(exp10) UNARY(expm1) UNARY(log) UNARY(log2) UNARY(log10) UNARY(log1p)
UNARY(sin) UNARY(cos) UNARY(tan) UNARY(asin) UNARY(acos) UNARY(atan) UNARY(sinh) UNARY(cosh) UNARY(tanh)
UNARY(asinh) UNARY(acosh) UNARY(atanh) UNARY(cbrt) UNARY(erf) UNARY(erfc) UNARY(sqrt) UNARY(rsqrt)
UNARY(floor) UNARY(ceil) UNARY(rint) UNARY(round) UNARY(trunc) UNARY(fabs)
BINARY(pow) BINARY(atan2) BINARY(hypot) BINARY(fmod) BINARY(fmin) BINARY(fmax) BINARY(copysign)

kernel void work_group(global const uint *x, global uint *out, local uint *tmp) {
  size_t l = get_local_id(0), g = get_group_id(0), n = get_local_size(0);
  tmp[l] = x[g * n + l];
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint k = n / 2; k; k /= 2) {
    if (l < k)
      tmp[l] += tmp[l + k];
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  if (l == 0)
    atomic_add(&out[g], tmp[0]);
  atomic_max(&out[64 + g], x[g * n + l]);
}
