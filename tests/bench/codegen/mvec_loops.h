// Loops over glibc's vector functions; each width in a file of its own, built for its instruction set.
#pragma once

constexpr long kElements = 2048;

#define FOR_EACH_FUNCTION(M) M(exp) M(tanh) M(erf) M(log) M(exp2) M(expm1) M(log1p) M(sin)
#define DECLARE(name)                                                                                                  \
  void name##_256(const float* x, float* y);                                                                           \
  void name##_512(const float* x, float* y);
FOR_EACH_FUNCTION(DECLARE)
#undef DECLARE
