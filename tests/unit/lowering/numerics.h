// What the numerics tests share: data, guarded buffers, kernels' building blocks and their plain C++ counterparts.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <ostream>
#include <random>

#include "tests/unit/lowering/kernel_text.h"

namespace zefuse {

inline void PrintTo(const TargetDescription& target, std::ostream* stream) { *stream << target.name; }

namespace test {

// Every kernel runs with each schedule: what the CPU driver's work-groups compute is what a GPU would.
inline std::vector<TargetDescription> targets() {
  return {TargetDescription::cpu(), *TargetDescription::named("dg2-g11"), *TargetDescription::named("bmg-g21")};
}

class Lowering : public testing::TestWithParam<TargetDescription> {};

inline std::string targetName(const testing::TestParamInfo<TargetDescription>& info) {
  std::string name = info.param.name;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

using Floats = std::vector<float>;

inline Floats randomFloats(size_t count, unsigned seed = 1, float scale = 2) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0, scale);
  Floats values(count);
  for (float& value : values)
    value = normal(generator);
  return values;
}

// a [m, k] times b [k, n], in double precision.
inline std::vector<double> productOf(const Floats& a, const Floats& b, int m, int n, int k) {
  std::vector<double> product(size_t(m) * n);
  for (int i = 0; i < m; ++i)
    for (int j = 0; j < n; ++j)
      for (int l = 0; l < k; ++l)
        product[i * n + j] += double(a[i * k + l]) * b[l * n + j];
  return product;
}

// Guard elements around a buffer notice stores outside it.
struct Guarded {
  static constexpr size_t guard = 64;
  Floats all;
  explicit Guarded(size_t count) : all(count + 2 * guard, 777.0f) {}
  float* data() { return all.data() + guard; }
  float operator[](size_t i) const { return all[guard + i]; }
  void expectUntouched() const {
    for (size_t i = 0; i < guard; ++i) {
      EXPECT_EQ(all[i], 777.0f) << "written before the buffer";
      EXPECT_EQ(all[all.size() - 1 - i], 777.0f) << "written after the buffer";
    }
  }
};

inline void expectNear(const Guarded& result, const std::vector<double>& expected, double tolerance = 2e-6) {
  result.expectUntouched();
  for (size_t i = 0; i < expected.size(); ++i)
    ASSERT_NEAR(result[i], expected[i], tolerance * (1 + std::abs(expected[i]))) << "element " << i;
}

inline std::string type(const std::string& shape, const std::string& element = "f32") {
  return "tensor<" + shape + "x" + element + ">";
}
inline std::string type(size_t rows, size_t columns) {
  return type(std::to_string(rows) + "x" + std::to_string(columns));
}
inline std::string flat(size_t columns) { return "(d0, d1) -> (d0 * " + std::to_string(columns) + " + d1)"; }
inline const char* const both = "(d0, d1) -> (d0, d1)";
inline const char* const rows = "(d0, d1) -> (d0)";
inline const char* const columns = "(d0, d1) -> (d1)";

inline const char* const probe_body = R"(
  %half = arith.constant 0.5 : f32
  %one = arith.constant 1.0 : f32
  %k = arith.constant 0.70710678118654752 : f32
  %low = arith.constant -3.0 : f32
  %high = arith.constant 3.0 : f32
  %m = arith.mulf %0, %1 : f32
  %v = arith.addf %m, %2 : f32
  %e0 = arith.mulf %v, %k : f32
  %e1 = math.erf %e0 : f32
  %e2 = arith.addf %e1, %one : f32
  %e3 = arith.mulf %v, %half : f32
  %gelu = arith.mulf %e3, %e2 : f32
  %n = arith.negf %0 : f32
  %en = math.exp %n : f32
  %d = arith.addf %en, %one : f32
  %sig = arith.divf %one, %d : f32
  %p = arith.mulf %gelu, %sig : f32
  %t = math.tanh %1 : f32
  %s = arith.addf %p, %t : f32
  %c0 = arith.maximumf %s, %low : f32
  %c1 = arith.minimumf %c0, %high : f32
  %ex = math.exp %c1 : f32
  %lp = math.log1p %ex : f32
  %r = arith.addf %c1, %lp : f32
  yield %r : f32)";

