// Pointwise kernels, views and concats: lowered for each target, run on the host, compared with plain C++.
#include "tests/unit/lowering/numerics.h"

namespace zefuse::test {
namespace {

// Once, for the tests of all files.
INSTANTIATE_TEST_SUITE_P(Targets, Lowering, testing::ValuesIn(targets()), targetName);

class Pointwise : public testing::TestWithParam<std::tuple<std::pair<size_t, size_t>, TargetDescription>> {};

TEST_P(Pointwise, Probe) {
  auto [n, m] = std::get<0>(GetParam());
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
  Program program(text.module(), std::get<1>(GetParam()));
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
                         testing::Combine(testing::Values(std::pair{64, 64}, std::pair{5, 77}, std::pair{1, 1},
                                                          std::pair{3, 7}, std::pair{1, 1000}, std::pair{100, 1},
                                                          std::pair{0, 16}, std::pair{4, 0}, std::pair{33, 17}),
                                          testing::ValuesIn(targets())));

TEST_P(Lowering, PermutedAndBroadcastInputs) {
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
  Program program(text.module(), GetParam());
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

TEST_P(Lowering, TransposesOfEverySize) {
  // out[b, i, j] = x[b, j, i] + tanh(y[b, i, j]), static and symbolic; sizes that fill tiles and that do not.
  for (bool symbolic : {false, true})
    for (auto [n, m] : {std::pair{64, 32}, std::pair{33, 70}, std::pair{100, 5}, std::pair{40, 40}}) {
      SCOPED_TRACE(std::to_string(n) + " x " + std::to_string(m));
      std::string a = std::to_string(n), b = std::to_string(m);
      auto shape = [&](const char* first, const char* second, int i, int j) {
        return symbolic ? std::string("tensor<2x?x?xf32, affine_map<()[s0, s1] -> (2, ") + first + ", " + second + ")>>"
                        : type("2x" + std::to_string(i) + "x" + std::to_string(j));
      };
      std::string in = shape("s1", "s0", m, n), out_type = shape("s0", "s1", n, m);
      std::string symbols = symbolic ? "[s0, s1]" : "", area = symbolic ? "(s0 * s1)" : std::to_string(n * m);
      std::string map3 = "(d0, d1, d2) -> (d0, d1, d2)";
      KernelText text;
      text.input(
          {"%x", in, "(d0, d1, d2)" + symbols + " -> (d0 * " + area + " + d1 * " + (symbolic ? "s0" : a) + " + d2)"});
      std::string layout =
          "(d0, d1, d2)" + symbols + " -> (d0 * " + area + " + d1 * " + (symbolic ? "s1" : b) + " + d2)";
      text.input({"%y", out_type, layout});
      std::string sizes;
      if (symbolic) {
        text.line("%n = zefuse.size affine_map<()[s0, s1] -> (s0)>");
        text.line("%m = zefuse.size affine_map<()[s0, s1] -> (s1)>");
        sizes = "%n, %m";
      }
      text.line("%t = zefuse.view %x affine_map<(d0, d1, d2)" + symbols + " -> (d0, d2, d1)> : " + in + " -> " +
                out_type);
      text.empty("%e", out_type, sizes);
      text.generic("%r", "ppp", {{"%t", out_type, map3}, {"%y", out_type, map3}}, {"%e", out_type, map3},
                   "%h = math.tanh %1 : f32\n %s = arith.addf %0, %h : f32\n yield %s : f32");
      text.output({"%r", out_type, layout});
      Program program(text.module(), GetParam());
      ASSERT_TRUE(program.ok());
      if (GetParam().hasWorkGroups())
        EXPECT_NE(program.lowered().schedule.find<choice::LocalTiles>(), nullptr)
            << describe(program.lowered().schedule);
      Floats x = randomFloats(2 * n * m), y = randomFloats(2 * n * m, 2);
      Guarded out(2 * n * m);
      program.run({x.data(), y.data(), out.data()}, symbolic ? std::vector<int64_t>{n, m} : std::vector<int64_t>{});
      std::vector<double> expected;
      for (int k = 0; k < 2; ++k)
        for (int i = 0; i < n; ++i)
          for (int j = 0; j < m; ++j)
            expected.push_back(double(x[k * n * m + j * n + i]) + std::tanh(double(y[k * n * m + i * m + j])));
      expectNear(out, expected);
    }
}

TEST_P(Lowering, SlicedReshapedFlippedViews) {
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
  Program program(text.module(), GetParam());
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

class Concat : public testing::TestWithParam<std::tuple<std::tuple<int, int, int>, TargetDescription>> {};

TEST_P(Concat, Pieces) {
  auto [n, a, b] = std::get<0>(GetParam());
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
    Program program(text.module(), std::get<1>(GetParam()));
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

// Of pieces shorter than a vector, which take work, each vector would compute all along memory.
class ShortPieces : public testing::TestWithParam<TargetDescription> {};

TEST_P(ShortPieces, HaveLanesOfOnePiece) {
  const int n = 40, width = 3, count = 8, m = width * count;
  for (bool costly : {true, false}) {
    const std::string of_piece = type(n, width), full = type(n, m);
    KernelText text;
    text.input({"%x", of_piece, flat(width)});
    std::string names, types;
    for (int i = 0; i < count; ++i) {
      const std::string e = "%e" + std::to_string(i), piece = "%p" + std::to_string(i);
      text.empty(e, of_piece);
      text.generic(piece, "pp", {{"%x", of_piece, both}}, {e, of_piece, both},
                   "%f = arith.constant " + std::to_string(i + 1) + ".0 : f32\n %y = arith.mulf %0, %f : f32\n" +
                       (costly ? "%s = math.sin %y : f32" : "%s = arith.negf %y : f32") + "\n yield %s : f32");
      names += (i ? ", " : "") + piece;
      types += (i ? ", " : "") + of_piece;
    }
    text.line("%c = tensor.concat dim(1) " + names + " : (" + types + ") -> " + full);
    text.output({"%c", full, flat(m)});
    Program program(text.module(), GetParam());
    ASSERT_TRUE(program.ok());
    Floats x = randomFloats(n * width);
    Guarded out(n * m);
    program.run({x.data(), out.data()});
    std::vector<double> expected;
    for (int i = 0; i < n; ++i)
      for (int j = 0; j < m; ++j) {
        const double y = double(x[i * width + j % width]) * (j / width + 1);
        expected.push_back(costly ? std::sin(y) : -y);
      }
    expectNear(out, expected);
    const ScheduleRecord& schedule = program.lowered().schedule;
    ASSERT_NE(schedule.find<choice::Pointwise>(), nullptr) << describe(schedule);
    EXPECT_EQ(schedule.find<choice::Pointwise>()->lanes_of_one_piece, costly && !GetParam().hasWorkGroups())
        << describe(schedule);
  }
}

// Two pieces for each element, side by side: lanes are near each other along another dim, not rows apart.
TEST_P(ShortPieces, HaveLanesThatLieNear) {
  const int n = 64, width = 32;
  const std::string of_piece = type(n, width),
                    full = "tensor<" + std::to_string(n) + "x" + std::to_string(width) + "x2xf32>";
  const std::string view = "tensor<" + std::to_string(n) + "x" + std::to_string(width) + "x1xf32>";
  KernelText text;
  text.input({"%x", of_piece, flat(width)});
  text.empty("%e", of_piece);
  text.generic("%p", "pp", {{"%x", of_piece, both}}, {"%e", of_piece, both}, "%s = math.exp %0 : f32\n yield %s : f32");
  for (std::string name : {"%x", "%p"})
    text.line(name + "v = zefuse.view " + name + " affine_map<(d0, d1, d2) -> (d0, d1)> : " + of_piece + " -> " + view);
  text.line("%c = tensor.concat dim(2) %xv, %pv : (" + view + ", " + view + ") -> " + full);
  text.output({"%c", full, "(d0, d1, d2) -> (d0 * " + std::to_string(2 * width) + " + d1 * 2 + d2)"});
  Program program(text.module(), GetParam());
  ASSERT_TRUE(program.ok());
  Floats x = randomFloats(n * width);
  Guarded out(n * width * 2);
  program.run({x.data(), out.data()});
  std::vector<double> expected;
  for (int i = 0; i < n * width; ++i) {
    expected.push_back(x[i]);
    expected.push_back(std::exp(double(x[i])));
  }
  expectNear(out, expected);
}

INSTANTIATE_TEST_SUITE_P(Targets, ShortPieces, testing::ValuesIn(targets()));

INSTANTIATE_TEST_SUITE_P(Sizes, Concat,
                         testing::Combine(testing::Values(std::tuple{6, 32, 16}, std::tuple{6, 5, 40},
                                                          std::tuple{5, 45, 38}, std::tuple{33, 0, 9},
                                                          std::tuple{2, 1, 1}),
                                          testing::ValuesIn(targets())));

}  // namespace
}  // namespace zefuse::test
