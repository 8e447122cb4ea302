// Kernels whose sizes are symbols: lowered for each target, run on the host, compared with plain C++.
#include "tests/unit/lowering/numerics.h"

namespace zefuse::test {
namespace {

TEST_P(Lowering, DynamicSizes) {
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
  Program program(text.module(), GetParam());
  ASSERT_TRUE(program.ok());
  EXPECT_EQ(program.lowered().symbols, (std::vector<unsigned>{0, 1}));
  if (!GetParam().hasWorkGroups())
    EXPECT_TRUE(program.lowered().scratch_bytes) << "a row of unknown size is kept in scratch memory";
  for (auto [n, m] : {std::pair{3, 40}, std::pair{1, 1}, std::pair{5, 16}, std::pair{2, 15}, std::pair{0, 4},
                      std::pair{4, 200}, std::pair{7, 33}}) {
    Floats x = randomFloats(n * m);
    Guarded out(n * m);
    program.run({x.data(), out.data()}, {n, m});
    expectNear(out, softmaxOf({x.begin(), x.end()}, n, m));
  }
}

// Lanes across rows whose number is a symbol: the last vector repeats a row, in each stage. %p is the exponential of
// %d.
static void softmaxOverTheOuterDim(const TargetDescription& target, const std::string& power, int64_t values_kept) {
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
               "%d = arith.subf %0, %1 : f32\n " + power + "\n yield %p : f32");
  text.fill("%i1", row, "0.0", "%m");
  text.generic("%t", "rp", {{"%ex", full, both}}, {"%i1", row, columns},
               "%s = arith.addf %0, %o : f32\n yield %s : f32");
  text.generic("%r", "pp", {{"%ex", full, both}, {"%t", row, columns}}, {"%e", full, both},
               "%d = arith.divf %0, %1 : f32\n yield %d : f32");
  text.output({"%r", full, layout});
  Program program(text.module(), target);
  ASSERT_TRUE(program.ok());
  const ScheduleRecord& schedule = program.lowered().schedule;
  ASSERT_NE(schedule.find<choice::Reduction>(), nullptr);
  EXPECT_TRUE(schedule.find<choice::Reduction>()->across_rows) << describe(schedule);
  const choice::Kept* kept = schedule.find<choice::Kept>();
  EXPECT_EQ(kept ? kept->values : 0, values_kept) << describe(schedule);
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

TEST_P(Lowering, DynamicSoftmaxOverTheOuterDim) {  // on the CPU in strips
  softmaxOverTheOuterDim(GetParam(), "%p = math.exp %d : f32", 0);
}

TEST_P(Lowering, DynamicSoftmaxOverTheOuterDimOfCostlyValues) {
  softmaxOverTheOuterDim(GetParam(), "%w = math.exp %d : f32\n %l = math.log %w : f32\n %p = math.exp %l : f32",
                         GetParam().hasWorkGroups() ? 0 : 1);
}

TEST_P(Lowering, DynamicPointwise) {
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
    Program program(text.module(), GetParam());
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
  Program program(text.module(), GetParam());
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

}  // namespace
}  // namespace zefuse::test