inline double probe(double x, double y, double b) {
  double v = x * y + b;
  double s = 0.5 * v * (1 + std::erf(v * M_SQRT1_2)) / (1 + std::exp(-x)) + std::tanh(y);
  double c = std::min(std::max(s, -3.0), 3.0);
  return c + std::log1p(std::exp(c));
}

struct RowOps {
  KernelText& text;
  std::string full, row;
  int next = 0;

  std::string fresh() { return "%v" + std::to_string(next++); }
  std::string reduce(const std::string& x, const std::string& init, const std::string& combiner) {
    std::string i = fresh(), r = fresh();
    text.fill(i, row, init);
    text.generic(r, "pr", {{x, full, both}}, {i, row, rows}, "%s = " + combiner + " %0, %o : f32\n yield %s : f32");
    return r;
  }
  std::string map(const std::vector<Operand>& ins, const std::string& body) {
    std::string e = fresh(), r = fresh();
    text.empty(e, full);
    text.generic(r, "pp", ins, {e, full, both}, body);
    return r;
  }
  Operand whole(const std::string& x) { return {x, full, both}; }
  Operand perRow(const std::string& x) { return {x, row, rows}; }

  std::string softmax(const std::string& x) {
    std::string m = reduce(x, "0xFF800000", "arith.maximumf");
    std::string e =
        map({whole(x), perRow(m)}, "%d = arith.subf %0, %1 : f32\n %r = math.exp %d : f32\n yield %r : f32");
    std::string s = reduce(e, "0.0", "arith.addf");
    return map({whole(e), perRow(s)}, "%r = arith.divf %0, %1 : f32\n yield %r : f32");
  }
  // Two passes, as eager does.
  std::string layerNorm(const std::string& x, const std::string& w, const std::string& b, const std::string& vector,
                        size_t m) {
    std::string s = reduce(x, "0.0", "arith.addf");
    std::string count = "%n = arith.constant " + std::to_string(m) + ".0 : f32\n";
    std::string c = map({whole(x), perRow(s)},
                        count + "%mean = arith.divf %1, %n : f32\n %d = arith.subf %0, %mean : f32\n yield %d : f32");
    std::string q = map({whole(c)}, "%d = arith.mulf %0, %0 : f32\n yield %d : f32");
    std::string v = reduce(q, "0.0", "arith.addf");
    return map({whole(c), perRow(v), {w, vector, columns}, {b, vector, columns}},
               count + R"(%eps = arith.constant 1.0e-5 : f32
      %var = arith.divf %1, %n : f32
      %ve = arith.addf %var, %eps : f32
      %rs = math.rsqrt %ve : f32
      %a = arith.mulf %0, %rs : f32
      %aw = arith.mulf %a, %2 : f32
      %r = arith.addf %aw, %3 : f32
      yield %r : f32)");
  }
};

inline std::vector<double> softmaxOf(const std::vector<double>& x, size_t n, size_t m) {
  std::vector<double> out(x.size());
  for (size_t i = 0; i < n; ++i) {
    double top = -INFINITY, sum = 0;
    for (size_t j = 0; j < m; ++j)
      top = std::max(top, x[i * m + j]);
    for (size_t j = 0; j < m; ++j)
      sum += out[i * m + j] = std::exp(x[i * m + j] - top);
    for (size_t j = 0; j < m; ++j)
      out[i * m + j] /= sum;
  }
  return out;
}

inline std::vector<double> layerNormOf(const Floats& x, const Floats& w, const Floats& b, size_t n, size_t m) {
  std::vector<double> out(x.size());
  for (size_t i = 0; i < n; ++i) {
    double sum = 0, squares = 0;
    for (size_t j = 0; j < m; ++j)
      sum += x[i * m + j];
    for (size_t j = 0; j < m; ++j)
      squares += (x[i * m + j] - sum / m) * (x[i * m + j] - sum / m);
    for (size_t j = 0; j < m; ++j)
      out[i * m + j] = (x[i * m + j] - sum / m) / std::sqrt(squares / m + 1e-5) * w[j] + b[j];
  }
  return out;
}

}  // namespace test
}  // namespace zefuse
