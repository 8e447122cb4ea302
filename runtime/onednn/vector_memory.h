// Vectors of f32 from memory and to it. Everything is inlined into a function that is compiled for a level of
// processors.
#pragma once

#include "runtime/onednn/vector_math.h"

// A function and all that is inlined into it are compiled for a level. AVX-512's must ask for its 512 bits: clang else
// splits the vectors in two, for which there are not registers enough.
#define ZEFUSE_AVX512 gnu::target("arch=x86-64-v4"), clang::min_vector_width(512)
#define ZEFUSE_AVX2 gnu::target("arch=x86-64-v3")

namespace zefuse::onednn {

// The first `count` elements; zeros behind them.
template <int lanes>
[[gnu::always_inline]] inline void load(typename VectorOf<lanes>::Float& x, const float* from, int64_t count) {
  if (count >= lanes) {
    x = *reinterpret_cast<const typename VectorOf<lanes>::Float*>(from);
    return;
  }
  for (int64_t lane = 0; lane < lanes; ++lane)
    x[lane] = lane < count ? from[lane] : 0;
}

template <int lanes>
[[gnu::always_inline]] inline void store(float* to, const typename VectorOf<lanes>::Float& x, int64_t count) {
  if (count >= lanes) {
    *reinterpret_cast<typename VectorOf<lanes>::Float*>(to) = x;
    return;
  }
  for (int64_t lane = 0; lane < count; ++lane)
    to[lane] = x[lane];
}

}  // namespace zefuse::onednn
