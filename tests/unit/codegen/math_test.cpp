// Math functions against libm in f64, and the same bits from scalars and vectors.
#include "tests/unit/codegen/harness.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <map>

namespace zefuse::cpu::testing {
namespace {

struct Unary {
  const char* name;
  double (*reference)(double);
  double max_ulp;
  double low = -INFINITY, high = INFINITY;
};

double signOf(double x) { return x != x ? 0.0 : x > 0 ? 1.0 : x < 0 ? -1.0 : x; }
constexpr double kPi = 3.14159265358979323846;
double sinpi(double x) {
  double r = x - 2 * std::rint(x / 2);
  return r == std::rint(r)    ? std::copysign(0.0, x)
         : std::fabs(r) > 0.5 ? std::sin(kPi * (std::copysign(1.0, r) - r))
                              : std::sin(kPi * r);
}
double cospi(double x) {
  double r = std::fabs(x - 2 * std::rint(x / 2));
  return std::sin(kPi * (0.5 - r));
}

// Bounds: what we promise, a little above what was measured (docs/cpu_codegen.md).
const Unary kUnary[] = {
    {"exp", std::exp, 1},
    {"exp2", std::exp2, 1},
    {"exp10", [](double x) { return exp10(x); }, 2},
    {"expm1", std::expm1, 2},
    {"log", std::log, 1},
    {"log2", std::log2, 2},
    {"log10", std::log10, 2},
    {"log1p", std::log1p, 2},
    {"tanh", std::tanh, 2},
    {"erf", std::erf, 2},
    {"sin", std::sin, 2},
    {"cos", std::cos, 2},
    {"tan", std::tan, 4},
    {"acos", std::acos, 4},
    {"acosh", std::acosh, 4},
    {"asin", std::asin, 4},
    {"asinh", std::asinh, 4},
    {"atan", std::atan, 4},
    {"atanh", std::atanh, 4},
    {"cbrt", std::cbrt, 4},
    {"cosh", std::cosh, 4},
    {"sinh", std::sinh, 4},
    {"erfc", std::erfc, 4},
    {"acospi", [](double x) { return std::acos(x) / kPi; }, 1},
    {"asinpi", [](double x) { return std::asin(x) / kPi; }, 1},
    {"atanpi", [](double x) { return std::atan(x) / kPi; }, 1},
    {"sinpi", sinpi, 1},
    {"cospi", cospi, 1},
    {"ceil", std::ceil, 0},
    {"floor", std::floor, 0},
    {"trunc", std::trunc, 0},
    {"rint", std::rint, 0},
    {"round", std::round, 0},
    {"fabs", std::fabs, 0},
    {"sqrt", std::sqrt, 0.5},
    {"sign", signOf, 0},
    {"rsqrt", [](double x) { return 1 / std::sqrt(x); }, 2},
    {"logb", std::logb, 0},
    {"tgamma", std::tgamma, 8, 0.01, 40},
    {"lgamma", std::lgamma, 8, 3, INFINITY},
    {"native_exp", std::exp, 1},
    {"half_exp", std::exp, 1},
};

double ulpError(float got, double want) {
  if (std::isnan(want))
    return std::isnan(got) ? 0 : INFINITY;
  float rounded = static_cast<float>(want);
  if (std::isinf(rounded) || std::isinf(got))
    return rounded == got                                                                        ? 0
           : (std::isinf(rounded) && std::fabs(got) > 3.4028e38f) || std::fabs(want) > 3.4028e38 ? 1
                                                                                                 : INFINITY;
  if (want == 0 && got == 0)
    return std::signbit(want) == std::signbit(got) ? 0 : INFINITY;
  int e;
  std::frexp(rounded == 0 ? 1e-45 : static_cast<double>(rounded), &e);
  double ulp = std::ldexp(1.0, std::max(e - 24, -149));
  return std::fabs(got - want) / ulp;
}

// Every 16411th bit pattern, and what is special.
const std::vector<float>& samples() {
  static const std::vector<float> all = [] {
    std::vector<float> v;
    for (uint64_t b = 0; b < (1ull << 32); b += 16411)
      v.push_back(std::bit_cast<float>(static_cast<uint32_t>(b)));
    for (float x = -20; x < 20; x += 1.0f / 4096)
      v.push_back(x);
    for (float x : {0.0f,
                    -0.0f,
                    1.0f,
                    -1.0f,
                    0.5f,
                    -0.5f,
                    INFINITY,
                    -INFINITY,
                    NAN,
                    1e-45f,
                    -1e-45f,
                    0x1p-126f,
                    0x1.fffffep127f,
                    88.72283f,
                    88.72284f,
                    -87.33655f,
                    -103.97f,
                    -104.0f,
                    128.0f,
                    -149.0f,
                    -150.0f,
                    3.8f,
                    9.1f,
                    0.93f,
                    0x1p28f,
                    1e10f,
                    1e30f})
      for (int d = -2; d <= 2; ++d)
        v.push_back(std::isfinite(x) && x != 0 ? std::bit_cast<float>(std::bit_cast<int32_t>(x) + d) : x);
    while (v.size() % 64)
      v.push_back(0);
    return v;
  }();
  return all;
}

class Math : public ::testing::TestWithParam<IsaLevel> {
protected:
  static Program& program() {
    static std::map<IsaLevel, std::unique_ptr<Program>> all;
    auto& p = all[GetParam()];
    if (!p)
      p = std::make_unique<Program>(loadSpirv("math"), CompileOptions{.isa = GetParam()});
    return *p;
  }
  static void expectSameBits(const std::string& name, const std::vector<float>& a, const std::vector<float>& b) {
    int shown = 0;
    for (size_t i = 0; i < a.size() && shown < 3; ++i)
      if (std::bit_cast<uint32_t>(a[i]) != std::bit_cast<uint32_t>(b[i]) && !(std::isnan(a[i]) && std::isnan(b[i]))) {
        ADD_FAILURE() << name << " at sample " << i << ": scalar " << a[i] << ", vector " << b[i];
        ++shown;
      }
  }
};

TEST_P(Math, UnaryWithinBoundsAndTheSameInVectors) {
  auto& x = samples();
  ASSERT_TRUE(program().ok());
  for (const Unary& f : kUnary) {
    std::vector<float> y(x.size()), v(x.size());
    program().run(std::string("f32_") + f.name, {x.size() / 64, 1, 1}, {64, 1, 1}, {Arg::buffer(x), Arg::buffer(y)});
    program().run(std::string("f32x16_") + f.name, {x.size() / 16, 1, 1}, {1, 1, 1}, {Arg::buffer(x), Arg::buffer(v)});
    expectSameBits(f.name, y, v);
    double worst = 0;
    size_t at = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      if (std::isfinite(x[i]) && (x[i] < f.low || x[i] > f.high))
        continue;
      double e = ulpError(y[i], f.reference(x[i]));
      if (e > worst) {
        worst = e;
        at = i;
      }
    }
    EXPECT_LE(worst, f.max_ulp) << f.name << "(" << std::hexfloat << x[at] << ") = " << y[at] << ", wanted "
                                << f.reference(x[at]);
    RecordProperty(f.name, std::to_string(worst));
    if (std::getenv("ZEFUSE_PRINT_ULP"))
      printf("%-12s %.3f ulp at %a\n", f.name, worst, x[at]);
  }
}

TEST_P(Math, Binary) {
  struct Binary {
    const char* name;
    double (*reference)(double, double);
    double max_ulp;
  };
  const Binary kBinary[] = {
      {"atan2", std::atan2, 4},         {"pow", std::pow, 4},   {"hypot", std::hypot, 4}, {"fmod", std::fmod, 0},
      {"remainder", std::remainder, 0}, {"fmax", std::fmax, 0}, {"fmin", std::fmin, 0},   {"fdim", std::fdim, 0.5},
      {"copysign", std::copysign, 0},
  };
  std::vector<float> x, z;
  auto& all = samples();
  for (size_t i = 0; i < 1 << 18; ++i) {
    x.push_back(all[i * 7919 % all.size()]);
    z.push_back(all[i * 104729 % all.size()]);
  }
  for (float a : {0.0f, -0.0f, 1.0f, -1.0f, 2.0f, -3.0f, 0.5f, INFINITY, -INFINITY, NAN, 1e30f, -1e-40f, 7.0f})
    for (float b : {0.0f, -0.0f, 1.0f, -1.0f, 2.0f, -3.0f, 0.5f, INFINITY, -INFINITY, NAN, 1e30f, -1e-40f, 7.0f}) {
      x.push_back(a);
      z.push_back(b);
    }
  while (x.size() % 64) {
    x.push_back(1);
    z.push_back(1);
  }
  ASSERT_TRUE(program().ok());
  for (const Binary& f : kBinary) {
    std::vector<float> y(x.size()), v(x.size());
    program().run(std::string("f32_") + f.name, {x.size() / 64, 1, 1}, {64, 1, 1},
                  {Arg::buffer(x), Arg::buffer(z), Arg::buffer(y)});
    program().run(std::string("f32x16_") + f.name, {x.size() / 16, 1, 1}, {1, 1, 1},
                  {Arg::buffer(x), Arg::buffer(z), Arg::buffer(v)});
    expectSameBits(f.name, y, v);
    double worst = 0;
    size_t at = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      double want = f.reference(x[i], z[i]);
      if (want == 0 && y[i] == 0 && (f.name[0] == 'f' || f.name[0] == 'r'))
        continue;  // fmax(+0, -0) may be either
      double e = ulpError(y[i], want);
      if (e > worst) {
        worst = e;
        at = i;
      }
    }
    EXPECT_LE(worst, f.max_ulp) << f.name << "(" << x[at] << ", " << z[at] << ") = " << y[at] << ", wanted "
                                << f.reference(x[at], z[at]);
    if (std::getenv("ZEFUSE_PRINT_ULP"))
      printf("%-12s %.3f ulp at %a %a\n", f.name, worst, x[at], z[at]);
  }
}

