// Post-ops of vectors in registers, by torch's rules for NaN. Everything is inlined into a function that is compiled
// for a level of processors.
#pragma once

#include "common/plan/plan_generated.h"
#include "runtime/primitives/simd/vector_memory.h"

namespace zefuse::primitives {

// NaN stays; -0 becomes 0.
template <int lanes> [[gnu::always_inline]] inline void clampBelow(typename VectorOf<lanes>::Float& x) {
  const typename VectorOf<lanes>::Float zero = {};
  x = x <= zero ? zero : x;
}
template <int lanes> [[gnu::always_inline]] inline void clampAbove(typename VectorOf<lanes>::Float& x) {
  const typename VectorOf<lanes>::Float six = typename VectorOf<lanes>::Float{} + 6.f;
  x = x > six ? six : x;
}

// hasVectorPostOp() tells which kinds.
template <int lanes>
[[gnu::always_inline]] inline void activate(plan::PostOpKind kind, typename VectorOf<lanes>::Float& x) {
  using plan::PostOpKind;
  using Vector = typename VectorOf<lanes>::Float;
  if (kind == PostOpKind::relu || kind == PostOpKind::relu6) {
    clampBelow<lanes>(x);
    if (kind == PostOpKind::relu6)
      clampAbove<lanes>(x);
  } else if (kind == PostOpKind::hardswish) {
    Vector gate = x + 3.f;
    clampBelow<lanes>(gate);
    clampAbove<lanes>(gate);
    x = x * (gate * (1.f / 6));  // what is large stays finite
  } else {
    Vector gate = x;
    sigmoid<lanes>(gate);
    x = kind == PostOpKind::silu ? x * gate : gate;
  }
}

// Others are passes of their own over the result.
inline bool hasVectorPostOp(plan::PostOpKind kind) {
  using plan::PostOpKind;
  return kind != PostOpKind::tanh && kind != PostOpKind::gelu_erf && kind != PostOpKind::gelu_tanh;
}

}  // namespace zefuse::primitives
