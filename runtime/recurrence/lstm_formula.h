// An LSTM cell's formula for a vector of units, with fewer instructions than its functions of vector_math.h would take
// one by one: that formula is as long as the products of some hundreds of units.
#pragma once

#include "runtime/recurrence/vectors.h"

namespace zefuse::recurrence {

// x becomes e^-x, within 1e-7 of it: the sigmoid's denominator less one. Between 3e-39 and 2e38; NaN stays.
template <int lanes> [[gnu::always_inline]] inline void inverseExponential(Vector<lanes>& x) {
  using Int = typename primitives::VectorOf<lanes>::Int;
  const Vector<lanes> least = Vector<lanes>{} - 88.3f, most = Vector<lanes>{} + 87.f;
  const Vector<lanes> magic = Vector<lanes>{} + 12582912.f;  // 1.5 * 2^23: adding it rounds to an integer
  x = x < least ? least : x;
  x = x > most ? most : x;
  const Vector<lanes> shifted = magic - x * 1.44269504f;
  const Vector<lanes> r = x + (shifted - magic) * 0.693147181f;  // -x is n log(2) - r
  Vector<lanes> p = 4.189839009e-02f - r * 8.290229405e-03f;
  p = 1.666764006e-01f - p * r;
  p = 4.999914615e-01f - p * r;
  p = 9.999997054e-01f - p * r;
  p = 1.f - p * r;
  x = (Vector<lanes>)((Int)p + ((Int)shifted << 23));  // 2^n times that
}

// x becomes e^2x - 1, where tanh(x) is not yet one; nothing cancels near zero. NaN stays.
template <int lanes> [[gnu::always_inline]] inline void doubledExponential(Vector<lanes>& x) {
  using Int = typename primitives::VectorOf<lanes>::Int;
  const Vector<lanes> limit = Vector<lanes>{} + 9.5f;  // from here on tanh rounds to one
  const Vector<lanes> magic = Vector<lanes>{} + 12582912.f, one = Vector<lanes>{} + 1.f;
  x = x > limit ? limit : x;
  x = x < -limit ? -limit : x;
  const Vector<lanes> shifted = magic + x * 2.88539008f;
  const Vector<lanes> r = x - (shifted - magic) * 0.34657359f;  // e^2r and its 2s in the factors
  Vector<lanes> p = r * (64 * 1.388887276e-03f) + 32 * 8.369140043e-03f;
  p = p * r + 16 * 4.166713809e-02f;
  p = p * r + 8 * 1.666650558e-01f;
  p = p * r + 4 * 4.999999811e-01f;
  p = p * r + 2 * 1.000000011e+00f;
  p = p * r;
  const Vector<lanes> power = (Vector<lanes>)((Int)one + ((Int)shifted << 23));
  x = p * power + (power - 1.f);
}

// What the four gates are before their functions becomes what they are behind them.
template <int lanes> struct LstmGates {
  Vector<lanes> i, f, g, o;
};

// x: the cell before the step, becomes the cell behind it, and `hidden` what the cell gives. Factors of a product share
// a division. With `keeps` the gates become their values for a derivative, in which g stands beside i: it is not exact
// where i is below 1e-29. The bits of the others do not depend on it.
template <int lanes, bool keeps>
[[gnu::always_inline]] inline void lstmFormula(LstmGates<lanes>& gates, Vector<lanes>& x, Vector<lanes>& hidden) {
  auto& [i, f, g, o] = gates;
  // A sigmoid whose exponential is beyond f32 is zero, as in eager: times an infinity that is NaN, and a sum with it
  // keeps the other's sign.
  const Vector<lanes> none = Vector<lanes>{} - 88.73f, zero = {};
  const auto shut_i = i < none, shut_f = f < none, shut_o = o < none;
  inverseExponential<lanes>(i);
  inverseExponential<lanes>(f);
  doubledExponential<lanes>(g);
  inverseExponential<lanes>(o);
  f = shut_f ? zero : 1.f / (1.f + f);
  const Vector<lanes> below_i = 1.f + i, below_g = g + 2.f;
  const Vector<lanes> factor = shut_i ? zero : 1.f / (below_i * below_g);
  x = f * x + g * factor;
  hidden = x;
  doubledExponential<lanes>(hidden);
  const Vector<lanes> below_hidden = hidden + 2.f;
  const Vector<lanes> factor_of_o = shut_o ? zero : 1.f / (below_hidden * (1.f + o));
  hidden = hidden * factor_of_o;
  if constexpr (keeps) {
    i = below_g * factor;
    g = g * (factor * below_i);
    o = below_hidden * factor_of_o;
  }
}

}  // namespace zefuse::recurrence