TEST_P(Math, Double) {
  struct F64 {
    const char* name;
    double (*reference)(double);
    double max_ulp;
  };
  const F64 kF64[] = {{"exp", std::exp, 4},     {"log", std::log, 4},     {"tanh", std::tanh, 4},
                      {"erf", std::erf, 4},     {"sin", std::sin, 4},     {"cos", std::cos, 4},
                      {"sqrt", std::sqrt, 0},   {"expm1", std::expm1, 4}, {"log1p", std::log1p, 4},
                      {"log2", std::log2, 4},   {"exp2", std::exp2, 4},   {"cbrt", std::cbrt, 4},
                      {"round", std::round, 0}, {"acos", std::acos, 4}};
  std::vector<double> x;
  for (int i = 0; i < 1 << 14; ++i)
    x.push_back((i - (1 << 13)) * 0.0123456789);
  for (double v : {0.0, -0.0, HUGE_VAL, -HUGE_VAL, std::nan(""), 1e300, -1e300, 5e-324, 709.78, 709.79, -745.2, 0.5,
                   1.0, -1.0, 1e-10, 1e22})
    x.push_back(v);
  ASSERT_EQ(x.size() % 16, 0u);
  Program p(loadSpirv("math_f64"), {.isa = GetParam()});
  ASSERT_TRUE(p.ok());
  for (const F64& f : kF64) {
    std::vector<double> y(x.size()), v(x.size());
    p.run(std::string("f64_") + f.name, {x.size() / 16, 1, 1}, {16, 1, 1}, {Arg::buffer(x), Arg::buffer(y)});
    p.run(std::string("f64x16_") + f.name, {x.size() / 16, 1, 1}, {1, 1, 1}, {Arg::buffer(x), Arg::buffer(v)});
    for (size_t i = 0; i < x.size(); ++i) {
      double want = f.reference(x[i]);
      if (std::isnan(want)) {
        EXPECT_TRUE(std::isnan(y[i]) && std::isnan(v[i])) << f.name << " " << x[i];
        continue;
      }
      ASSERT_EQ(std::bit_cast<uint64_t>(y[i]), std::bit_cast<uint64_t>(v[i])) << f.name << " " << x[i];
      double ulp = std::nextafter(std::fabs(want), HUGE_VAL) - std::fabs(want);
      ASSERT_TRUE(y[i] == want || std::fabs(y[i] - want) <= f.max_ulp * ulp) << f.name << "(" << x[i] << ") = " << y[i];
    }
  }
}

