// zefuse.matmul as a GPU kernel: lowered, run on the host, compared with plain C++.
#include <bit>

#include "lowering/schedule/products/gpu_product.h"
#include "tests/unit/lowering/matmul_text.h"
#include "tests/unit/lowering/numerics.h"

namespace zefuse::test {
namespace {

class Matmul : public testing::TestWithParam<TargetDescription> {};
INSTANTIATE_TEST_SUITE_P(Targets, Matmul,
                         testing::Values(*TargetDescription::named("dg2-g11"), *TargetDescription::named("bmg-g21")),
                         targetName);

uint16_t bf16Of(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  return uint16_t((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}
float floatOf(uint16_t bits) {
  uint32_t wide = uint32_t(bits) << 16;
  float value;
  std::memcpy(&value, &wide, 4);
  return value;
}

TEST_P(Matmul, TheLastTileIsTheEnginesToo) {
  TargetDescription small = GetParam();
  ASSERT_NE(small.matrix.lanes, 0u);
  small.engine_accumulator_bytes = small.accumulator_bytes = 0;  // no candidate fits
  ProductTile tile = chooseTile(64, 64, 1, 4, small, /*engine=*/true);
  EXPECT_EQ(tile.block_columns, int64_t(small.matrix.lanes));
  EXPECT_EQ(tile.items(), tile.subgroups_m * tile.subgroups_n * int64_t(small.matrix.lanes));
  EXPECT_EQ(tile.depth, 2 * engine_depth);
  ProductTile ordinary = chooseTile(64, 64, 1, 4, small);
  EXPECT_EQ(ordinary.block_columns, 16);
  EXPECT_EQ(ordinary.depth, 16);
}

TEST_P(Matmul, Sizes) {
  for (auto [m, n, k] : {std::tuple{64, 64, 32}, std::tuple{1, 100, 50}, std::tuple{7, 33, 17}, std::tuple{70, 130, 40},
                         std::tuple{128, 128, 64}, std::tuple{5, 1, 3}, std::tuple{3, 20, 0}, std::tuple{0, 8, 8}}) {
    SCOPED_TRACE(std::to_string(m) + " x " + std::to_string(n) + " x " + std::to_string(k));
    Program program(MatmulText(type(m, k), type(k, n), type(m, n)).module(), GetParam());
    ASSERT_TRUE(program.ok());
    Floats a = randomFloats(m * k, 1, 1), b = randomFloats(k * n, 2, 1);
    Guarded out(m * n);
    program.run({a.data(), b.data(), out.data()});
    std::vector<double> expected(m * n);
    for (int i = 0; i < m; ++i)
      for (int j = 0; j < n; ++j)
        for (int l = 0; l < k; ++l)
          expected[i * n + j] += double(a[i * k + l]) * b[l * n + j];
    expectNear(out, expected, 1e-5);
  }
}

TEST_P(Matmul, TransposedBiasActivationResidual) {
  // linear: b is a weight [n, k] read transposed; bias per column, gelu, then a residual that is added.
  constexpr int m = 37, n = 48, k = 24;
  MatmulText text(type(m, k), type(k, n), type(m, n));
  text.layouts[1] = "(d0, d1) -> (d1 * 24 + d0)";
  text.bias = type("48");
  text.operands = {type(m, n)};
  text.attributes = "alpha = 0.5 : f32, post_ops = [\"gelu_erf\", \"add\"]";
  Program program(text.module(), GetParam());
  ASSERT_TRUE(program.ok());
  Floats a = randomFloats(m * k, 1, 1), w = randomFloats(n * k, 2, 1), bias = randomFloats(n, 3),
         residual = randomFloats(m * n, 4);
  Guarded out(m * n);
  program.run({a.data(), w.data(), bias.data(), residual.data(), out.data()});
  std::vector<double> expected(m * n);
  for (int i = 0; i < m; ++i)
    for (int j = 0; j < n; ++j) {
      double sum = 0;
      for (int l = 0; l < k; ++l)
        sum += double(a[i * k + l]) * w[j * k + l];
      sum = 0.5 * sum + bias[j];
      expected[i * n + j] = 0.5 * sum * (1 + std::erf(sum * M_SQRT1_2)) + residual[i * n + j];
    }
  expectNear(out, expected, 1e-5);
}

TEST_P(Matmul, EveryPostOp) {
  constexpr int m = 9, n = 20, k = 12;
  Floats a = randomFloats(m * k, 1, 1), b = randomFloats(k * n, 2, 1), row = randomFloats(n, 3);
  a[0] = NAN;
  auto check = [&](const char* name, auto&& f) {
    SCOPED_TRACE(name);
    MatmulText text(type(m, k), type(k, n), type(m, n));
    text.attributes = std::string("post_ops = [\"") + name + "\"]";
    if (std::string(name) == "mul")
      text.operands = {type("1x20")};
    Program program(text.module(), GetParam());
    ASSERT_TRUE(program.ok());
    Guarded out(m * n);
    std::vector<void*> arguments{a.data(), b.data()};
    if (!text.operands.empty())
      arguments.push_back(row.data());
    arguments.push_back(out.data());
    program.run(arguments);
    out.expectUntouched();
    for (int i = 0; i < m; ++i)
      for (int j = 0; j < n; ++j) {
        double sum = 0;
        for (int l = 0; l < k; ++l)
          sum += double(a[i * k + l]) * b[l * n + j];
        double expected = f(sum, row[j]);
        if (i == 0)
          EXPECT_TRUE(std::isnan(out[j])) << j;
        else
          EXPECT_NEAR(out[i * n + j], expected, 1e-5 * (1 + std::abs(expected))) << i << ", " << j;
      }
  };
  check("relu", [](double x, double) { return std::max(x, 0.0); });
  check("gelu_tanh", [](double x, double) {
    return 0.5 * x * (1 + std::tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
  });
  check("silu", [](double x, double) { return x / (1 + std::exp(-x)); });
  check("tanh", [](double x, double) { return std::tanh(x); });
  check("sigmoid", [](double x, double) { return 1 / (1 + std::exp(-x)); });
  check("mul", [](double x, double y) { return x * y; });
}

TEST_P(Matmul, BatchesBroadcastAndSymbols) {
  // [3, s0, s1] @ [1, s1, 20]: both a batch that broadcasts and sizes that are not known.
  std::string a_type = "tensor<3x?x?xf32, affine_map<()[s0, s1] -> (3, s0, s1)>>";
  std::string b_type = "tensor<1x?x20xf32, affine_map<()[s0, s1] -> (1, s1, 20)>>";
  std::string c_type = "tensor<3x?x20xf32, affine_map<()[s0, s1] -> (3, s0, 20)>>";
  MatmulText text(a_type, b_type, c_type);
  text.layouts = {"(d0, d1, d2)[s0, s1] -> (d0 * (s0 * s1) + d1 * s1 + d2)", "(d0, d1, d2)[s0, s1] -> (d1 * 20 + d2)",
                  "(d0, d1, d2)[s0, s1] -> (d0 * (s0 * 20) + d1 * 20 + d2)"};
  Program program(text.module(), GetParam());
  ASSERT_TRUE(program.ok());
  for (auto [m, k] : {std::pair{5, 7}, std::pair{1, 1}, std::pair{80, 33}, std::pair{0, 3}, std::pair{4, 0}}) {
    Floats a = randomFloats(3 * m * k, 1, 1), b = randomFloats(k * 20, 2, 1);
    Guarded out(3 * m * 20);
    program.run({a.data(), b.data(), out.data()}, {m, k});
    std::vector<double> expected(3 * m * 20);
    for (int i = 0; i < 3 * m; ++i)
      for (int j = 0; j < 20; ++j)
        for (int l = 0; l < k; ++l)
          expected[i * 20 + j] += double(a[i * k + l]) * b[l * 20 + j];
    expectNear(out, expected, 1e-5);
  }
}

// On a matrix engine where the target has one, run through the CPU driver's emulation of it.
TEST_P(Matmul, SixteenBitsAccumulateInF32) {
  for (const char* element : {"bf16", "f16"})
    for (bool transposed : {false, true})
      for (auto [m, n, k] : {std::tuple{17, 32, 40}, std::tuple{130, 70, 33}, std::tuple{1, 100, 16},
                             std::tuple{64, 64, 64}, std::tuple{9, 3, 1}, std::tuple{4, 4, 0}}) {
        SCOPED_TRACE(std::string(element) + " " + std::to_string(m) + " x " + std::to_string(n) + " x " +
                     std::to_string(k) + (transposed ? ", b transposed" : ""));
        const bool half = element[0] == 'f';
        auto bitsOf = [&](float value) {
          return half ? std::bit_cast<uint16_t>(static_cast<_Float16>(value)) : bf16Of(value);
        };
        auto valueOf = [&](uint16_t bits) { return half ? float(std::bit_cast<_Float16>(bits)) : floatOf(bits); };
        auto matrix = [&](int rows, int columns) {
          return type(std::to_string(rows) + "x" + std::to_string(columns), element);
        };
        MatmulText text(matrix(m, k), matrix(k, n), type(m, n));
        if (transposed)
          text.layouts[1] = "(d0, d1) -> (d1 * " + std::to_string(k) + " + d0)";
        Program program(text.module(), GetParam());
        ASSERT_TRUE(program.ok());
        EXPECT_TRUE(program.lowered().schedule.onMatrixEngine()) << describe(program.lowered().schedule);
        std::vector<uint16_t> a(m * k), b(k * n);
        for (auto* list : {&a, &b}) {
          Floats source = randomFloats(list->size(), unsigned(list->size()), 1);
          for (size_t i = 0; i < list->size(); ++i)
            (*list)[i] = bitsOf(source[i]);
        }
        Guarded out(m * n);
        program.run({a.data(), b.data(), out.data()});
        std::vector<double> expected(m * n);
        for (int i = 0; i < m; ++i)
          for (int j = 0; j < n; ++j)
            for (int l = 0; l < k; ++l)
              expected[i * n + j] += double(valueOf(a[i * k + l])) * valueOf(transposed ? b[j * k + l] : b[l * n + j]);
        expectNear(out, expected, 1e-5);
      }
}

TEST(MatmulTargets, EnginesTakeSixteenBitsAlone) {
  auto scheduleOf = [](const char* product, const char* element) {
    std::string matrix = type("64x64", element);
    return Program(MatmulText(matrix, matrix, matrix).module(), *TargetDescription::named(product)).lowered().schedule;
  };
  EXPECT_FALSE(scheduleOf("dg2-g11", "f32").onMatrixEngine());
  EXPECT_FALSE(scheduleOf("mtl-h", "f16").onMatrixEngine());
  EXPECT_TRUE(scheduleOf("pvc", "bf16").onMatrixEngine());
}

}  // namespace
}  // namespace zefuse::test
