// The hot functions only: quick to build at every optimisation level.
__kernel void small(__global const float* x, __global float* y) {
  size_t i = get_global_id(0);
  float16 v = vload16(i, x);
  vstore16(exp(v) + tanh(v) * erf(v) - log1p(fabs(v)), i, y);
}

__kernel void scalar(__global const float* x, __global float* y) {
  size_t i = get_global_id(0);
  float v = x[i];
  y[i] = exp(v) + tanh(v) * erf(v) - log1p(fabs(v));
}

// How the compiler writes maximum and minimum that propagate NaN.
__kernel void nan_max(__global const float* a, __global const float* b, __global float* y, __global float* z) {
  size_t i = get_global_id(0);
  float16 p = vload16(i, a), q = vload16(i, b);
  vstore16(select(q, p, (p > q) | isnan(p)), i, y);
  vstore16(select(q, p, (q > p) | isnan(p)), i, z);
}
