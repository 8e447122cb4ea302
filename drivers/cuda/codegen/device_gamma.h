// The gamma function and its logarithm, scalars in f64 for NVPTX and for the host's tests (device_math.h). DLMF: NIST
// Digital Library of Mathematical Functions, chapter 5.
#pragma once

#include "drivers/cuda/codegen/device_math.h"

namespace zf::device {

// log(gamma(2 + z)) for |z| <= 0.5: DLMF 5.7.3 at 1 + z, with log(1 + z) taken out of each zeta(k). Highest power
// first; the last is 1 - Euler's constant.
ZF_DEVICE double lgammaOfTwoAnd(double z) {
  constexpr double c[] = {
      1.330476437424449e-10,  -2.7595228851242334e-10, 5.731367241678862e-10,  -1.1921401405860912e-09,
      2.4836745438024785e-09, -5.183475041970047e-09,  1.0838659214896955e-08, -2.2711094608943164e-08,
      4.7698101693639804e-08, -1.0043224823968099e-07, 2.1207184805554665e-07, -4.492469198764566e-07,
      9.55141213040742e-07,   -2.039215753801366e-06,  4.374866789907488e-06,  -9.439488275268397e-06,
      2.050721277567069e-05,  -4.492623673813314e-05,  9.945751278180853e-05,  -0.00022315475845357939,
      0.0005096695247430425,  -0.001192753911703261,   0.0028905103307415234,  -0.007385551028673986,
      0.020580808427784546,   -0.0673523010531981,     0.3224670334241132,     0.42278433509846713};
  return z * poly(z, c);
}

// Stirling's series (DLMF 5.11.1) without its first terms, for x >= 8.
ZF_DEVICE double stirling(double x) {
  constexpr double c[] = {-1.3924322169059011,    0.17964437236883057,   -0.029550653594771242,  0.00641025641025641,
                          -0.0019175269175269176, 0.0008417508417508417, -0.0005952380952380953, 0.0007936507936507937,
                          -0.002777777777777778,  0.08333333333333333};
  const double inverse = 1 / x;
  return inverse * poly(inverse * inverse, c);
}

ZF_DEVICE double lgammaOfPositive(double x) {
  constexpr double half_log_two_pi = 0.9189385332046728;
  if (x >= 8)
    return (x - 0.5) * (log(x) - 1) + (half_log_two_pi - 0.5) + stirling(x);
  if (x < 0.5)
    return lgammaOfTwoAnd(x) - log1p(x) - log(x);
  if (x < 1.5)
    return lgammaOfTwoAnd(x - 1) - log1p(x - 1);
  double factor = 1;
  while (x > 2.5) {
    x -= 1;
    factor *= x;
  }
  return lgammaOfTwoAnd(x - 2) + log(factor);
}

// log(|gamma(x)|). For x > 0 within 6 ulp; below, by reflection, with an absolute error of that size: between its poles
// the result passes through zero.
ZF_DEVICE double lgamma(double x) {
  constexpr double pi = 3.141592653589793;
  if (!isFinite(x))
    return x * x;
  if (x > 0)
    return lgammaOfPositive(x);
  if (isInteger(x))
    return inf();
  const double a = -x;
  return a < 0x1p-60 ? -log(a) : log(pi / (a * fabs(sinpi(a)))) - lgammaOfPositive(a);
}

// The sign of gamma(x): 1 or -1.
ZF_DEVICE int lgammaSign(double x) {
  if (x == 0)
    return __builtin_copysign(1.0, x) < 0 ? -1 : 1;
  return x < 0 && !isInteger(x) && isOdd(__builtin_floor(x)) ? -1 : 1;
}

// gamma(x) for x > 0 as rest * half * half: the whole overflows from 171.6 on, where its inverse is still a number.
struct GammaParts {
  double rest, half;
};
ZF_DEVICE GammaParts gammaParts(double x) {
  constexpr double root_of_two_pi = 2.5066282746310007;
  if (x >= 200)
    return {1, inf()};
  if (x >= 12)
    return {root_of_two_pi * exp(stirling(x)), pow(x, 0.5 * (x - 0.5)) * exp(-0.5 * x)};
  if (x < 0.5)
    return {exp(lgammaOfTwoAnd(x)) / (x * (1 + x)), 1};
  if (x < 1.5)
    return {exp(lgammaOfTwoAnd(x - 1)) / x, 1};
  double factor = 1;
  while (x > 2.5) {
    x -= 1;
    factor *= x;
  }
  return {factor * exp(lgammaOfTwoAnd(x - 2)), 1};
}

// Within 16 ulp, OpenCL's bound.
ZF_DEVICE double tgamma(double x) {
  constexpr double pi = 3.141592653589793;
  if (x != x || x == -inf())
    return nan();
  if (fabs(x) < 0x1p-60)
    return 1 / x;
  if (x > 0) {
    const GammaParts parts = gammaParts(x);
    return parts.rest * parts.half * parts.half;
  }
  if (isInteger(x))
    return nan();
  const GammaParts parts = gammaParts(-x);  // DLMF 5.5.3
  return pi / (x * sinpi(-x)) / parts.rest / parts.half / parts.half;
}

}  // namespace zf::device
