// Vectors of f32 from memory and to it. Everything is inlined into a function that is compiled for a level of
// processors.
#pragma once

#include "runtime/primitives/simd/vector_math.h"

// A function and all that is inlined into it are compiled for a level. AVX-512's must ask for its 512 bits: clang else
// splits the vectors in two, for which there are not registers enough.
#define ZEFUSE_AVX512 gnu::target("arch=x86-64-v4"), clang::min_vector_width(512)
#define ZEFUSE_AVX2 gnu::target("arch=x86-64-v3")

namespace zefuse::primitives {

// The first `count` elements; zeros behind them. Nothing else is read.
template <int lanes>
[[gnu::always_inline]] inline void load(typename VectorOf<lanes>::Float& x, const float* from, int64_t count) {
  if (count >= lanes) {
    x = *reinterpret_cast<const typename VectorOf<lanes>::Float*>(from);
    return;
  }
  x = typename VectorOf<lanes>::Float{};
  if (count <= 0)
    return;
#if defined(__clang__) && __has_builtin(__builtin_masked_load)
  // One instruction, where a loop has a branch for each lane.
  typedef bool Mask __attribute__((ext_vector_type(lanes)));
  typename VectorOf<lanes>::Int number;
  for (int lane = 0; lane < lanes; ++lane)
    number[lane] = lane;
  x = (typename VectorOf<lanes>::Float)__builtin_masked_load(__builtin_convertvector(number < int32_t(count), Mask),
                                                             from);
#else
  for (int64_t lane = 0; lane < count; ++lane)
    x[lane] = from[lane];
#endif
}

// `part` elements where that bit of `count` is set, then half as many, down to one: no level needs a mask for it.
template <int lanes, int part>
[[gnu::always_inline]] inline void storeParts(float* to, typename VectorOf<lanes>::Float& x, int64_t count) {
  if constexpr (part > 0) {
    if (count & part) {
      typename VectorOf<part>::Float first;
      for (int lane = 0; lane < part; ++lane) {
        first[lane] = x[lane];
        x[lane] = x[lane + part];
      }
      *reinterpret_cast<typename VectorOf<part>::Float*>(to) = first;
      to += part;
    }
    storeParts<lanes, part / 2>(to, x, count);
  }
}

template <int lanes>
[[gnu::always_inline]] inline void store(float* to, const typename VectorOf<lanes>::Float& x, int64_t count) {
  if (count >= lanes) {
    *reinterpret_cast<typename VectorOf<lanes>::Float*>(to) = x;
  } else if (count > 0) {
    typename VectorOf<lanes>::Float rest = x;
    storeParts<lanes, lanes / 2>(to, rest, count);
  }
}

}  // namespace zefuse::primitives
