// Kernels from OpenCL C, run on every instruction set of the host.
#include "tests/unit/codegen/harness.h"

#include <gtest/gtest.h>

#include <numeric>

namespace zefuse::cpu::testing {
namespace {

class Run : public ::testing::TestWithParam<IsaLevel> {
protected:
  Program build(const std::string& name) { return Program(loadSpirv(name), {.isa = GetParam()}); }
};

std::vector<float> iota(size_t n, float first = 0) {
  std::vector<float> v(n);
  std::iota(v.begin(), v.end(), first);
  return v;
}

TEST_P(Run, VectorAddInAnyGroupSize) {
  Program p = build("basic");
  ASSERT_TRUE(p.ok());
  for (uint64_t local : {1, 7, 16, 64}) {
    auto a = iota(64 * 7), b = iota(64 * 7, 5);
    std::vector<float> c(64 * 7, -1);
    p.run("vector_add", {64 * 7 / local, 1, 1}, {local, 1, 1}, {Arg::buffer(a), Arg::buffer(b), Arg::buffer(c)});
    for (size_t i = 0; i < 64 * 7 / local * local; ++i)
      ASSERT_EQ(c[i], 2.0f * i + 5) << i << " local " << local;
  }
}

TEST_P(Run, ReductionWithBarrierInALoop) {
  Program p = build("basic");
  ASSERT_TRUE(p.ok());
  for (uint64_t local : {1, 2, 32, 256}) {
    auto in = iota(512);
    std::vector<float> out(512 / local, -1);
    p.run("reduce", {512 / local, 1, 1}, {local, 1, 1},
          {Arg::buffer(in), Arg::buffer(out), Arg::local(local * 4), Arg::of(int{0})});
    for (size_t g = 0; g < out.size(); ++g) {
      float want = 1;
      for (size_t i = 0; i < local; ++i)
        want += in[g * local + i];
      ASSERT_EQ(out[g], want) << "group " << g << " of " << local;
    }
  }
  EXPECT_TRUE(p.info("reduce").has_barrier);
  EXPECT_EQ(p.info("reduce").local_bytes, 256u);
  EXPECT_FALSE(p.info("vector_add").has_barrier);
}

TEST_P(Run, StructByValue) {
  Program p = build("basic");
  ASSERT_TRUE(p.ok());
  struct S {
    int a;
    float b[3];
    int64_t c;
  } s{1, {10, 20, 30}, 100};
  std::vector<float> out(8);
  p.run("struct_arg", {2, 1, 1}, {4, 1, 1}, {Arg::buffer(out), Arg::of(s), Arg::of(int{2})});
  for (float v : out)
    EXPECT_EQ(v, 1 + 30 * 3 + 100);
}

TEST_P(Run, SubgroupReduce) {
  Program p = build("basic");
  ASSERT_TRUE(p.ok());
  for (uint64_t local : {1, 16, 40}) {
    auto in = iota(local);
    std::vector<float> out(local, -1);
    p.run("subgroup_sum", {1, 1, 1}, {local, 1, 1}, {Arg::buffer(in), Arg::buffer(out)});
    for (size_t i = 0; i < local; ++i) {
      size_t first = i / 16 * 16, last = std::min<size_t>(first + 16, local);
      float sum = 0;
      for (size_t k = first; k < last; ++k)
        sum += in[k];
      ASSERT_EQ(out[i], sum + 1000 * (i / 16)) << i << " of " << local;
    }
  }
}

// What SYCL's programs bring: kernels/translated.spvasm.
TEST_P(Run, ModulesOfTranslators) {
  Program p = build("translated");
  ASSERT_TRUE(p.ok());
  EXPECT_TRUE(p.module()->unresolvedImports().empty());

  std::vector<uint32_t> products(10, 0);
  p.run("products", {2, 1, 1}, {5, 1, 1}, {Arg::buffer(products)});
  EXPECT_EQ(products, std::vector<uint32_t>(10, 1 * 2 * 3 * 4 * 5));

  for (uint32_t delta : {0u, 1u, 3u, 7u}) {
    std::vector<uint32_t> up(16, 0), down(16, 0);
    p.run("shuffles", {1, 1, 1}, {16, 1, 1}, {Arg::buffer(up), Arg::buffer(down), Arg::of(delta)});
    for (uint32_t i = 0; i < 16; ++i) {
      const uint32_t lane = i % 8, first = i - lane;
      EXPECT_EQ(down[i], lane + delta < 8 ? i + delta : first + 100 + (lane + delta - 8)) << i << " by " << delta;
      EXPECT_EQ(up[i], lane >= delta ? i - delta : first + 100 + (lane + 8 - delta)) << i << " by " << delta;
    }
  }

  std::vector<uint32_t> casts(1, 0);
  p.run("casts", {1, 1, 1}, {1, 1, 1}, {Arg::buffer(casts)});
  EXPECT_EQ(casts[0], 3u);
}

INSTANTIATE_TEST_SUITE_P(Levels, Run, ::testing::ValuesIn(hostLevels()),
                         [](auto& i) { return std::string(isaLevelName(i.param)); });

}  // namespace
}  // namespace zefuse::cpu::testing
