#define KERNEL(name)                                                                                        \
  __kernel __attribute__((reqd_work_group_size(1, 1, 1))) void name##_16(__global const float* restrict x,  \
                                                                         __global float* restrict y, long n) { \
    for (long i = 0; i < n; i += 16)                                                                        \
      vstore16(name(vload16(0, x + i)), 0, y + i);                                                          \
  }                                                                                                         \
  __kernel void name##_1(__global const float* restrict x, __global float* restrict y, long n) {            \
    size_t i = get_global_id(0);                                                                            \
    y[i] = name(x[i]);                                                                                      \
  }
KERNEL(exp) KERNEL(tanh) KERNEL(erf) KERNEL(log) KERNEL(exp2) KERNEL(expm1) KERNEL(log1p) KERNEL(sin)
