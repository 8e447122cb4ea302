// A vector of units from memory and to it, of f32, bf16 or f16. Everything is inlined into a function that is compiled
// for a level of processors (levels.h).
#pragma once

#include <cstdint>

#include "runtime/primitives/simd/vector_memory.h"

namespace zefuse::recurrence {

template <int lanes> using Vector = typename primitives::VectorOf<lanes>::Float;

using primitives::load;
using primitives::store;

// As `load`, of bf16 or f16.
template <int lanes, typename Number>
[[gnu::always_inline]] inline void loadWidened(Vector<lanes>& x, const Number* from, int64_t count) {
  typedef Number Narrow __attribute__((vector_size(lanes * sizeof(Number)), aligned(2)));
  if (count >= lanes) {
    x = __builtin_convertvector(*reinterpret_cast<const Narrow*>(from), Vector<lanes>);
    return;
  }
  Narrow some = {};
  for (int64_t lane = 0; lane < count; ++lane)
    some[lane] = from[lane];
  x = __builtin_convertvector(some, Vector<lanes>);
}

// As `store`, of bf16 or f16.
template <int lanes, typename Number>
[[gnu::always_inline]] inline void storeRounded(Number* to, const Vector<lanes>& x, int64_t count) {
  typedef Number Narrow __attribute__((vector_size(lanes * sizeof(Number)), aligned(2)));
  const Narrow rounded = __builtin_convertvector(x, Narrow);
  if (count >= lanes)
    *reinterpret_cast<Narrow*>(to) = rounded;
  else
    for (int64_t lane = 0; lane < count; ++lane)
      to[lane] = rounded[lane];
}

// loadWidened and storeRounded where there are tiles or pairs; other processors have no instructions for it.
template <int lanes, bool there, typename Number>
[[gnu::always_inline]] inline void loadNarrow(Vector<lanes>& x, const Number* from, int64_t count) {
  if constexpr (there)
    loadWidened<lanes>(x, from, count);
}
template <int lanes, bool there, typename Number>
[[gnu::always_inline]] inline void storeNarrow(Number* to, const Vector<lanes>& x, int64_t count) {
  if constexpr (there)
    storeRounded<lanes>(to, x, count);
}

}  // namespace zefuse::recurrence
