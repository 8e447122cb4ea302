#include "tests/bench/codegen/mvec_loops.h"

#include <immintrin.h>

#define LOOP(name)                                                                                                     \
  extern "C" __m512 _ZGVeN16v_##name##f(__m512);                                                                       \
  void name##_512(const float* x, float* y) {                                                                          \
    for (long i = 0; i < kElements; i += 16)                                                                           \
      _mm512_storeu_ps(y + i, _ZGVeN16v_##name##f(_mm512_loadu_ps(x + i)));                                            \
  }
FOR_EACH_FUNCTION(LOOP)
