// exp, exp2 and exp10 in f32 around the device's instruction (drivers/cuda/codegen/device_exp.h), which is exact to
// rounding here: what the reduction adds to its 2 ulp.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "tests/unit/codegen/harness.h"

namespace zefuse::cpu::testing {
namespace {

double ulps(float actual, double expected) {
  const double spacing = std::max(std::ldexp(1.0, std::ilogb(expected) - 23), 0x1p-149);
  return std::abs(double(actual) - expected) / spacing;
}

TEST(Powers, AreNearlyExact) {
  std::mt19937 engine(1);
  std::uniform_real_distribution<float> within(-110.0f, 95.0f);
  std::vector<float> x(1 << 13);
  for (float& each : x)
    each = within(engine);
  std::vector<float> out(3 * x.size());
  Program program(loadSpirv("../cuda/powers"));
  ASSERT_TRUE(program.ok());
  program.run("powers", {x.size() / 64, 1, 1}, {64, 1, 1}, {Arg::buffer(x), Arg::buffer(out)});
  double worst[3] = {};
  for (size_t i = 0; i < x.size(); ++i) {
    const double exact[] = {std::exp(double(x[i])), std::exp2(double(x[i])), std::pow(10.0, double(x[i]))};
    for (size_t k = 0; k < 3; ++k)
      if (exact[k] < std::numeric_limits<float>::max() && exact[k] > 0x1p-149)
        worst[k] = std::max(worst[k], ulps(out[3 * i + k], exact[k]));
      else
        EXPECT_TRUE(out[3 * i + k] == float(exact[k]) || out[3 * i + k] == 0x1p-149f || std::isinf(out[3 * i + k]))
            << x[i] << ": " << out[3 * i + k];
  }
  EXPECT_LT(worst[0], 1.6);
  EXPECT_LT(worst[1], 0.6);
  EXPECT_LT(worst[2], 1.6);
}

TEST(Powers, OfNumbersThatAreNone) {
  const float nan = std::nanf(""), inf = std::numeric_limits<float>::infinity();
  std::vector<float> x = {nan, -inf, inf, 0.0f, -0.0f, 3e38f, -3e38f, 1e-40f};
  std::vector<float> out(3 * x.size());
  Program program(loadSpirv("../cuda/powers"));
  ASSERT_TRUE(program.ok());
  program.run("powers", {1, 1, 1}, {x.size(), 1, 1}, {Arg::buffer(x), Arg::buffer(out)});
  const float expected[] = {nan, 0, inf, 1, 1, inf, 0, 1};
  for (size_t i = 0; i < x.size(); ++i)
    for (size_t k = 0; k < 3; ++k)
      EXPECT_TRUE(out[3 * i + k] == expected[i] || (std::isnan(out[3 * i + k]) && std::isnan(expected[i])))
          << x[i] << ", function " << k << ": " << out[3 * i + k];
}

}  // namespace
}  // namespace zefuse::cpu::testing
