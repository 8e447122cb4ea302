// The hot functions only: quick to build at every optimisation level.
__kernel void small(__global const float* x, __global float* y) {
  size_t i = get_global_id(0);
  float16 v = vload16(i, x);
  vstore16(exp(v) + tanh(v) * erf(v) - log1p(fabs(v)) + sin(v), i, y);
}

__kernel void scalar(__global const float* x, __global float* y) {
  size_t i = get_global_id(0);
  float v = x[i];
  y[i] = exp(v) + tanh(v) * erf(v) - log1p(fabs(v)) + sin(v);
}
