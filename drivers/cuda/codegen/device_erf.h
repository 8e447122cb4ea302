// erf and erfc in f64, as device_math.h has the rest. The rational fits are those of fdlibm: "Copyright (C) 1993 by Sun
// Microsystems, Inc. All rights reserved. Permission to use, copy, modify, and distribute this software is freely
// granted, provided that this notice is preserved."
#pragma once

#include "drivers/cuda/codegen/device_math.h"

namespace zf::device {

// erfc(a) for a of [0.84375, 28], where erf = 1 - erfc.
ZF_DEVICE double erfcTail(double a) {
  if (a < 1.25) {
    constexpr double p[] = {-2.16637559486879084300e-03, 3.54783043256182359371e-02,  -1.10894694282396677476e-01,
                            3.18346619901161753674e-01,  -3.72207876035701323847e-01, 4.14856118683748331666e-01,
                            -2.36211856075265944077e-03};
    constexpr double q[] = {1.19844998467991074170e-02,
                            1.36370839120290507362e-02,
                            1.26171219808761642112e-01,
                            7.18286544141962662868e-02,
                            5.40397917702171048937e-01,
                            1.06420880400844228286e-01,
                            1};
    const double s = a - 1;
    return 1 - 8.45062911510467529297e-01 - poly(s, p) / poly(s, q);
  }
  const double s = 1 / (a * a);
  double fit;
  if (a < 1 / 0.35) {
    constexpr double p[] = {-9.81432934416914548592e+00, -8.12874355063065934246e+01, -1.84605092906711035994e+02,
                            -1.62396669462573470355e+02, -6.23753324503260060396e+01, -1.05586262253232909814e+01,
                            -6.93858572707181764372e-01, -9.86494403484714822705e-03};
    constexpr double q[] = {-6.04244152148580987438e-02, 6.57024977031928170135e+00, 1.08635005541779435134e+02,
                            4.29008140027567833386e+02,  6.45387271733267880336e+02, 4.34565877475229228821e+02,
                            1.37657754143519042600e+02,  1.96512716674392571292e+01, 1};
    fit = poly(s, p) / poly(s, q);
  } else {
    constexpr double p[] = {-4.83519191608651397019e+02, -1.02509513161107724954e+03, -6.37566443368389627722e+02,
                            -1.60636384855821916062e+02, -1.77579549177547519889e+01, -7.99283237680523006574e-01,
                            -9.86494292470009928597e-03};
    constexpr double q[] = {
        -2.24409524465858183362e+01, 4.74528541206955367215e+02, 2.55305040643316442583e+03, 3.19985821950859553908e+03,
        1.53672958608443695994e+03,  3.25792512996573918826e+02, 3.03380607434824582924e+01, 1};
    fit = poly(s, p) / poly(s, q);
  }
  const double z = fromBitsOf(bitsOf(a) & 0xffffffff00000000ull);
  return exp(-z * z - 0.5625) * exp((z - a) * (z + a) + fit) / a;
}
ZF_DEVICE double erfSmall(double x) {  // |x| < 0.84375: erf(x) = x + x * this
  constexpr double p[] = {-2.37630166566501626084e-05, -5.77027029648944159157e-03, -2.84817495755985104766e-02,
                          -3.25042107247001499370e-01, 1.28379167095512558561e-01};
  constexpr double q[] = {-3.96022827877536812320e-06, 1.32494738004321644526e-04, 5.08130628187576562776e-03,
                          6.50222499887672944485e-02,  3.97917223959155352819e-01, 1};
  const double z = x * x;
  return poly(z, p) / poly(z, q);
}
ZF_DEVICE double erf(double x) {
  const double a = fabs(x);
  if (x != x)
    return x;
  if (a < 0.84375)
    return fma(x, erfSmall(x), x);
  return __builtin_copysign(a < 6 ? 1 - erfcTail(a) : 1.0, x);
}
ZF_DEVICE double erfc(double x) {
  const double a = fabs(x);
  if (x != x)
    return x;
  if (a < 0.84375) {
    const double y = erfSmall(x);
    return x < 0.25 ? 1 - (x + x * y) : 0.5 - ((x - 0.5) + x * y);
  }
  const double r = a < 28 ? erfcTail(a) : 0;
  return x < 0 ? 2 - r : r;
}

}  // namespace zf::device
