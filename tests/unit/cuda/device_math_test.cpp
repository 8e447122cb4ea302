// The math of kernels on an NVIDIA GPU (drivers/cuda/codegen/device_math.h) against long double on the host: the
// largest errors in units in the last place, over twenty thousand arguments each.
#include "drivers/cuda/codegen/device_erf.h"
#include "drivers/cuda/codegen/device_gamma.h"
#include "drivers/cuda/codegen/device_math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <random>

namespace zefuse::test {
namespace {

namespace device = zf::device;
using Unary = double (*)(double);
using Reference = long double (*)(long double);

constexpr int samples = 20'000;

double errorInUlp(double got, long double wanted) {
  const auto rounded = double(wanted);
  if ((std::isnan(got) && std::isnan(rounded)) || got == rounded)
    return 0;
  if (!std::isfinite(got) || !std::isfinite(rounded))
    return std::numeric_limits<double>::infinity();
  const double size = std::fabs(rounded);
  return double(std::fabs((long double)(got)-wanted) / (std::nextafter(size, INFINITY) - size));
}

std::function<double(std::mt19937_64&)> within(double low, double high) {
  return [=](std::mt19937_64& random) { return std::uniform_real_distribution<double>(low, high)(random); };
}
double anyBits(std::mt19937_64& random) { return __builtin_bit_cast(double, uint64_t(random())); }

void expectWithin(const char* name, double bound, Unary ours, Reference reference,
                  const std::function<double(std::mt19937_64&)>& argument) {
  std::mt19937_64 random(1);
  double worst = 0, at = 0;
  for (int i = 0; i < samples; ++i) {
    const double x = argument(random);
    if (const double error = errorInUlp(ours(x), reference(x)); error > worst) {
      worst = error;
      at = x;
    }
  }
  EXPECT_LE(worst, bound) << name << " at " << at << ": " << ours(at);
}
#define EXPECT_ULP(bound, name, argument)                                                                              \
  expectWithin(                                                                                                        \
      #name, bound, [](double x) { return device::name(x); }, [](long double x) { return std::name(x); }, argument)

TEST(DeviceMath, ExponentialsAndLogarithms) {
  EXPECT_ULP(1, exp, within(-745, 709));
  EXPECT_ULP(1, exp, anyBits);
  EXPECT_ULP(1, exp2, within(-1074, 1023));
  EXPECT_ULP(3, expm1, within(-2, 2));
  EXPECT_ULP(3, expm1, within(-50, 700));
  EXPECT_ULP(1, log, anyBits);
  EXPECT_ULP(1, log, within(0.5, 2));
  EXPECT_ULP(1, log2, anyBits);
  EXPECT_ULP(1, log2, within(0.9, 1.1));
  EXPECT_ULP(1, log10, anyBits);
  EXPECT_ULP(3, log1p, within(-1, 3));
  EXPECT_ULP(3, log1p, within(-1e-5, 1e-5));
}

TEST(DeviceMath, Circles) {
  for (const auto& argument : {within(-10, 10), within(-1e9, 1e9), std::function<double(std::mt19937_64&)>(anyBits)}) {
    EXPECT_ULP(1, sin, argument);
    EXPECT_ULP(1, cos, argument);
    EXPECT_ULP(3, tan, argument);
  }
  EXPECT_ULP(1, atan, anyBits);
  EXPECT_ULP(1, atan, within(-5, 5));
  EXPECT_ULP(3, asin, within(-1.1, 1.1));
  EXPECT_ULP(3, acos, within(-1.1, 1.1));
}

TEST(DeviceMath, HyperbolasAndErrors) {
  EXPECT_ULP(3, sinh, within(-711, 711));
  EXPECT_ULP(3, cosh, within(-711, 711));
  EXPECT_ULP(4, tanh, within(-25, 25));
  EXPECT_ULP(3, asinh, anyBits);
  EXPECT_ULP(3, acosh, within(1, 10));
  EXPECT_ULP(3, atanh, within(-1, 1));
  EXPECT_ULP(1, cbrt, anyBits);
  EXPECT_ULP(1, erf, within(-7, 7));
  EXPECT_ULP(3, erfc, within(-6, 26.5));
}

TEST(DeviceMath, Gamma) {
  EXPECT_ULP(6, lgamma, within(0, 3));
  EXPECT_ULP(6, lgamma, within(0.999, 1.001));
  EXPECT_ULP(6, lgamma, within(1.999, 2.001));
  EXPECT_ULP(6, lgamma, within(3, 100));
  EXPECT_ULP(6, lgamma, within(100, 1e9));
  EXPECT_ULP(6, lgamma, within(0, 1e-305));
  EXPECT_ULP(16, tgamma, within(-20, 20));
  EXPECT_ULP(16, tgamma, within(-185, 172));
  EXPECT_ULP(16, tgamma, within(-1e-300, 1e-300));
  std::mt19937_64 random(3);
  for (int i = 0; i < samples; ++i) {  // where it may be near zero
    const double x = within(-150, 0)(random);
    EXPECT_NEAR(device::lgamma(x), double(std::lgamma((long double)(x))), 1e-15 * (10 - 10 * x)) << x;
    EXPECT_EQ(device::lgammaSign(x), std::tgamma(x) < 0 ? -1 : 1) << x;
  }
  const double inf = INFINITY;
  for (const double x : {0.0, -0.0, -1.0, -4.0, -0x1p60, 1.0, 2.0, inf, -inf, double(NAN), 1e308, 171.7, -200.5}) {
    EXPECT_EQ(errorInUlp(device::lgamma(x), std::lgamma(x)) <= 6, true) << x << " " << device::lgamma(x);
    EXPECT_EQ(errorInUlp(device::tgamma(x), std::tgamma(x)), 0) << x << " " << device::tgamma(x);
  }
}

TEST(DeviceMath, TwoArguments) {
  std::mt19937_64 random(2);
  double pow = 0, hypot = 0, atan2 = 0;
  for (int i = 0; i < samples; ++i) {
    const double x = anyBits(random), y = anyBits(random);
    const double base = within(0, 10)(random), exponent = within(-300, 300)(random);
    pow = std::max({pow, errorInUlp(device::pow(x, y), std::pow((long double)(x), (long double)(y))),
                    errorInUlp(device::pow(base, exponent), std::pow((long double)(base), (long double)(exponent)))});
    hypot = std::max(hypot, errorInUlp(device::hypot(x, y), std::hypot((long double)(x), (long double)(y))));
    atan2 = std::max(atan2, errorInUlp(device::atan2(x, y), std::atan2((long double)(x), (long double)(y))));
    // Exact ones.
    EXPECT_EQ(errorInUlp(device::fmod(x, y), std::fmod(x, y)), 0) << x << " " << y;
    EXPECT_EQ(errorInUlp(device::remainder(base, exponent), std::remainder(base, exponent)), 0) << base << exponent;
    const int shift = int(within(-2200, 2200)(random));
    EXPECT_EQ(errorInUlp(device::ldexp(x, shift), std::ldexp(x, shift)), 0) << x << " " << shift;
  }
  EXPECT_LE(pow, 1);
  EXPECT_LE(hypot, 1);
  EXPECT_LE(atan2, 2);
}

}  // namespace
}  // namespace zefuse::test
