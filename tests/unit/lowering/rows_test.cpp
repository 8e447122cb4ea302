// Reductions and row kernels: lowered for each target, run on the host, compared with plain C++.
#include "tests/unit/lowering/numerics.h"

namespace zefuse::test {
namespace {

class Rows : public testing::TestWithParam<std::tuple<std::pair<size_t, size_t>, TargetDescription>> {};

TEST_P(Rows, Softmax) {
  auto [n, m] = std::get<0>(GetParam());
  KernelText text;
  RowOps ops{text, type(n, m), type(std::to_string(n))};
  text.input({"%x", ops.full, flat(m)});
  text.output({ops.softmax("%x"), ops.full, flat(m)});
  Program program(text.module(), std::get<1>(GetParam()));
  ASSERT_TRUE(program.ok());
  Floats x = randomFloats(n * m);
  Guarded out(n * m);
  program.run({x.data(), out.data()});
  expectNear(out, softmaxOf({x.begin(), x.end()}, n, m));
}

TEST_P(Rows, SoftmaxOfLayerNormIsOneKernel) {
  auto [n, m] = std::get<0>(GetParam());
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
  Program program(text.module(), std::get<1>(GetParam()));
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
  auto [n, m] = std::get<0>(GetParam());
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
  Program program(text.module(), std::get<1>(GetParam()));
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
                         testing::Combine(testing::Values(std::pair{8, 64}, std::pair{5, 200}, std::pair{3, 1000},
                                                          std::pair{7, 10}, std::pair{4, 1}, std::pair{1, 1},
                                                          std::pair{0, 32}, std::pair{2, 17}, std::pair{2, 6000},
                                                          std::pair{1, 3}, std::pair{3, 0}),
                                          testing::ValuesIn(targets())));

TEST_P(Lowering, ColumnSums) {
  for (auto [n, m] : {std::pair{100, 40}, std::pair{7, 3}, std::pair{1000, 16}, std::pair{1, 50}, std::pair{50, 1}}) {
    KernelText text;
    std::string full = type(n, m), out_type = type(std::to_string(m));
    text.input({"%x", full, flat(m)});
    text.fill("%i", out_type, "1.5");  // a start that is not neutral
    text.generic("%r", "rp", {{"%x", full, both}}, {"%i", out_type, columns},
                 "%s = arith.addf %0, %o : f32\n yield %s : f32");
    text.output({"%r", out_type, "(d0) -> (d0)"});
    Program program(text.module(), GetParam());
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

TEST_P(Lowering, FullReductionAndSoftmaxOverTheOuterDim) {
  KernelText sum;
  sum.input({"%x", type("30x50"), flat(50)});
  sum.fill("%i", "tensor<f32>", "0.0");
  sum.generic("%r", "rr", {{"%x", type("30x50"), both}}, {"%i", "tensor<f32>", "(d0, d1) -> ()"},
              "%s = arith.addf %0, %o : f32\n yield %s : f32");
  sum.output({"%r", "tensor<f32>", "() -> (0)"});
  Program program(sum.module(), GetParam());
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
  Program outer(text.module(), GetParam());
  ASSERT_TRUE(outer.ok());
  const ScheduleRecord& schedule = outer.lowered().schedule;
  ASSERT_NE(schedule.find<choice::Reduction>(), nullptr);
  EXPECT_TRUE(schedule.find<choice::Reduction>()->across_rows) << describe(schedule);
  const choice::Kept* kept = schedule.find<choice::Kept>();
  EXPECT_EQ(kept ? kept->values : 0, GetParam().hasWorkGroups() ? 0 : 1) << describe(schedule);
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

TEST_P(Lowering, MaximumKeepsNaN) {
  KernelText text;
  text.input({"%x", type("4x40"), flat(40)});
  text.fill("%i", type("4"), "0xFF800000");
  text.generic("%r", "pr", {{"%x", type("4x40"), both}}, {"%i", type("4"), rows},
               "%s = arith.maximumf %0, %o : f32\n yield %s : f32");
  text.output({"%r", type("4"), "(d0) -> (d0)"});
  Program program(text.module(), GetParam());
  ASSERT_TRUE(program.ok());
  Floats x = randomFloats(160);
  x[3] = x[40 + 39] = x[80 + 20] = std::numeric_limits<float>::quiet_NaN();
  Guarded out(4);
  program.run({x.data(), out.data()});
  EXPECT_TRUE(std::isnan(out[0]) && std::isnan(out[1]) && std::isnan(out[2]));
  EXPECT_FLOAT_EQ(out[3], *std::max_element(x.begin() + 120, x.end()));
}

}  // namespace
}  // namespace zefuse::test
