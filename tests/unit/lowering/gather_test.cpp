// Gathers and their checks: lowered for each target, run on the host, compared with plain C++.
#include "tests/unit/lowering/numerics.h"

namespace zefuse::test {
namespace {

TEST_P(Lowering, EmbeddingChecksItsIndices) {
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
  Program program(text.module(), GetParam());
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

TEST_P(Lowering, EmptyTablesAndPieces) {
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
  Program program(text.module(), GetParam());
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
  Program empty(sum.module(), GetParam());
  ASSERT_TRUE(empty.ok());
  Guarded sums(4);
  empty.run({nullptr, sums.data()});
  expectNear(sums, {2.5, 2.5, 2.5, 2.5});
}

TEST_P(Lowering, GatherPerLane) {
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
  Program program(text.module(), GetParam());
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

}  // namespace
}  // namespace zefuse::test
