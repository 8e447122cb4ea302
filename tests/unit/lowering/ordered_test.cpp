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

// Rows of updates into rows of a table, by `body`. count: "?" is a symbol.
std::string tableKernel(int rows, int width, const std::string& count, const std::string& body,
                        const std::string& element = "f32") {
  const bool symbolic = count == "?";
  std::string w = std::to_string(width), symbols = symbolic ? "[s0]" : "";
  auto updatesOf = [&](const std::string& type) {
    return "tensor<" + count + "x" + w + "x" + type + (symbolic ? ", affine_map<()[s0] -> (s0, " + w + ")>>" : ">");
  };
  std::string table = "tensor<" + std::to_string(rows) + "x" + w + "x" + element + ">",
              ids = "tensor<" + count + "xi64" + (symbolic ? ", affine_map<()[s0] -> (s0)>>" : ">");
  KernelText text;
  text.input({"%init", table, flat(width)});
  text.input({"%updates", updatesOf(element), "(d0, d1)" + symbols + " -> (d0 * " + w + " + d1)"});
  text.input({"%ids", ids, "(d0)" + symbols + " -> (d0)"});
  text.line("%at = zefuse.view %ids affine_map<(d0, d1)" + symbols + " -> (d0)> : " + ids + " -> " + updatesOf("i64"));
  text.line("%r = zefuse.scatter %init, %updates (%at) affine_map<(d0, d1, d2)" + symbols + " -> (d2, d1)> : (" +
            table + ", " + updatesOf(element) + ", " + updatesOf("i64") + ") -> " + table + " {\n    ^bb0(%old: " +
            element + ", %new: " + element + "):\n      " + body + "\n      zefuse.yield %s : " + element + "\n    }");
  text.output({"%r", table, flat(width)});
  return text.module();
}

// A table's gradient. A GPU's groups share the table, in the updates' order and with its bits, or the updates too.
TEST_P(Lowering, ScatterIntoATable) {
  const bool parallel = GetParam().hasWorkGroups();
  struct Case {
    int rows, width, count;
    bool symbolic = false, slices = true;
  };
  for (const Case& c : {Case{500, 24, 150},
                        {300, 1, 150},
                        {97, 35, 500},
                        {169, 3, 2401},
                        {40, 300, 70},
                        {2, 96, 333},
                        {31, 1, 900},
                        {5, 7, 64},
                        {169, 3, 777, true},
                        {2, 96, 333, true},
                        {169, 3, 0, true},
                        {500, 24, 63, false, false}})
    for (bool slices : {false, true}) {
      if (slices && !parallel)
        continue;
      SCOPED_TRACE(std::to_string(c.rows) + " rows of " + std::to_string(c.width) + ", " + std::to_string(c.count) +
                   (c.symbolic ? ", symbolic" : "") + (slices ? ", slices" : ""));
      Program program(
          tableKernel(c.rows, c.width, c.symbolic ? "?" : std::to_string(c.count), "%s = arith.addf %old, %new : f32"),
          GetParam(), /*aligned=*/false, slices ? Tuning{} : Tuning{{"sums of slices of the updates", 0}});
      ASSERT_TRUE(program.ok());
      const LoweredKernel& kernel = program.lowered();
      const auto* chosen = kernel.schedule.find<choice::Scatter>();
      ASSERT_TRUE(chosen);
      EXPECT_EQ(chosen->slices > 1, slices && c.slices) << describe(kernel.schedule);
      if (parallel && !slices && c.rows >= 32 && c.count >= 32)
        EXPECT_GE(c.rows / kernel.grain, 16) << "groups";
      Floats init = randomFloats(c.rows * c.width, 2), updates = randomFloats(c.count * c.width, 3), ordered = init;
      std::vector<double> sums(init.begin(), init.end());
      std::vector<int64_t> ids(c.count), symbols;
      for (int i = 0; i < c.count; ++i)
        ids[i] = i % 3 == 0 ? std::min(7, c.rows - 1) : i * 37 % c.rows;
      for (int i = 0; i < c.count; ++i)
        for (int j = 0; j < c.width; ++j) {
          ordered[ids[i] * c.width + j] += updates[i * c.width + j];
          sums[ids[i] * c.width + j] += updates[i * c.width + j];
        }
      if (c.symbolic)
        symbols.push_back(c.count);
      Guarded out(c.rows * c.width);
      program.run({init.data(), updates.data(), ids.data(), out.data()}, symbols);
      if (chosen->slices > 1)
        expectNear(out, sums, 1e-5);
      else
        expectNear(out, {ordered.begin(), ordered.end()}, 0);  // the same order, the same bits
    }
}

// In order, a sum of 450 ones in bf16 ends at 256.
TEST_P(Lowering, SlicesOfSixteenBitsAreSummedInF32) {
  if (!GetParam().hasWorkGroups())
    GTEST_SKIP() << "in order";
  constexpr int rows = 2, width = 40, count = 900;
  constexpr uint16_t one = 0x3f80, all = 0x43e1;  // 450
  Program program(tableKernel(rows, width, std::to_string(count),
                              "%a = arith.extf %old : bf16 to f32\n %b = arith.extf %new : bf16 to f32\n"
                              "      %c = arith.addf %a, %b : f32\n %s = arith.truncf %c : f32 to bf16",
                              "bf16"),
                  GetParam());
  ASSERT_TRUE(program.ok());
  std::vector<uint16_t> init(rows * width), updates(count * width, one), out(rows * width);
  std::vector<int64_t> ids(count);
  for (int i = 0; i < count; ++i)
    ids[i] = i % 2;
  program.run({init.data(), updates.data(), ids.data(), out.data()});
  EXPECT_EQ(out, std::vector<uint16_t>(rows * width, all));
}

// Only sums have slices.
TEST_P(Lowering, ScatterOfTheGreatest) {
  Program program(tableKernel(169, 3, "150", "%s = arith.maximumf %old, %new : f32"), GetParam());
  ASSERT_TRUE(program.ok());
  EXPECT_EQ(program.lowered().schedule.find<choice::Scatter>()->slices, 1);
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