TEST_P(Math, MaximumPropagatesNan) {
  Program p(loadSpirv("math_small"), {.isa = GetParam()});
  ASSERT_TRUE(p.ok());
  std::vector<float> values{0.0f, -0.0f, 1.0f, -1.0f, INFINITY, -INFINITY, NAN, 3e38f}, a, b;
  for (float x : values)
    for (float y : values) {
      a.push_back(x);
      b.push_back(y);
    }
  std::vector<float> max(64), min(64);
  p.run("nan_max", {4, 1, 1}, {1, 1, 1}, {Arg::buffer(a), Arg::buffer(b), Arg::buffer(max), Arg::buffer(min)});
  for (size_t i = 0; i < 64; ++i) {
    bool nan = std::isnan(a[i]) || std::isnan(b[i]);
    EXPECT_EQ(std::isnan(max[i]), nan);
    EXPECT_EQ(std::isnan(min[i]), nan);
    if (!nan) {
      EXPECT_EQ(max[i], std::max(a[i], b[i]));
      EXPECT_EQ(min[i], std::min(a[i], b[i]));
    }
  }
}

std::vector<IsaLevel> lowestAndHighest() {
  if (hostIsaLevel() == IsaLevel::x86_64_v3)
    return {IsaLevel::x86_64_v3};
  return {IsaLevel::x86_64_v3, hostIsaLevel()};
}
INSTANTIATE_TEST_SUITE_P(Levels, Math, ::testing::ValuesIn(lowestAndHighest()),
                         [](auto& i) { return std::string(isaLevelName(i.param)); });

}  // namespace
}  // namespace zefuse::cpu::testing
