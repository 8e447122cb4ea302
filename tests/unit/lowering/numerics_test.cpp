// Kernels lowered, compiled for the host and compared with plain C++.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <limits>
#include <random>
#include <thread>

#include "lowering/native/ocloc.h"
#include "lowering/native/subprocess.h"
#include "tests/unit/lowering/kernel_text.h"

namespace zefuse::test {
namespace {

using Floats = std::vector<float>;

Floats randomFloats(size_t count, unsigned seed = 1, float scale = 2) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0, scale);
  Floats values(count);
  for (float& value : values)
    value = normal(generator);
  return values;
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

void expectNear(const Guarded& result, const std::vector<double>& expected, double tolerance = 2e-6) {
  result.expectUntouched();
  for (size_t i = 0; i < expected.size(); ++i)
    ASSERT_NEAR(result[i], expected[i], tolerance * (1 + std::abs(expected[i]))) << "element " << i;
}

std::string type(const std::string& shape, const std::string& element = "f32") {
  return "tensor<" + shape + "x" + element + ">";
}
std::string type(size_t rows, size_t columns) { return type(std::to_string(rows) + "x" + std::to_string(columns)); }
std::string flat(size_t columns) { return "(d0, d1) -> (d0 * " + std::to_string(columns) + " + d1)"; }
const char* const both = "(d0, d1) -> (d0, d1)";
const char* const rows = "(d0, d1) -> (d0)";
const char* const columns = "(d0, d1) -> (d1)";

//===-- pointwise ------------------------------------------------------------------------------===//

const char* const probe_body = R"(
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

double probe(double x, double y, double b) {
  double v = x * y + b;
  double s = 0.5 * v * (1 + std::erf(v * M_SQRT1_2)) / (1 + std::exp(-x)) + std::tanh(y);
  double c = std::min(std::max(s, -3.0), 3.0);
  return c + std::log1p(std::exp(c));
}

class Pointwise : public testing::TestWithParam<std::pair<size_t, size_t>> {};

TEST_P(Pointwise, Probe) {
  auto [n, m] = GetParam();
  KernelText text;
  text.name = "probe";
  std::string full = type(n, m), bias = type(std::to_string(m));
  text.input({"%x", full, flat(m)});
  text.input({"%y", full, flat(m)});
  text.input({"%b", bias, "(d0) -> (d0)"});
  text.empty("%e", full);
  text.generic("%r", "pp", {{"%x", full, both}, {"%y", full, both}, {"%b", bias, columns}}, {"%e", full, both},
               probe_body);
  text.output({"%r", full, flat(m)});
  Program program(text.module());
  ASSERT_TRUE(program.ok());
  Floats x = randomFloats(n * m, 1), y = randomFloats(n * m, 2), b = randomFloats(m, 3);
  Guarded out(n * m);
  program.run({x.data(), y.data(), b.data(), out.data()});
  std::vector<double> expected(n * m);
  for (size_t i = 0; i < n * m; ++i)
    expected[i] = probe(x[i], y[i], b[i % m]);
  expectNear(out, expected, 4e-6);
}

INSTANTIATE_TEST_SUITE_P(Sizes, Pointwise,
                         testing::Values(std::pair{64, 64}, std::pair{5, 77}, std::pair{1, 1}, std::pair{3, 7},
                                         std::pair{1, 1000}, std::pair{100, 1}, std::pair{0, 16}, std::pair{4, 0},
                                         std::pair{33, 17}));

TEST(Lowering, PermutedAndBroadcastInputs) {
  // out[i, j] = a[j, i] + row[i] * b[0, j], a permuted by a view, b broadcast.
  KernelText text;
  text.input({"%a", type("40x24"), flat(24)});
  text.input({"%row", type("24"), "(d0) -> (d0)"});
  text.input({"%b", type("1x40"), flat(40)});
  text.line("%at = zefuse.view %a affine_map<(d0, d1) -> (d1, d0)> : tensor<40x24xf32> -> tensor<24x40xf32>");
  text.line("%bt = zefuse.view %b affine_map<(d0) -> (0, d0)> : tensor<1x40xf32> -> tensor<40xf32>");
  text.empty("%e", type("24x40"));
  text.generic("%r", "pp", {{"%at", type("24x40"), both}, {"%row", type("24"), rows}, {"%bt", type("40"), columns}},
               {"%e", type("24x40"), both},
               "%p = arith.mulf %1, %2 : f32\n %s = arith.addf %0, %p : f32\n yield %s : f32");
  text.output({"%r", type("24x40"), flat(40)});
  Program program(text.module());
  ASSERT_TRUE(program.ok());
  Floats a = randomFloats(40 * 24), row = randomFloats(24, 2), b = randomFloats(40, 3);
  Guarded out(24 * 40);
  program.run({a.data(), row.data(), b.data(), out.data()});
  std::vector<double> expected;
  for (int i = 0; i < 24; ++i)
    for (int j = 0; j < 40; ++j)
      expected.push_back(double(a[j * 24 + i]) + double(row[i]) * b[j]);
  expectNear(out, expected);
}

TEST(Lowering, SlicedReshapedFlippedViews) {
  // x[6, 8, 20] -> x[:, 2:6, ::2] -> reshape [24, 10] -> flip of dim 1, times a contiguous y.
  KernelText text;
  text.input({"%x", type("6x8x20"), "(d0, d1, d2) -> (d0 * 160 + d1 * 20 + d2)"});
  text.input({"%y", type("24x10"), flat(10)});
  text.line("%sl = zefuse.view %x affine_map<(d0, d1, d2) -> (d0, d1 + 2, d2 * 2)> : tensor<6x8x20xf32> -> "
            "tensor<6x4x10xf32>");
  text.line("%f = zefuse.view %sl affine_map<(d0, d1) -> (d0 floordiv 4, d0 mod 4, 9 - d1)> : tensor<6x4x10xf32> -> "
            "tensor<24x10xf32>");
  text.empty("%e", type("24x10"));
  text.generic("%r", "pp", {{"%f", type("24x10"), both}, {"%y", type("24x10"), both}}, {"%e", type("24x10"), both},
               "%s = arith.addf %0, %1 : f32\n yield %s : f32");
  text.output({"%r", type("24x10"), flat(10)});
  Program program(text.module());
  ASSERT_TRUE(program.ok());
  Floats x = randomFloats(6 * 8 * 20), y = randomFloats(240, 2);
  Guarded out(240);
  program.run({x.data(), y.data(), out.data()});
  std::vector<double> expected;
  for (int i = 0; i < 24; ++i)
    for (int j = 0; j < 10; ++j)
      expected.push_back(double(x[i / 4 * 160 + (i % 4 + 2) * 20 + (9 - j) * 2]) + y[i * 10 + j]);
  expectNear(out, expected);
}

class Concat : public testing::TestWithParam<std::tuple<int, int, int>> {};

TEST_P(Concat, Pieces) {
  auto [n, a, b] = GetParam();
  int m = a + b + 3;
  for (int dim : {0, 1}) {
    auto shape = [&](int size) { return dim == 1 ? type(n, size) : type(size, n); };
    int outer = dim == 1 ? n : m, inner = dim == 1 ? m : n;
    KernelText text;
    std::string ts[] = {shape(a), shape(b), shape(3)};
    int sizes[] = {a, b, 3};
    for (int i = 0; i < 3; ++i)
      text.input({"%x" + std::to_string(i), ts[i], flat(dim == 1 ? sizes[i] : n)});
    std::string full = shape(m);
    text.line("%c = tensor.concat dim(" + std::to_string(dim) + ") %x0, %x1, %x2 : (" + ts[0] + ", " + ts[1] + ", " +
              ts[2] + ") -> " + full);
    text.empty("%e", full);
    text.generic("%r", "pp", {{"%c", full, both}}, {"%e", full, both}, "%s = arith.addf %0, %0 : f32\n yield %s : f32");
    text.output({"%r", full, flat(inner)});
    Program program(text.module());
    ASSERT_TRUE(program.ok());
    Floats x[] = {randomFloats(n * a + 1, 1), randomFloats(n * b + 1, 2), randomFloats(n * 3, 3)};
    Guarded out(n * m);
    program.run({x[0].data(), x[1].data(), x[2].data(), out.data()});
    std::vector<double> expected;
    for (int i = 0; i < outer; ++i)
      for (int j = 0; j < inner; ++j) {
        int along = dim == 1 ? j : i, piece = 0;
        while (along >= sizes[piece])
          along -= sizes[piece++];
        expected.push_back(2.0 * (dim == 1 ? x[piece][i * sizes[piece] + along] : x[piece][along * n + j]));
      }
    expectNear(out, expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, Concat,
                         testing::Values(std::tuple{6, 32, 16}, std::tuple{6, 5, 40}, std::tuple{33, 0, 9},
                                         std::tuple{2, 1, 1}));

//===-- rows -----------------------------------------------------------------------------------===//

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

std::vector<double> softmaxOf(const std::vector<double>& x, size_t n, size_t m) {
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

std::vector<double> layerNormOf(const Floats& x, const Floats& w, const Floats& b, size_t n, size_t m) {
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

class Rows : public testing::TestWithParam<std::pair<size_t, size_t>> {};

TEST_P(Rows, Softmax) {
  auto [n, m] = GetParam();
  KernelText text;
  RowOps ops{text, type(n, m), type(std::to_string(n))};
  text.input({"%x", ops.full, flat(m)});
  text.output({ops.softmax("%x"), ops.full, flat(m)});
  Program program(text.module());
  ASSERT_TRUE(program.ok());
  Floats x = randomFloats(n * m);
  Guarded out(n * m);
  program.run({x.data(), out.data()});
  expectNear(out, softmaxOf({x.begin(), x.end()}, n, m));
}

TEST_P(Rows, SoftmaxOfLayerNormIsOneKernel) {
  auto [n, m] = GetParam();
  if (m == 0)
    GTEST_SKIP() << "a mean of nothing";
  KernelText text;
  RowOps ops{text, type(n, m), type(std::to_string(n))};
  std::string vector = type(std::to_string(m));
  text.input({"%x", ops.full, flat(m)});
  text.input({"%w", vector, "(d0) -> (d0)"});
  text.input({"%b", vector, "(d0) -> (d0)"});
  std::string y = ops.layerNorm("%x", "%w", "%b", vector, m);
  std::string scaled =
      ops.map({ops.whole(y)}, "%c = arith.constant 0.75 : f32\n %r = arith.mulf %0, %c : f32\n yield %r : f32");
  text.output({ops.softmax(scaled), ops.full, flat(m)});
  Program program(text.module());
  ASSERT_TRUE(program.ok());
  Floats x = randomFloats(n * m), w = randomFloats(m, 2), b = randomFloats(m, 3);
  Guarded out(n * m);
  program.run({x.data(), w.data(), b.data(), out.data()});
  std::vector<double> expected = layerNormOf(x, w, b, n, m);
  for (double& value : expected)
    value *= 0.75;
  expectNear(out, softmaxOf(expected, n, m), 4e-6);
}

TEST_P(Rows, LayerNormWithItsStatistics) {
  auto [n, m] = GetParam();
  if (m == 0)
    GTEST_SKIP() << "a mean of nothing";
  KernelText text;
  RowOps ops{text, type(n, m), type(std::to_string(n))};
  std::string vector = type(std::to_string(m));
  text.input({"%x", ops.full, flat(m)});
  text.input({"%w", vector, "(d0) -> (d0)"});
  text.input({"%b", vector, "(d0) -> (d0)"});
  std::string y = ops.layerNorm("%x", "%w", "%b", vector, m);
  text.output({"%v1", ops.row, "(d0) -> (d0)"});  // the row's sum, the first reduction
  text.output({y, ops.full, flat(m)});
  Program program(text.module());
  ASSERT_TRUE(program.ok());
  Floats x = randomFloats(n * m), w = randomFloats(m, 2), b = randomFloats(m, 3);
  Guarded out(n * m), sums(n);
  program.run({x.data(), w.data(), b.data(), sums.data(), out.data()});
  expectNear(out, layerNormOf(x, w, b, n, m), 4e-6);
  std::vector<double> expected(n);
  for (size_t i = 0; i < n * m; ++i)
    expected[i / m] += x[i];
  expectNear(sums, expected, 1e-5);
}

INSTANTIATE_TEST_SUITE_P(Sizes, Rows,
                         testing::Values(std::pair{8, 64}, std::pair{5, 200}, std::pair{3, 1000}, std::pair{7, 10},
                                         std::pair{4, 1}, std::pair{1, 1}, std::pair{0, 32}, std::pair{2, 17},
                                         std::pair{2, 6000}, std::pair{1, 3}, std::pair{3, 0}));

TEST(Lowering, ColumnSums) {
  for (auto [n, m] : {std::pair{100, 40}, std::pair{7, 3}, std::pair{1000, 16}, std::pair{1, 50}, std::pair{50, 1}}) {
    KernelText text;
    std::string full = type(n, m), out_type = type(std::to_string(m));
    text.input({"%x", full, flat(m)});
    text.fill("%i", out_type, "1.5");  // a start that is not neutral
    text.generic("%r", "rp", {{"%x", full, both}}, {"%i", out_type, columns},
                 "%s = arith.addf %0, %o : f32\n yield %s : f32");
    text.output({"%r", out_type, "(d0) -> (d0)"});
    Program program(text.module());
    ASSERT_TRUE(program.ok());
    Floats x = randomFloats(n * m);
    Guarded out(m);
    program.run({x.data(), out.data()});
    std::vector<double> expected(m, 1.5);
    for (int i = 0; i < n * m; ++i)
      expected[i % m] += x[i];
    expectNear(out, expected, 1e-5);
  }
}

TEST(Lowering, FullReductionAndSoftmaxOverTheOuterDim) {
  KernelText sum;
  sum.input({"%x", type("30x50"), flat(50)});
  sum.fill("%i", "tensor<f32>", "0.0");
  sum.generic("%r", "rr", {{"%x", type("30x50"), both}}, {"%i", "tensor<f32>", "(d0, d1) -> ()"},
              "%s = arith.addf %0, %o : f32\n yield %s : f32");
  sum.output({"%r", "tensor<f32>", "() -> (0)"});
  Program program(sum.module());
  ASSERT_TRUE(program.ok());
  Floats x = randomFloats(1500);
  Guarded out(1);
  program.run({x.data(), out.data()});
  double expected = 0;
  for (float value : x)
    expected += value;
  expectNear(out, {expected}, 1e-5);

  // softmax over dim 0: rows are the columns of memory; lanes go across them and exp is kept per lane.
  KernelText text;
  std::string full = type("20x37"), row = type("37");
  text.input({"%x", full, flat(37)});
  text.fill("%i0", row, "0xFF800000");
  text.generic("%m", "rp", {{"%x", full, both}}, {"%i0", row, columns},
               "%s = arith.maximumf %0, %o : f32\n yield %s : f32");
  text.empty("%e", full);
  text.generic("%ex", "pp", {{"%x", full, both}, {"%m", row, columns}}, {"%e", full, both},
               "%d = arith.subf %0, %1 : f32\n %r = math.exp %d : f32\n yield %r : f32");
  text.fill("%i1", row, "0.0");
  text.generic("%t", "rp", {{"%ex", full, both}}, {"%i1", row, columns},
               "%s = arith.addf %0, %o : f32\n yield %s : f32");
  text.generic("%r", "pp", {{"%ex", full, both}, {"%t", row, columns}}, {"%e", full, both},
               "%d = arith.divf %0, %1 : f32\n yield %d : f32");
  text.output({"%r", full, flat(37)});
  Program outer(text.module());
  ASSERT_TRUE(outer.ok());
  EXPECT_NE(outer.lowered().schedule.find("lanes across rows, keeps 1"), std::string::npos) << outer.lowered().schedule;
  Floats y = randomFloats(740);
  Guarded result(740);
  outer.run({y.data(), result.data()});
  std::vector<double> transposed(740), back(740);
  for (int i = 0; i < 20; ++i)
    for (int j = 0; j < 37; ++j)
      transposed[j * 20 + i] = y[i * 37 + j];
  transposed = softmaxOf(transposed, 37, 20);
  for (int i = 0; i < 20; ++i)
    for (int j = 0; j < 37; ++j)
      back[i * 37 + j] = transposed[j * 20 + i];
  expectNear(result, back);
}

TEST(Lowering, MaximumKeepsNaN) {
  KernelText text;
  text.input({"%x", type("4x40"), flat(40)});
  text.fill("%i", type("4"), "0xFF800000");
  text.generic("%r", "pr", {{"%x", type("4x40"), both}}, {"%i", type("4"), rows},
               "%s = arith.maximumf %0, %o : f32\n yield %s : f32");
  text.output({"%r", type("4"), "(d0) -> (d0)"});
  Program program(text.module());
  ASSERT_TRUE(program.ok());
  Floats x = randomFloats(160);
  x[3] = x[40 + 39] = x[80 + 20] = std::numeric_limits<float>::quiet_NaN();
  Guarded out(4);
  program.run({x.data(), out.data()});
  EXPECT_TRUE(std::isnan(out[0]) && std::isnan(out[1]) && std::isnan(out[2]));
  EXPECT_FLOAT_EQ(out[3], *std::max_element(x.begin() + 120, x.end()));
}

TEST(Lowering, SameBytesEachTime) {
  // The back end's static tables once made ids depend on what the process had lowered before.
  KernelText text;
  RowOps ops{text, type(5, 200), type("5")};
  text.input({"%x", ops.full, flat(200)});
  text.output({ops.softmax("%x"), ops.full, flat(200)});
  std::string module = text.module();
  std::vector<uint32_t> first = wordsOf(module);
  ASSERT_FALSE(first.empty());
  for (int i = 0; i < 200; ++i)
    ASSERT_EQ(wordsOf(module), first) << "round " << i;
}

TEST(Lowering, SeveralThreadsAtOnce) {
  std::vector<std::string> modules;
  for (int m : {16, 50, 200, 1000}) {
    KernelText text;
    RowOps ops{text, type(5, m), type("5")};
    text.input({"%x", ops.full, flat(m)});
    text.output({ops.softmax("%x"), ops.full, flat(m)});
    modules.push_back(text.module());
  }
  std::vector<std::vector<uint32_t>> expected(modules.size());
  for (size_t i = 0; i < modules.size(); ++i)
    expected[i] = wordsOf(modules[i]);
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (size_t i = 0; i < modules.size(); ++i)
    threads.emplace_back([&, i] {
      for (int round = 0; round < 10; ++round)
        wrong += wordsOf(modules[i]) != expected[i];
    });
  for (auto& thread : threads)
    thread.join();
  EXPECT_EQ(wrong, 0);
}

//===-- symbols --------------------------------------------------------------------------------===//

TEST(Lowering, DynamicSizes) {
  // softmax over [s0, s1] and its sum over rows; s0 unused by nothing.
  std::string full = "tensor<?x?xf32, affine_map<()[s0, s1] -> (s0, s1)>>";
  std::string row = "tensor<?xf32, affine_map<()[s0, s1] -> (s0)>>";
  KernelText text;
  text.input({"%x", full, "(d0, d1)[s0, s1] -> (d0 * s1 + d1)"});
  text.line("%n = zefuse.size affine_map<()[s0, s1] -> (s0)>");
  text.line("%m = zefuse.size affine_map<()[s0, s1] -> (s1)>");
  text.fill("%i0", row, "0xFF800000", "%n");
  text.generic("%mx", "pr", {{"%x", full, both}}, {"%i0", row, rows},
               "%s = arith.maximumf %0, %o : f32\n yield %s : f32");
  text.empty("%e", full, "%n, %m");
  text.generic("%ex", "pp", {{"%x", full, both}, {"%mx", row, rows}}, {"%e", full, both},
               "%d = arith.subf %0, %1 : f32\n %r = math.exp %d : f32\n yield %r : f32");
  text.fill("%i1", row, "0.0", "%n");
  text.generic("%t", "pr", {{"%ex", full, both}}, {"%i1", row, rows}, "%s = arith.addf %0, %o : f32\n yield %s : f32");
  text.generic("%r", "pp", {{"%ex", full, both}, {"%t", row, rows}}, {"%e", full, both},
               "%d = arith.divf %0, %1 : f32\n yield %d : f32");
  text.output({"%r", full, "(d0, d1)[s0, s1] -> (d0 * s1 + d1)"});
  Program program(text.module());
  ASSERT_TRUE(program.ok());
  EXPECT_EQ(program.lowered().symbols, (std::vector<unsigned>{0, 1}));
  EXPECT_TRUE(program.lowered().scratch_bytes) << "a row of unknown size is kept in scratch memory";
  for (auto [n, m] : {std::pair{3, 40}, std::pair{1, 1}, std::pair{5, 16}, std::pair{2, 15}, std::pair{0, 4},
                      std::pair{4, 200}, std::pair{7, 33}}) {
    Floats x = randomFloats(n * m);
    Guarded out(n * m);
    program.run({x.data(), out.data()}, {n, m});
    expectNear(out, softmaxOf({x.begin(), x.end()}, n, m));
  }
}

TEST(Lowering, DynamicSoftmaxOverTheOuterDim) {
  // Lanes across rows whose number is a symbol: the last vector repeats a row, in each stage.
  std::string full = "tensor<?x?xf32, affine_map<()[s0, s1] -> (s0, s1)>>";
  std::string row = "tensor<?xf32, affine_map<()[s0, s1] -> (s1)>>";
  const char* layout = "(d0, d1)[s0, s1] -> (d0 * s1 + d1)";
  KernelText text;
  text.input({"%x", full, layout});
  text.line("%n = zefuse.size affine_map<()[s0, s1] -> (s0)>");
  text.line("%m = zefuse.size affine_map<()[s0, s1] -> (s1)>");
  text.fill("%i0", row, "0xFF800000", "%m");
  text.generic("%mx", "rp", {{"%x", full, both}}, {"%i0", row, columns},
               "%s = arith.maximumf %0, %o : f32\n yield %s : f32");
  text.empty("%e", full, "%n, %m");
  text.generic("%ex", "pp", {{"%x", full, both}, {"%mx", row, columns}}, {"%e", full, both},
               "%d = arith.subf %0, %1 : f32\n %r = math.exp %d : f32\n yield %r : f32");
  text.fill("%i1", row, "0.0", "%m");
  text.generic("%t", "rp", {{"%ex", full, both}}, {"%i1", row, columns},
               "%s = arith.addf %0, %o : f32\n yield %s : f32");
  text.generic("%r", "pp", {{"%ex", full, both}, {"%t", row, columns}}, {"%e", full, both},
               "%d = arith.divf %0, %1 : f32\n yield %d : f32");
  text.output({"%r", full, layout});
  Program program(text.module());
  ASSERT_TRUE(program.ok());
  EXPECT_NE(program.lowered().schedule.find("lanes across rows, keeps 1"), std::string::npos)
      << program.lowered().schedule;
  for (auto [n, m] : {std::pair{20, 5}, std::pair{3, 16}, std::pair{7, 40}, std::pair{1, 1}, std::pair{4, 0}}) {
    Floats x = randomFloats(n * m);
    Guarded out(n * m);
    program.run({x.data(), out.data()}, {n, m});
    std::vector<double> transposed(n * m), back(n * m);
    for (int i = 0; i < n; ++i)
      for (int j = 0; j < m; ++j)
        transposed[j * n + i] = x[i * m + j];
    transposed = softmaxOf(transposed, m, n);
    for (int i = 0; i < n; ++i)
      for (int j = 0; j < m; ++j)
        back[i * m + j] = transposed[j * n + i];
    expectNear(out, back);
  }
}

TEST(Lowering, DynamicPointwise) {
  std::string full = "tensor<2x?x24xf32, affine_map<()[s0] -> (2, s0 * 3, 24)>>", bias = type("24");
  const char* map3 = "(d0, d1, d2) -> (d0, d1, d2)";
  const char* layout = "(d0, d1, d2)[s0] -> (d0 * s0 * 72 + d1 * 24 + d2)";
  for (bool broadcast : {false, true}) {
    KernelText text;
    text.input({"%x", full, layout});
    text.input({"%b", bias, "(d0)[s0] -> (d0)"});
    text.line("%n = zefuse.size affine_map<()[s0] -> (s0 * 3)>");
    text.empty("%e", full, "%n");
    std::vector<Operand> ins{{"%x", full, map3}};
    ins.push_back(broadcast ? Operand{"%b", bias, "(d0, d1, d2) -> (d2)"} : Operand{"%x", full, map3});
    text.generic("%r", "ppp", ins, {"%e", full, map3},
                 "%s = arith.addf %0, %1 : f32\n %t = math.tanh %s : f32\n yield %t : f32");
    text.output({"%r", full, layout});
    Program program(text.module());
    ASSERT_TRUE(program.ok());
    for (int64_t s : {0, 1, 2, 5}) {
      Floats x = randomFloats(2 * s * 3 * 24), b = randomFloats(24, 2);
      Guarded out(x.size());
      program.run({x.data(), b.data(), out.data()}, {s});
      std::vector<double> expected;
      for (size_t i = 0; i < x.size(); ++i)
        expected.push_back(std::tanh(double(x[i]) + (broadcast ? b[i % 24] : x[i])));
      expectNear(out, expected);
    }
    if (!broadcast)
      EXPECT_EQ(program.stage("scheduled.mlir").find("remui"), std::string::npos) << "dims were not merged";
  }
  // A single symbol, below and above a vector's lanes.
  std::string one = "tensor<?xf32, affine_map<()[s0] -> (s0)>>";
  KernelText text;
  text.input({"%x", one, "(d0)[s0] -> (d0)"});
  text.line("%n = zefuse.size affine_map<()[s0] -> (s0)>");
  text.empty("%e", one, "%n");
  text.generic(
      "%r", "p", {{"%x", one, "(d0) -> (d0)"}}, {"%e", one, "(d0) -> (d0)"},
      "%i = linalg.index 0 : index\n %j = arith.index_cast %i : index to i64\n %f = arith.sitofp %j : i64 to f32\n"
      "%s = arith.addf %0, %f : f32\n yield %s : f32");
  text.output({"%r", one, "(d0)[s0] -> (d0)"});
  Program program(text.module());
  ASSERT_TRUE(program.ok());
  for (int64_t s : {0, 1, 5, 15, 16, 17, 100}) {
    Floats x = randomFloats(s);
    Guarded out(s);
    program.run({x.data(), out.data()}, {s});
    std::vector<double> expected;
    for (int64_t i = 0; i < s; ++i)
      expected.push_back(double(x[i]) + i);
    expectNear(out, expected);
  }
}

//===-- the Intel GPU schedule, run by the CPU driver's work-groups ----------------------------===//

TEST(IntelGpu, PointwiseAndRows) {
  TargetDescription gpu = TargetDescription::intelGpu("dg2-g11");
  for (auto [n, m] : {std::pair{5, 77}, std::pair{3, 1000}, std::pair{1, 1}, std::pair{0, 8}}) {
    std::string full = type(n, m);
    Floats x = randomFloats(n * m), y = randomFloats(n * m, 2), b = randomFloats(m, 3);
    {
      KernelText text;
      text.input({"%x", full, flat(m)});
      text.input({"%y", full, flat(m)});
      text.input({"%b", type(std::to_string(m)), "(d0) -> (d0)"});
      text.empty("%e", full);
      text.generic("%r", "pp", {{"%x", full, both}, {"%y", full, both}, {"%b", type(std::to_string(m)), columns}},
                   {"%e", full, both}, probe_body);
      text.output({"%r", full, flat(m)});
      Program program(text.module(), gpu);
      ASSERT_TRUE(program.ok());
      EXPECT_FALSE(program.lowered().chunked);
      Guarded out(n * m);
      program.run({x.data(), y.data(), b.data(), out.data()});
      std::vector<double> expected(n * m);
      for (int i = 0; i < n * m; ++i)
        expected[i] = probe(x[i], y[i], b[i % m]);
      expectNear(out, expected, 4e-6);
    }
    KernelText text;
    RowOps ops{text, full, type(std::to_string(n))};
    std::string vector = type(std::to_string(m));
    text.input({"%x", ops.full, flat(m)});
    text.input({"%w", vector, "(d0) -> (d0)"});
    text.input({"%b", vector, "(d0) -> (d0)"});
    std::string norm = ops.layerNorm("%x", "%w", "%b", vector, m);
    text.output({"%v1", ops.row, "(d0) -> (d0)"});
    text.output({ops.softmax(norm), ops.full, flat(m)});
    Program program(text.module(), gpu);
    ASSERT_TRUE(program.ok());
    Guarded out(n * m), sums(n);
    program.run({x.data(), y.data(), b.data(), sums.data(), out.data()});
    Floats w(y.begin(), y.begin() + m * (n > 0));
    w.resize(m);
    expectNear(out, softmaxOf(layerNormOf(x, w, b, n, m), n, m), 1e-5);
    std::vector<double> expected(n);
    for (int i = 0; i < n * m; ++i)
      expected[i / m] += x[i];
    expectNear(sums, expected, 1e-5);
  }
}

TEST(IntelGpu, ColumnSumsAndSymbols) {
  std::string full = "tensor<?x?xf32, affine_map<()[s0, s1] -> (s0, s1)>>";
  std::string out_type = "tensor<?xf32, affine_map<()[s0, s1] -> (s1)>>";
  KernelText text;
  text.input({"%x", full, "(d0, d1)[s0, s1] -> (d0 * s1 + d1)"});
  text.line("%m = zefuse.size affine_map<()[s0, s1] -> (s1)>");
  text.fill("%i", out_type, "0.0", "%m");
  text.generic("%r", "rp", {{"%x", full, both}}, {"%i", out_type, columns},
               "%s = arith.addf %0, %o : f32\n yield %s : f32");
  text.output({"%r", out_type, "(d0)[s0, s1] -> (d0)"});
  Program program(text.module(), TargetDescription::intelGpu("dg2-g11"));
  ASSERT_TRUE(program.ok());
  for (auto [n, m] : {std::pair{10, 300}, std::pair{3, 1}, std::pair{0, 5}}) {
    Floats x = randomFloats(n * m);
    Guarded out(m);
    program.run({x.data(), out.data()}, {n, m});
    std::vector<double> expected(m);
    for (int i = 0; i < n * m; ++i)
      expected[i % m] += x[i];
    expectNear(out, expected, 1e-5);
  }
}

TEST(IntelGpu, OclocCompilesThemForDg2) {
  if (runTool({"ocloc", "--help"}, std::chrono::seconds(30)).status().code() == Code::not_found)
    GTEST_SKIP() << "ocloc is not installed";
  TargetDescription gpu = TargetDescription::intelGpu("dg2-g11");
  KernelText pointwise;
  std::string full = type("64x200"), bias = type("200");
  pointwise.input({"%x", full, flat(200)});
  pointwise.input({"%y", full, flat(200)});
  pointwise.input({"%b", bias, "(d0) -> (d0)"});
  pointwise.empty("%e", full);
  pointwise.generic("%r", "pp", {{"%x", full, both}, {"%y", full, both}, {"%b", bias, columns}}, {"%e", full, both},
                    probe_body);
  pointwise.output({"%r", full, flat(200)});
  KernelText rows_text;
  RowOps ops{rows_text, full, type("64")};
  rows_text.input({"%x", ops.full, flat(200)});
  rows_text.output({ops.softmax("%x"), ops.full, flat(200)});
  for (const std::string& module : {pointwise.module(), rows_text.module()}) {
    std::vector<uint32_t> words = wordsOf(module, gpu);
    ASSERT_FALSE(words.empty());
    auto binary = compileWithOcloc(words, "dg2-g11");
    ASSERT_TRUE(binary.ok()) << binary.status().toString();
    EXPECT_GT(binary->size(), 1000u);
  }
  // The CPU schedule's wide vectors are valid there too.
  auto binary = compileWithOcloc(wordsOf(rows_text.module()), "dg2-g11");
  EXPECT_TRUE(binary.ok()) << binary.status().toString();
}

//===-- gathers --------------------------------------------------------------------------------===//

TEST(Lowering, EmbeddingChecksItsIndices) {
  KernelText text;
  text.input({"%table", type("10x24"), flat(24)});
  text.input({"%ids", type("6", "i64"), "(d0) -> (d0)"});
  text.empty("%e", type("6x24"));
  text.generic("%r", "pp", {{"%ids", type("6", "i64"), rows}}, {"%e", type("6x24"), both},
               R"(%n = arith.constant 10 : index
      %i = zefuse.checked_index %0, %n {wrap_negative = true, error = "index_error", message = "index out of range in self"} : i64
      %j = linalg.index 1 : index
      %v = tensor.extract %table[%i, %j] : tensor<10x24xf32>
      yield %v : f32)");
  text.output({"%r", type("6x24"), flat(24)});
  Program program(text.module());
  ASSERT_TRUE(program.ok());
  ASSERT_EQ(program.lowered().checks.size(), 1u);
  EXPECT_EQ(program.lowered().checks[0].error, "index_error");
  Floats table = randomFloats(240);
  std::vector<int64_t> ids{3, 0, 9, -1, 3, 7};
  Guarded out(144);
  EXPECT_EQ(program.run({table.data(), ids.data(), out.data()}), 0);
  std::vector<double> expected;
  for (int i = 0; i < 6; ++i)
    for (int j = 0; j < 24; ++j)
      expected.push_back(table[(ids[i] + 10) % 10 * 24 + j]);
  expectNear(out, expected, 0);
  for (int64_t bad : {10, -11, 1 << 30}) {
    ids[4] = bad;
    EXPECT_EQ(program.run({table.data(), ids.data(), out.data()}), 1) << bad;
  }
  out.expectUntouched();
}

TEST(Lowering, EmptyTablesAndPieces) {
  // An index into a table without rows fails its check and reads nothing; the sum of an empty concat is its start.
  KernelText text;
  text.input({"%table", type("0x24"), flat(24)});
  text.input({"%ids", type("6", "i64"), "(d0) -> (d0)"});
  text.empty("%e", type("6x24"));
  text.generic("%r", "pp", {{"%ids", type("6", "i64"), rows}}, {"%e", type("6x24"), both},
               R"(%n = arith.constant 0 : index
      %i = zefuse.checked_index %0, %n {wrap_negative = true, error = "index_error", message = "index out of range in self"} : i64
      %j = linalg.index 1 : index
      %v = tensor.extract %table[%i, %j] : tensor<0x24xf32>
      yield %v : f32)");
  text.output({"%r", type("6x24"), flat(24)});
  Program program(text.module());
  ASSERT_TRUE(program.ok());
  std::vector<int64_t> ids(6);
  Guarded out(144);
  EXPECT_EQ(program.run({nullptr, ids.data(), out.data()}), 1);

  KernelText sum;
  std::string none = type("4x0"), four = type("4");
  sum.input({"%x", none, flat(0)});
  sum.line("%c = tensor.concat dim(1) %x, %x : (" + none + ", " + none + ") -> " + none);
  sum.fill("%i", four, "2.5");
  sum.generic("%r", "pr", {{"%c", none, both}}, {"%i", four, rows}, "%s = arith.addf %0, %o : f32\n yield %s : f32");
  sum.output({"%r", four, "(d0) -> (d0)"});
  Program empty(sum.module());
  ASSERT_TRUE(empty.ok());
  Guarded sums(4);
  empty.run({nullptr, sums.data()});
  expectNear(sums, {2.5, 2.5, 2.5, 2.5});
}

TEST(Lowering, GatherPerLane) {
  // out[i] = x[index[i]]: each lane has its own index, and any bad lane is noticed.
  KernelText text;
  text.input({"%x", type("100"), "(d0) -> (d0)"});
  text.input({"%ids", type("50", "i32"), "(d0) -> (d0)"});
  text.empty("%e", type("50"));
  text.generic("%r", "p", {{"%ids", type("50", "i32"), "(d0) -> (d0)"}}, {"%e", type("50"), "(d0) -> (d0)"},
               R"(%n = arith.constant 100 : index
      %i = zefuse.checked_index %0, %n {wrap_negative = false, error = "index_error", message = "bad"} : i32
      %v = tensor.extract %x[%i] : tensor<100xf32>
      yield %v : f32)");
  text.output({"%r", type("50"), "(d0) -> (d0)"});
  Program program(text.module());
  ASSERT_TRUE(program.ok());
  Floats x = randomFloats(100);
  std::vector<int32_t> ids(50);
  for (int i = 0; i < 50; ++i)
    ids[i] = i * 37 % 100;
  Guarded out(50);
  EXPECT_EQ(program.run({x.data(), ids.data(), out.data()}), 0);
  std::vector<double> expected;
  for (int id : ids)
    expected.push_back(x[id]);
  expectNear(out, expected, 0);
  for (int place : {0, 15, 33, 49}) {
    std::vector<int32_t> bad = ids;
    bad[place] = -1;
    EXPECT_EQ(program.run({x.data(), bad.data(), out.data()}), 1) << place;
  }
}

//===-- types ----------------------------------------------------------------------------------===//

uint16_t bf16Of(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  if (std::isnan(value))
    return 0x7fc0;
  return (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
}
float floatOf(uint16_t bits) {
  uint32_t wide = uint32_t(bits) << 16;
  float value;
  std::memcpy(&value, &wide, 4);
  return value;
}

TEST(Lowering, Bf16RoundsToNearestEven) {
  KernelText text;
  text.input({"%x", type("77", "bf16"), "(d0) -> (d0)"});
  text.input({"%y", type("77"), "(d0) -> (d0)"});
  text.empty("%e", type("77", "bf16"));
  text.generic("%r", "p", {{"%x", type("77", "bf16"), "(d0) -> (d0)"}, {"%y", type("77"), "(d0) -> (d0)"}},
               {"%e", type("77", "bf16"), "(d0) -> (d0)"},
               "%w = arith.extf %0 : bf16 to f32\n %s = arith.addf %w, %1 : f32\n %t = arith.truncf %s : f32 to bf16\n "
               "yield %t : bf16");
  text.output({"%r", type("77", "bf16"), "(d0) -> (d0)"});
  Program program(text.module());
  ASSERT_TRUE(program.ok());
  std::vector<uint16_t> x(77), out(77);
  Floats y = randomFloats(77, 5);
  Floats source = randomFloats(77, 6);
  for (int i = 0; i < 77; ++i)
    x[i] = bf16Of(source[i]);
  x[1] = 0, y[1] = 1.0f + 1.0f / 256;  // a tie: to even, down
  x[2] = 0, y[2] = 1.0f + 3.0f / 256;  // a tie: to even, up
  x[3] = 0, y[3] = std::numeric_limits<float>::infinity();
  x[4] = 0, y[4] = std::numeric_limits<float>::max();  // rounds to infinity
  uint32_t nan_bits = 0x7f800001;                      // a NaN whose payload lies in the bits that go away
  x[5] = 0, std::memcpy(&y[5], &nan_bits, 4);
  nan_bits = 0xffffffff;  // rounding up would carry into the sign
  x[6] = 0, std::memcpy(&y[6], &nan_bits, 4);
  program.run({x.data(), y.data(), out.data()});
  for (int i = 0; i < 77; ++i) {
    float sum = floatOf(x[i]) + y[i];
    if (std::isnan(sum))
      EXPECT_TRUE(std::isnan(floatOf(out[i]))) << i;
    else
      EXPECT_EQ(out[i], bf16Of(sum)) << i;
  }
}

TEST(Lowering, EveryF16ValueThereAndBack) {
  // All 65536 bit patterns to f32, compared with the compiler's own conversion; and back through f32 values between
  // them.
  KernelText text;
  std::string half = type("65536", "f16"), single = type("65536");
  const char* same = "(d0) -> (d0)";
  text.input({"%x", half, same});
  text.input({"%y", single, same});
  text.empty("%e", single);
  text.generic("%w", "p", {{"%x", half, same}}, {"%e", single, same},
               "%s = arith.extf %0 : f16 to f32\n yield %s : f32");
  text.empty("%eh", half);
  text.generic("%h", "p", {{"%y", single, same}}, {"%eh", half, same},
               "%s = arith.truncf %0 : f32 to f16\n yield %s : f16");
  text.output({"%w", single, same});
  text.output({"%h", half, same});
  Program program(text.module());
  ASSERT_TRUE(program.ok());
  std::vector<uint16_t> x(65536), h(65536);
  Floats y(65536), w(65536);
  for (int i = 0; i < 65536; ++i) {
    x[i] = i;
    _Float16 value;
    std::memcpy(&value, &x[i], 2);
    uint32_t bits;
    float wide = value;
    std::memcpy(&bits, &wide, 4);
    bits += (i * 977u) & 0x1fff;  // below, at and above the ties
    if (i % 3 == 0)
      bits = (bits & ~0x1fffu) | 0x1000;
    std::memcpy(&y[i], &bits, 4);
  }
  program.run({x.data(), y.data(), w.data(), h.data()});
  for (int i = 0; i < 65536; ++i) {
    _Float16 value, narrowed = static_cast<_Float16>(y[i]), got;
    std::memcpy(&value, &x[i], 2);
    std::memcpy(&got, &h[i], 2);
    if (std::isnan(float(value)))
      ASSERT_TRUE(std::isnan(w[i])) << i;
    else
      ASSERT_EQ(w[i], float(value)) << i;
    if (std::isnan(y[i]))
      ASSERT_TRUE(std::isnan(float(got))) << i;
    else
      ASSERT_EQ(float(got), float(narrowed)) << y[i];
  }
}

TEST(Lowering, Bf16SumsInF32) {
  KernelText text;
  std::string full = type("9x50", "bf16"), row = type("9");
  text.input({"%x", full, flat(50)});
  text.fill("%i", row, "0.0");
  text.generic("%s", "pr", {{"%x", full, both}}, {"%i", row, rows},
               "%w = arith.extf %0 : bf16 to f32\n %s = arith.addf %w, %o : f32\n yield %s : f32");
  text.empty("%e", type("9", "bf16"));
  text.generic("%r", "p", {{"%s", row, "(d0) -> (d0)"}}, {"%e", type("9", "bf16"), "(d0) -> (d0)"},
               "%t = arith.truncf %0 : f32 to bf16\n yield %t : bf16");
  text.output({"%r", type("9", "bf16"), "(d0) -> (d0)"});
  Program program(text.module());
  ASSERT_TRUE(program.ok());
  std::vector<uint16_t> x(450), out(9);
  Floats source = randomFloats(450);
  for (int i = 0; i < 450; ++i)
    x[i] = bf16Of(source[i]);
  program.run({x.data(), out.data()});
  for (int i = 0; i < 9; ++i) {
    double sum = 0;
    for (int j = 0; j < 50; ++j)
      sum += floatOf(x[i * 50 + j]);
    EXPECT_NEAR(floatOf(out[i]), sum, 0.005 * (1 + std::abs(sum)));
  }
}

TEST(Lowering, IntegersAndBools) {
  // floor division and remainder of i64 (zero divisors included), a comparison stored as bool, any() over rows.
  KernelText text;
  std::string ints = type("5x30", "i64"), bools = type("5x30", "i1");
  text.input({"%a", ints, flat(30)});
  text.input({"%b", ints, flat(30)});
  text.empty("%e", ints);
  text.generic("%q", "pp", {{"%a", ints, both}, {"%b", ints, both}}, {"%e", ints, both},
               "%d = arith.floordivsi %0, %1 : i64\n yield %d : i64");
  text.empty("%eb", bools);
  text.generic("%l", "pp", {{"%a", ints, both}, {"%b", ints, both}}, {"%eb", bools, both},
               "%d = arith.cmpi slt, %0, %1 : i64\n yield %d : i1");
  text.fill("%i", type("5", "i1"), "0");
  text.generic("%any", "pr", {{"%l", bools, both}}, {"%i", type("5", "i1"), rows},
               "%s = arith.ori %0, %o : i1\n yield %s : i1");
  text.output({"%q", ints, flat(30)});
  text.output({"%l", bools, flat(30)});
  text.output({"%any", type("5", "i1"), "(d0) -> (d0)"});
  Program program(text.module());
  ASSERT_TRUE(program.ok());
  std::mt19937 generator(3);
  std::vector<int64_t> a(150), b(150), q(150);
  std::vector<uint8_t> l(150, 9), any(5, 9);
  for (int i = 0; i < 150; ++i) {
    a[i] = int64_t(generator() % 200) - 100 + (i >= 120 ? 1000 : 0);
    b[i] = int64_t(generator() % 21) - 10;
  }
  a[7] = std::numeric_limits<int64_t>::min(), b[7] = -1;
  b[8] = 0;
  program.run({a.data(), b.data(), q.data(), l.data(), any.data()});
  for (int i = 0; i < 150; ++i) {
    if (b[i] != 0 && i != 7)
      EXPECT_EQ(q[i], a[i] / b[i] - (a[i] % b[i] != 0 && (a[i] % b[i] < 0) != (b[i] < 0))) << a[i] << " / " << b[i];
    EXPECT_EQ(l[i], a[i] < b[i]) << i;
  }
  for (int r = 0; r < 5; ++r)
    EXPECT_EQ(any[r], std::any_of(&l[r * 30], &l[r * 30] + 30, [](uint8_t v) { return v; }));
  EXPECT_EQ(any[4], 0);
}

}  // namespace
}  // namespace zefuse::test
