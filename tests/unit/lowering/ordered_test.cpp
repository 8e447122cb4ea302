// Operations whose order is part of the meaning (scans, scatters), and padding: lowered for each target, run on the
// host, compared with plain C++.
#include "tests/unit/lowering/numerics.h"

namespace zefuse::test {
namespace {

std::string scanLine(const std::string& result, const std::string& source, int dim, const std::string& type) {
  return result + " = zefuse.scan " + source + " dim " + std::to_string(dim) + " initial 0.0 : f32 : (" + type +
         ") -> " + type +
         " {\n    ^bb0(%before: f32, %element: f32):\n      %sum = arith.addf %before, %element : f32\n      "
         "zefuse.yield "
         "%sum : f32\n    }";
}

TEST_P(Lowering, RunningSums) {
  for (auto [n, m] : {std::pair{5, 40}, std::pair{33, 17}, std::pair{2, 3}})
    for (int dim : {0, 1}) {
      SCOPED_TRACE(std::to_string(n) + "x" + std::to_string(m) + " along " + std::to_string(dim));
      KernelText text;
      std::string full = type(n, m);
      text.input({"%x", full, flat(m)});
      text.line(scanLine("%s", "%x", dim, full));
      text.empty("%e", full);  // its elements are used where they are made
      text.generic("%r", "pp", {{"%s", full, both}, {"%x", full, both}}, {"%e", full, both},
                   "%p = arith.mulf %0, %1 : f32\n yield %p : f32");
      text.output({"%r", full, flat(m)});
      Program program(text.module(), GetParam());
      ASSERT_TRUE(program.ok());
      Floats x = randomFloats(n * m);
      std::vector<double> sums(x.begin(), x.end()), expected;
      for (int i = 0; i < n; ++i)
        for (int j = 0; j < m; ++j)
          if (int before = dim == 0 ? i : j; before > 0)
            sums[i * m + j] += sums[i * m + j - (dim == 0 ? m : 1)];
      for (int i = 0; i < n * m; ++i)
        expected.push_back(sums[i] * x[i]);
      Guarded out(n * m);
      program.run({x.data(), out.data()});
      expectNear(out, expected, 2e-5);
    }
}

TEST_P(Lowering, SymbolicRunningSums) {
  std::string full = "tensor<?x?xf32, affine_map<()[s0, s1] -> (s0, s1)>>";
  const char* layout = "(d0, d1)[s0, s1] -> (d0 * s1 + d1)";
  KernelText text;
  text.input({"%x", full, layout});
  text.line(scanLine("%r", "%x", 0, full));
  text.output({"%r", full, layout});
  Program program(text.module(), GetParam());
  ASSERT_TRUE(program.ok());
  for (auto [n, m] : {std::pair{3, 40}, std::pair{1, 1}, std::pair{20, 15}, std::pair{0, 4}, std::pair{4, 0}}) {
    Floats x = randomFloats(n * m);
    std::vector<double> expected(x.begin(), x.end());
    for (int i = m; i < n * m; ++i)
      expected[i] += expected[i - m];
    Guarded out(n * m);
    program.run({x.data(), out.data()}, {n, m});
    expectNear(out, expected, 2e-5);
  }
}

std::string scatterKernel(const char* body) {
  KernelText text;
  text.input({"%init", type("10x24"), flat(24)});
  text.input({"%updates", type("50x24"), flat(24)});
  text.input({"%ids", type("50x24", "i64"), "(d0, d1) -> (d0)"});
  text.line("%r = zefuse.scatter %init, %updates (%ids) affine_map<(d0, d1, d2) -> (d2, d1)> : (" + type("10x24") +
            ", " + type("50x24") + ", " + type("50x24", "i64") + ") -> " + type("10x24") +
            " {\n    ^bb0(%old: f32, %new: f32):\n      " + body + "\n    }");
  text.output({"%r", type("10x24"), flat(24)});
  return text.module();
}

TEST_P(Lowering, ScatterAddsInOrder) {
  Program sums(scatterKernel("%s = arith.addf %old, %new : f32\n      zefuse.yield %s : f32"), GetParam());
  Program assignments(scatterKernel("zefuse.yield %new : f32"), GetParam());
  ASSERT_TRUE(sums.ok() && assignments.ok());
  Floats init = randomFloats(240, 2), updates = randomFloats(50 * 24, 3);
  std::vector<int64_t> ids(50);
  for (int i = 0; i < 50; ++i)
    ids[i] = i * 7 % 9;  // row 9 stays
  Floats sum = init, last = init;
  for (int i = 0; i < 50; ++i)
    for (int j = 0; j < 24; ++j) {
      sum[ids[i] * 24 + j] += updates[i * 24 + j];
      last[ids[i] * 24 + j] = updates[i * 24 + j];
    }
  Guarded out(240);
  sums.run({init.data(), updates.data(), ids.data(), out.data()});
  expectNear(out, {sum.begin(), sum.end()}, 0);  // the same order, the same bits
  assignments.run({init.data(), updates.data(), ids.data(), out.data()});
  expectNear(out, {last.begin(), last.end()}, 0);
}

// A table's gradient: a GPU's groups share the table, so that the whole device fills it, and the bits are the same.
TEST_P(Lowering, ScatterIntoManyRows) {
  for (auto [rows, width] : {std::pair{500, 24}, std::pair{300, 1}, std::pair{97, 35}}) {
    SCOPED_TRACE(std::to_string(rows) + " rows of " + std::to_string(width));
    constexpr int count = 150;
    std::string table = type(size_t(rows), size_t(width)), updated = type(count, size_t(width)),
                at = type(std::to_string(count) + "x" + std::to_string(width), "i64");
    KernelText text;
    text.input({"%init", table, flat(width)});
    text.input({"%updates", updated, flat(width)});
    text.input({"%ids", type(std::to_string(count), "i64"), "(d0) -> (d0)"});
    text.line("%at = zefuse.view %ids affine_map<(d0, d1) -> (d0)> : " + type(std::to_string(count), "i64") + " -> " +
              at);
    text.line("%r = zefuse.scatter %init, %updates (%at) affine_map<(d0, d1, d2) -> (d2, d1)> : (" + table + ", " +
              updated + ", " + at + ") -> " + table +
              " {\n    ^bb0(%old: f32, %new: f32):\n      %s = arith.addf %old, %new : f32\n      zefuse.yield %s : "
              "f32\n    }");
    text.output({"%r", table, flat(width)});
    Program program(text.module(), GetParam());
    ASSERT_TRUE(program.ok());
    if (GetParam().hasWorkGroups()) {
      const LoweredKernel& kernel = program.lowered();
      EXPECT_GE(rows / kernel.grain, 16) << "groups";
    }
    Floats init = randomFloats(rows * width, 2), updates = randomFloats(count * width, 3);
    std::vector<int64_t> ids(count);
    for (int i = 0; i < count; ++i)
      ids[i] = i % 3 == 0 ? 7 : i * 37 % rows;
    Floats sum = init;
    for (int i = 0; i < count; ++i)
      for (int j = 0; j < width; ++j)
        sum[ids[i] * width + j] += updates[i * width + j];
    Guarded out(rows * width);
    program.run({init.data(), updates.data(), ids.data(), out.data()});
    expectNear(out, {sum.begin(), sum.end()}, 0);  // the same order, the same bits
  }
}

TEST_P(Lowering, PaddingInsideAndAcrossTheBorder) {
  for (int width : {3, 20, 64}) {
    SCOPED_TRACE(width);
    int wide = width + 5;
    KernelText text;
    text.input({"%x", type(4, width), flat(width)});
    text.line("%r = zefuse.pad %x low [1, 2] value -1.0 : f32 : " + type(4, width) + " -> " + type(6, wide));
    text.output({"%r", type(6, wide), flat(wide)});
    Program program(text.module(), GetParam());
    ASSERT_TRUE(program.ok());
    Floats x = randomFloats(4 * width);
    std::vector<double> expected;
    for (int i = 0; i < 6; ++i)
      for (int j = 0; j < wide; ++j)
        expected.push_back(i < 1 || i > 4 || j < 2 || j >= width + 2 ? -1.0 : x[(i - 1) * width + j - 2]);
    Guarded out(6 * wide);
    program.run({x.data(), out.data()});
    expectNear(out, expected, 0);
  }
}

TEST(Scan, HasOneDirection) {
  KernelText text;
  text.input({"%x", type("4x9"), flat(9)});
  text.line(scanLine("%a", "%x", 0, type("4x9")));
  text.line(scanLine("%b", "%a", 1, type("4x9")));
  text.output({"%b", type("4x9"), flat(9)});
  EXPECT_NE(refusalOf(text.module()).find("in another order than it is made"), std::string::npos)
      << refusalOf(text.module());
}

}  // namespace
}  // namespace zefuse::test
