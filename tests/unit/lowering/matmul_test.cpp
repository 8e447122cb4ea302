// zefuse.matmul in a GPU's kernel: lowered, run on the host, compared with plain C++.
#include <bit>

#include "lowering/schedule/products/gpu_product.h"
#include "tests/unit/lowering/matmul_text.h"
#include "tests/unit/lowering/numerics.h"

namespace zefuse::test {
namespace {

class Matmul : public testing::TestWithParam<TargetDescription> {};
INSTANTIATE_TEST_SUITE_P(Targets, Matmul,
                         testing::Values(*TargetDescription::named("dg2-g11"), *TargetDescription::named("bmg-g21"),
                                         *TargetDescription::named("sm_90")),
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
  EXPECT_EQ(tile.lanes, int64_t(small.matrix.lanes));
  EXPECT_EQ(tile.items(), tile.subgroups_m * tile.subgroups_n * int64_t(small.matrix.lanes));
  EXPECT_EQ(tile.depth, (small.matrix.form == MatrixForm::columns ? 2 : 4) * engine_depth);
  ProductTile ordinary = chooseTile(64, 64, 1, 4, small);
  EXPECT_EQ(ordinary.block_columns, small.subgroup_size);
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
    expectNear(out, productOf(a, b, m, n, k), 1e-5);
  }
}

TEST_P(Matmul, TransposedBiasScale) {
  // linear: b is a weight [n, k] read transposed, with a bias per column.
  constexpr int m = 37, n = 48, k = 24;
  MatmulText text(type(m, k), type(k, n), type(m, n));
  text.layouts[1] = "(d0, d1) -> (d1 * 24 + d0)";
  text.bias = type("48");
  text.attributes = "alpha = 0.5 : f32";
  Program program(text.module(), GetParam());
  ASSERT_TRUE(program.ok());
  Floats a = randomFloats(m * k, 1, 1), w = randomFloats(n * k, 2, 1), bias = randomFloats(n, 3);
  Guarded out(m * n);
  program.run({a.data(), w.data(), bias.data(), out.data()});
  std::vector<double> expected(m * n);
  for (int i = 0; i < m; ++i)
    for (int j = 0; j < n; ++j) {
      double sum = 0;
      for (int l = 0; l < k; ++l)
        sum += double(a[i * k + l]) * w[j * k + l];
      expected[i * n + j] = 0.5 * sum + bias[j];
    }
  expectNear(out, expected, 1e-5);
}

// What reads the product's result elementwise is in its kernel: operands that repeat along rows or columns, one that is
// read transposed, several outputs, one of them the product itself.
TEST_P(Matmul, Epilogue) {
  for (auto [m, n] : {std::pair{37, 48}, std::pair{64, 64}, std::pair{9, 100}, std::pair{1, 3}}) {
    SCOPED_TRACE(std::to_string(m) + " x " + std::to_string(n));
    constexpr int k = 20;
    KernelText text;
    text.input({"%a", type(m, k), flat(k)});
    text.input({"%b", type(k, n), flat(n)});
    text.input({"%row", type(std::to_string(m)), "(d0) -> (d0)"});
    text.input({"%column", type(std::to_string(n)), "(d0) -> (d0)"});
    text.input({"%t", type(n, m), flat(m)});
    text.line("%p = zefuse.matmul %a, %b : (" + type(m, k) + ", " + type(k, n) + ") -> " + type(m, n));
    text.empty("%e", type(m, n));
    text.generic("%y", "pp",
                 {{"%p", type(m, n), both},
                  {"%row", type(std::to_string(m)), rows},
                  {"%column", type(std::to_string(n)), columns},
                  {"%t", type(n, m), "(d0, d1) -> (d1, d0)"}},
                 {"%e", type(m, n), both},
                 "%s = arith.addf %0, %1 : f32\n%u = arith.mulf %s, %2 : f32\n%h = math.tanh %u : f32\n"
                 "%v = arith.addf %h, %3 : f32\nyield %v : f32");
    text.output({"%y", type(m, n), flat(n)});
    text.output({"%p", type(m, n), "(d0, d1) -> (d1 * " + std::to_string(m) + " + d0)"});
    Program program(text.module(), GetParam());
    ASSERT_TRUE(program.ok());
    Floats a = randomFloats(m * k, 1, 1), b = randomFloats(k * n, 2, 1), row = randomFloats(m, 3),
           column = randomFloats(n, 4), t = randomFloats(m * n, 5);
    Guarded y(m * n), p(m * n);
    program.run({a.data(), b.data(), row.data(), column.data(), t.data(), y.data(), p.data()});
    std::vector<double> products(m * n), expected(m * n);
    for (int i = 0; i < m; ++i)
      for (int j = 0; j < n; ++j) {
        double sum = 0;
        for (int l = 0; l < k; ++l)
          sum += double(a[i * k + l]) * b[l * n + j];
        products[j * m + i] = sum;
        expected[i * n + j] = std::tanh((sum + row[i]) * column[j]) + t[j * m + i];
      }
    expectNear(p, products, 1e-5);
    expectNear(y, expected, 2e-5);
  }
}

// A result that is read as heads: [rows * s, heads * width] as [rows, heads, s, width].
TEST_P(Matmul, EpilogueOfAView) {
  constexpr int rows = 3, s = 5, heads = 4, width = 6, k = 7, m = rows * s, n = heads * width;
  KernelText text;
  text.input({"%a", type(m, k), flat(k)});
  text.input({"%b", type(k, n), flat(n)});
  text.line("%p = zefuse.matmul %a, %b : (" + type(m, k) + ", " + type(k, n) + ") -> " + type(m, n));
  const std::string shape = type("3x4x5x6"), same = "(d0, d1, d2, d3) -> (d0, d1, d2, d3)";
  text.line("%v = zefuse.view %p affine_map<(d0, d1, d2, d3) -> (d0 * 5 + d2, d1 * 6 + d3)> : " + type(m, n) + " -> " +
            shape);
  text.empty("%e", shape);
  text.generic("%y", "pppp", {{"%v", shape, same}}, {"%e", shape, same},
               "%two = arith.constant 2.0 : f32\n%s = arith.mulf %0, %two : f32\nyield %s : f32");
  text.output({"%y", shape, "(d0, d1, d2, d3) -> (d0 * 120 + d1 * 30 + d2 * 6 + d3)"});
  Program program(text.module(), GetParam());
  ASSERT_TRUE(program.ok());
  Floats a = randomFloats(m * k, 1, 1), b = randomFloats(k * n, 2, 1);
  Guarded out(m * n);
  program.run({a.data(), b.data(), out.data()});
  const std::vector<double> product = productOf(a, b, m, n, k);
  std::vector<double> expected(m * n);
  for (int i = 0; i < m; ++i)
    for (int j = 0; j < n; ++j)
      expected[i / s * 120 + j / width * 30 + i % s * 6 + j % width] = 2 * product[i * n + j];
  expectNear(out, expected, 1e-5);
}

// Operands that are computed where they are loaded: f32 scaled per row and narrowed, and weights of 8 bits with a scale
// per column and block of k, read transposed. On the matrix engine where there is one.
TEST_P(Matmul, Operands) {
  for (auto [m, n, k] : {std::tuple{37, 48, 24}, std::tuple{64, 64, 64}, std::tuple{5, 20, 8}}) {
    SCOPED_TRACE(std::to_string(m) + " x " + std::to_string(n) + " x " + std::to_string(k));
    auto shape = [](int a, int b, const char* element) {
      return type(std::to_string(a) + "x" + std::to_string(b), element);
    };
    const int blocks = k / 8;
    KernelText text;
    text.input({"%x", type(m, k), flat(k)});
    text.input({"%row", type(std::to_string(m)), "(d0) -> (d0)"});
    text.input({"%w", shape(n, k, "i8"), flat(k)});
    text.input({"%scale", type(n, blocks), flat(blocks)});
    text.empty("%ae", shape(m, k, "bf16"));
    text.generic("%a", "pp", {{"%x", type(m, k), both}, {"%row", type(std::to_string(m)), rows}},
                 {"%ae", shape(m, k, "bf16"), both},
                 "%s = arith.mulf %0, %1 : f32\n%t = arith.truncf %s : f32 to bf16\nyield %t : bf16");
    text.line("%sv = zefuse.view %scale affine_map<(d0, d1) -> (d0, d1 floordiv 8)> : " + type(n, blocks) + " -> " +
              type(n, k));
    text.empty("%be", shape(n, k, "bf16"));
    text.generic("%b", "pp", {{"%w", shape(n, k, "i8"), both}, {"%sv", type(n, k), both}},
                 {"%be", shape(n, k, "bf16"), both},
                 "%s = arith.sitofp %0 : i8 to f32\n%u = arith.mulf %s, %1 : f32\n"
                 "%t = arith.truncf %u : f32 to bf16\nyield %t : bf16");
    text.line("%bt = zefuse.view %b affine_map<(d0, d1) -> (d1, d0)> : " + shape(n, k, "bf16") + " -> " +
              shape(k, n, "bf16"));
    text.line("%p = zefuse.matmul %a, %bt : (" + shape(m, k, "bf16") + ", " + shape(k, n, "bf16") + ") -> " +
              type(m, n));
    text.output({"%p", type(m, n), flat(n)});
    Program program(text.module(), GetParam());
    ASSERT_TRUE(program.ok());
    EXPECT_TRUE(program.lowered().schedule.onMatrixEngine()) << describe(program.lowered().schedule);
    Floats x = randomFloats(m * k, 1, 1), row = randomFloats(m, 2, 1), scale = randomFloats(n * blocks, 3, 1);
    std::vector<int8_t> w(n * k);
    for (size_t i = 0; i < w.size(); ++i)
      w[i] = int8_t(i * 37 % 251 - 125);
    Guarded out(m * n);
    program.run({x.data(), row.data(), w.data(), scale.data(), out.data()});
    std::vector<double> expected(m * n);
    for (int i = 0; i < m; ++i)
      for (int j = 0; j < n; ++j)
        for (int l = 0; l < k; ++l)
          expected[i * n + j] += double(floatOf(bf16Of(x[i * k + l] * row[i]))) *
                                 floatOf(bf16Of(float(w[j * k + l]) * scale[j * blocks + l / 8]));
    out.expectUntouched();
    for (int i = 0; i < m * n; ++i)
      ASSERT_NEAR(out[i], expected[i], 1e-3 * (1 + std::abs(expected[i]))) << i;
  }
}

// Elements of 16 bits are rounded where eager rounds them: the product, then what follows.
TEST_P(Matmul, SixteenBitResultsAreRounded) {
  constexpr int m = 20, n = 33, k = 16;
  const std::string a_type = type("20x16", "bf16"), b_type = type("16x33", "bf16"), y_type = type("20x33", "bf16");
  KernelText text;
  text.input({"%a", a_type, flat(k)});
  text.input({"%b", b_type, flat(n)});
  text.line("%p = zefuse.matmul %a, %b : (" + a_type + ", " + b_type + ") -> " + y_type);
  text.empty("%e", y_type);
  text.generic("%y", "pp", {{"%p", y_type, both}}, {"%e", y_type, both},
               "%w = arith.extf %0 : bf16 to f32\n%third = arith.constant 0.33333334 : f32\n"
               "%s = arith.mulf %w, %third : f32\n%t = arith.truncf %s : f32 to bf16\nyield %t : bf16");
  text.output({"%y", y_type, flat(n)});
  Program program(text.module(), GetParam());
  ASSERT_TRUE(program.ok());
  std::vector<uint16_t> a(m * k), b(k * n), y(m * n);
  for (size_t i = 0; i < a.size(); ++i)
    a[i] = bf16Of(float(int(i * 7 % 13) - 6));
  for (size_t i = 0; i < b.size(); ++i)
    b[i] = bf16Of(float(int(i * 5 % 31) - 15));
  program.run({a.data(), b.data(), y.data()});
  for (int i = 0; i < m; ++i)
    for (int j = 0; j < n; ++j) {
      float sum = 0;  // of small integers: exact
      for (int l = 0; l < k; ++l)
        sum += floatOf(a[i * k + l]) * floatOf(b[l * n + j]);
      ASSERT_EQ(y[i * n + j], bf16Of(floatOf(bf16Of(sum)) * 0.33333334f)) << i << ", " << j;
    }
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

struct TileCase {
  int64_t engines;  // as few as make the cost model take large tiles
  int m, n, k;
};

// Copies that go past the registers (buffers are aligned), both orders of each operand, edges on every side, and an
// epilogue. Element: of the operands, bf16 as its bits. `words`: copies of one element go past the registers too.
template <typename Element> void expectRightInEveryOrder(const TileCase& c, const char* element, bool words) {
  constexpr int access = 16 / sizeof(Element);
  auto bitsOf = [](float value) {
    if constexpr (std::is_same_v<Element, float>)
      return value;
    else
      return bf16Of(value);
  };
  auto valueOf = [](Element bits) {
    if constexpr (std::is_same_v<Element, float>)
      return bits;
    else
      return floatOf(bits);
  };
  for (int order = 0; order < 4; ++order) {
    const bool a_turned = (order & 1) != 0, b_turned = (order & 2) != 0;
    auto [engines, m, n, k] = c;
    SCOPED_TRACE(std::to_string(m) + " x " + std::to_string(n) + " x " + std::to_string(k) + ", order " +
                 std::to_string(order));
    TargetDescription target = *TargetDescription::named("sm_90");
    target.engines = engines;
    if (words)  // without tf32, whose operation is the last
      target.matrix.operations = target.matrix.operations.first(2);
    auto shape = [&](int rows, int columns) {
      return type(std::to_string(rows) + "x" + std::to_string(columns), element);
    };
    const int a_line = (m + 7) / 8 * 8;  // turned: rows that are neighbours, lines of whole accesses
    KernelText text;
    text.input({"%a", shape(m, k), a_turned ? "(d0, d1) -> (d1 * " + std::to_string(a_line) + " + d0)" : flat(k)});
    text.input({"%b", shape(k, n), b_turned ? "(d0, d1) -> (d1 * " + std::to_string(k) + " + d0)" : flat(n)});
    text.input({"%r", type(m, n), flat(n)});
    text.line("%p = zefuse.matmul %a, %b : (" + shape(m, k) + ", " + shape(k, n) + ") -> " + type(m, n));
    text.empty("%e", type(m, n));
    text.generic("%y", "pp", {{"%p", type(m, n), both}, {"%r", type(m, n), both}}, {"%e", type(m, n), both},
                 "%s = arith.addf %0, %1 : f32\nyield %s : f32");
    text.output({"%y", type(m, n), flat(n)});
    Program program(text.module(), target, /*aligned=*/true);
    ASSERT_TRUE(program.ok());
    EXPECT_EQ(program.lowered().schedule.onMatrixEngine(), !words) << describe(program.lowered().schedule);
    auto calls = [&](const char* function) {
      return program.stage("kernel.spvasm").find(function) != std::string::npos;
    };
    // Whole accesses of an operand go past the registers; in words also where local memory has it turned.
    const bool a_whole = (a_turned ? m : k) % access == 0, b_whole = (b_turned ? k : n) % access == 0;
    if (words) {
      EXPECT_EQ(calls("zefuse_copy_to_local"), (a_turned && a_whole) || (!b_turned && b_whole));
      EXPECT_EQ(calls("zefuse_copy_word_to_local"), !a_turned || !a_whole || b_turned || !b_whole);
    } else {
      EXPECT_EQ(calls("zefuse_copy_to_local"), a_whole || b_whole);
    }
    struct alignas(64) Line {
      Element elements[32];
    };
    std::vector<Line> a_memory(size_t(a_line) * size_t(k) / 32 + size_t(m) * size_t(k) / 32 + 2),
        b_memory(size_t(k) * size_t(n) / 32 + 1);
    Element *a = a_memory[0].elements, *b = b_memory[0].elements;
    std::vector<Line> r_memory(size_t(m) * size_t(n) / 16 + 1), y_memory(r_memory.size());
    auto *r = reinterpret_cast<float*>(r_memory.data()), *y = reinterpret_cast<float*>(y_memory.data());
    auto aOf = [&](int i, int l) -> Element& { return a[a_turned ? l * a_line + i : i * k + l]; };
    auto bOf = [&](int l, int j) -> Element& { return b[b_turned ? j * k + l : l * n + j]; };
    std::fill_n(a, a_memory.size() * 32, bitsOf(NAN));  // between the lines
    for (int i = 0; i < m; ++i)
      for (int l = 0; l < k; ++l)
        aOf(i, l) = bitsOf(float((i * 7 + l * 3) % 13 - 6));
    for (int l = 0; l < k; ++l)
      for (int j = 0; j < n; ++j)
        bOf(l, j) = bitsOf(float((l * 5 + j) % 31 - 15));
    for (int i = 0; i < m * n; ++i)
      r[i] = float(i % 17);
    program.run({a, b, r, y});
    for (int i = 0; i < m; ++i)
      for (int j = 0; j < n; ++j) {
        float sum = r[i * n + j];  // of small integers: exact
        for (int l = 0; l < k; ++l)
          sum += valueOf(aOf(i, l)) * valueOf(bOf(l, j));
        ASSERT_EQ(y[i * n + j], sum) << i << ", " << j;
      }
  }
}

// Each tile of a matrix engine of fragments.
TEST(MatmulTargets, FragmentsInEveryOrder) {
  for (TileCase c : {TileCase{1, 130, 136, 72}, TileCase{132, 72, 40, 200}, TileCase{132, 16, 24, 8}})
    expectRightInEveryOrder<uint16_t>(c, "bf16", /*words=*/false);
}

// The same without an engine: sums in registers, in f32.
TEST(MatmulTargets, RegistersInEveryOrder) {
  for (TileCase c : {TileCase{1, 130, 136, 72}, TileCase{1, 257, 131, 33}, TileCase{132, 72, 40, 200},
                     TileCase{132, 16, 24, 8}, TileCase{132, 9, 7, 5}})
    expectRightInEveryOrder<float>(c, "f32", /*words=*/true);
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
