#include "tests/bench/codegen/mvec_loops.h"

#include <immintrin.h>

#define LOOP(name)                                                                                                     \
  extern "C" __m256 _ZGVdN8v_##name##f(__m256);                                                                        \
  void name##_256(const float* x, float* y) {                                                                          \
    for (long i = 0; i < kElements; i += 8)                                                                            \
      _mm256_storeu_ps(y + i, _ZGVdN8v_##name##f(_mm256_loadu_ps(x + i)));                                             \
  }
FOR_EACH_FUNCTION(LOOP)
