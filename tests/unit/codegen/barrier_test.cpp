// Barriers, local memory, atomics, work-group and sub-group operations, against a straightforward C++ model.
#include "drivers/cpu/codegen/arena.h"
#include "tests/unit/codegen/harness.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <map>
#include <numeric>

namespace zefuse::cpu::testing {
namespace {

class Barrier : public ::testing::TestWithParam<IsaLevel> {
protected:
  static Program& program() {
    static std::map<IsaLevel, std::unique_ptr<Program>> all;
    auto& p = all[GetParam()];
    if (!p)
      p = std::make_unique<Program>(loadSpirv("barrier"), CompileOptions{.isa = GetParam()});
    return *p;
  }
  void SetUp() override { ASSERT_TRUE(program().ok()); }
};

std::vector<int> pattern(size_t n) {
  std::vector<int> v(n);
  for (size_t i = 0; i < n; ++i)
    v[i] = static_cast<int>(i * 37 % 101) - 3;
  return v;
}

TEST_P(Barrier, InUniformBranch) {
  for (int take : {0, 1, 5})
    for (uint64_t n : {1, 3, 16, 100}) {
      auto data = pattern(2 * n), want = data;
      for (uint64_t g = 0; g < 2; ++g) {
        int* d = &want[g * n];
        std::vector<int> mine(n), tmp(n);
        for (uint64_t l = 0; l < n; ++l)
          mine[l] = tmp[l] = take > 0 ? d[l] + d[n - 1 - l] * take : -d[l];
        for (uint64_t l = 0; l < n; ++l)
          d[l] = tmp[(l + 1) % n] * 2 + mine[l];
      }
      program().run("barrier_in_uniform_branch", {2, 1, 1}, {n, 1, 1},
                    {Arg::buffer(data), Arg::local(4 * n), Arg::of(take)});
      ASSERT_EQ(data, want) << take << " " << n;
    }
}

TEST_P(Barrier, NestedLoopsKeepPrivateState) {
  for (int rounds : {0, 1, 5})
    for (int n : {1, 2, 8, 64}) {
      auto data = pattern(n), want = data;
      std::vector<std::array<int, 4>> history(n, {0, 0, 0, 0});
      for (int r = 0; r < rounds; ++r) {
        for (int s = 1; s < n; s *= 2) {
          auto tmp = want;
          for (int l = 0; l < n; ++l) {
            int other = tmp[(l + s) % n];
            want[l] = static_cast<int>(want[l] * 3u + other);
            if (want[l] & 1)
              history[l][s & 3] = static_cast<int>(history[l][s & 3] + static_cast<unsigned>(other));
          }
        }
        for (int l = 0; l < n; ++l)
          history[l][r & 3] ^= want[l];
      }
      for (int l = 0; l < n; ++l)
        want[l] = static_cast<int>(0u + want[l] + history[l][0] + 5u * history[l][1] + 7u * history[l][2] +
                                   11u * history[l][3]);
      program().run("nested", {1, 1, 1}, {static_cast<uint64_t>(n), 1, 1}, {Arg::buffer(data), Arg::of(rounds)});
      ASSERT_EQ(data, want) << rounds << " " << n;
    }
}

TEST_P(Barrier, ThreeDimensions) {
  std::vector<int> out(24);
  program().run("barrier_3d", {1, 1, 1}, {4, 3, 2}, {Arg::buffer(out)});
  for (int z = 0; z < 2; ++z)
    for (int y = 0; y < 3; ++y)
      for (int x = 0; x < 4; ++x)
        EXPECT_EQ(out[(z * 3 + y) * 4 + x], (3 - x) + 10 * (2 - y) + 100 * (1 - z));
}

TEST_P(Barrier, Atomics) {
  int n = 96;
  std::vector<int> c{0, 0, -5, 5, 0, 0, -1, 1, 0};
  std::vector<uint64_t> wide{1};
  std::vector<float> f{0.5f};
  program().run("atomics", {3, 1, 1}, {32, 1, 1}, {Arg::buffer(c), Arg::buffer(wide), Arg::buffer(f)});
  int x = 0, m = -5, o = 0, a = -1;
  for (int g = 0; g < n; ++g) {
    x ^= g;
    m = std::max(m, g * 7 % 31);
    o |= 1 << (g % 30);
    a &= ~(1 << (g % 8));
  }
  int sum = n * (n - 1) / 2;
  EXPECT_EQ(c, (std::vector<int>{sum, n, m, -(n - 1), o, x, a, 1 + 2 * n, 2 * n}));
  EXPECT_EQ(wide[0], 1 + (static_cast<uint64_t>(sum) << 20));
  EXPECT_EQ(f[0], 0.5f + 1.5f * n);
}

TEST_P(Barrier, WorkGroupOperations) {
  for (uint64_t n : {4, 33, 128}) {
    auto in = pattern(2 * n);
    std::vector<int> out(16 * n);
    program().run("group_ops", {2, 1, 1}, {n, 1, 1}, {Arg::buffer(in), Arg::buffer(out)});
    for (uint64_t g = 0; g < 2; ++g) {
      int* v = &in[g * n];
      int sum = std::accumulate(v, v + n, 0), before = 0;
      for (uint64_t l = 0; l < n; ++l) {
        int* o = &out[8 * (g * n + l)];
        ASSERT_EQ(o[0], sum);
        ASSERT_EQ(o[1], *std::max_element(v, v + l + 1));
        ASSERT_EQ(o[2], before);
        ASSERT_EQ(o[3], v[3]);
        ASSERT_EQ(o[4], std::all_of(v, v + n, [](int e) { return e > 0; }));
        ASSERT_EQ(o[5], std::any_of(v, v + n, [](int e) { return e > 90; }));
        ASSERT_EQ(o[6], *std::min_element(v, v + n));
        ASSERT_EQ(o[7], static_cast<int>(l));
        before += v[l];
      }
    }
  }
}

TEST_P(Barrier, BlockReductionWithOneSubgroupLast) {
  for (uint64_t n : {16, 48, 200, 256}) {
    std::vector<float> in(3 * n), out(3);
    std::iota(in.begin(), in.end(), 1.0f);
    program().run("block_reduce", {3, 1, 1}, {n, 1, 1}, {Arg::buffer(in), Arg::buffer(out)});
    for (uint64_t g = 0; g < 3; ++g)
      EXPECT_EQ(out[g], std::accumulate(&in[g * n], &in[g * n] + n, 0.0f)) << n;
  }
}

TEST_P(Barrier, SubgroupsOfRequiredSize) {
  EXPECT_EQ(program().info("subgroups").required_subgroup_size, 8u);
  EXPECT_EQ(program().info("subgroups").source_attributes, "intel_reqd_sub_group_size(8)");
  for (Size3 local : {Size3{8, 1, 1}, Size3{20, 1, 1}, Size3{5, 4, 1}, Size3{1, 3, 7}}) {
    uint64_t n = local[0] * local[1] * local[2];
    auto in = pattern(n);
    std::vector<int> out(8 * n);
    program().run("subgroups", {1, 1, 1}, local, {Arg::buffer(in), Arg::buffer(out)});
    uint64_t count = (n + 7) / 8;
    for (uint64_t l = 0; l < n; ++l) {
      uint64_t sg = l / 8, first = sg * 8, last = std::min(first + 8, n);
      int* o = &out[8 * l];
      auto* v = in.data();
      ASSERT_EQ(o[0], std::accumulate(v + first, v + l + 1, 0)) << l;
      ASSERT_EQ(o[1], l == first ? std::numeric_limits<int>::min() : *std::max_element(v + first, v + l));
      ASSERT_EQ(o[2], v[std::min(first + 2, last - 1)]);
      ASSERT_EQ(o[3], std::all_of(v + first, v + last, [](int e) { return e > 0; }) +
                          2 * std::any_of(v + first, v + last, [](int e) { return e > 90; }));
      ASSERT_EQ(o[4], static_cast<int>(last - first + 800 + 10000 * count));
      ASSERT_EQ(o[5], static_cast<int>(sg));
      ASSERT_EQ(o[6], static_cast<int>(l - first));
      int s = *std::max_element(v + first, v + last);
      for (int k = 1; k < static_cast<int>(sg) + 1; ++k)
        s += k;
      ASSERT_EQ(o[7], s + static_cast<int>(l / local[0] % local[1]));
    }
  }
}

TEST_P(Barrier, AsyncCopies) {
  int n = 24;
  std::vector<float> in(2 * n), out(2 * n);
  std::iota(in.begin(), in.end(), 1.0f);
  program().run("async_copy", {2, 1, 1}, {24, 1, 1},
                {Arg::buffer(in), Arg::buffer(out), Arg::local(8 * n), Arg::of(n)});
  for (int g = 0; g < 2; ++g)
    for (int l = 0; l < n; ++l)
      EXPECT_EQ(out[g * n + l], in[g * n + n - 1 - l] + in[2 * (l % (n / 2))]);
}

TEST_P(Barrier, SubgroupShuffles) {
  auto in = pattern(32);
  std::vector<int> out(96);
  program().run("shuffles", {1, 1, 1}, {32, 1, 1}, {Arg::buffer(in), Arg::buffer(out)});
  for (int i = 0; i < 32; ++i) {
    int first = i / 16 * 16, lane = i % 16, ballot = 0;
    for (int k = 0; k < 16; ++k)
      ballot |= (in[first + k] > 40) << k;
    EXPECT_EQ(out[3 * i], in[first + (lane * 5 + 1) % 16]);
    EXPECT_EQ(out[3 * i + 1], in[first + (lane ^ 3)]);
    EXPECT_EQ(out[3 * i + 2], ballot);
  }
}

TEST_P(Barrier, C11Atomics) {
  std::vector<int> a{0, -100, 0, 0};
  std::vector<unsigned> b{0x7fffffff, 0};  // unsigned: smaller than all that come
  program().run("c11_atomics", {2, 1, 1}, {16, 1, 1}, {Arg::buffer(a), Arg::buffer(b)});
  EXPECT_EQ(a, (std::vector<int>{96, 11, 5, 9}));
  EXPECT_EQ(b, (std::vector<unsigned>{0x7fffffff, 77}));
}

TEST_P(Barrier, Printf) {
  std::vector<int> x{42, 3};
  ::testing::internal::CaptureStdout();
  program().run("print", {1, 1, 1}, {1, 1, 1}, {Arg::buffer(x), Arg::of(12.5f)});
  fflush(stdout);
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "42 items, 12.50% [1.0,2.0,3.0,12.5] text 25769803776\n");
}

TEST(OptLevel, SameResultsAtEveryLevel) {
  std::vector<int> nested, groups;
  std::vector<float> exps;
  for (int level : {3, 2, 1, 0}) {
    Program p(loadSpirv("barrier"), {.opt_level = level});
    Program m(loadSpirv("math_small"), {.opt_level = level});
    ASSERT_TRUE(p.ok() && m.ok());
    auto data = pattern(64), in = pattern(40);
    std::vector<int> out(8 * 40);
    p.run("nested", {1, 1, 1}, {64, 1, 1}, {Arg::buffer(data), Arg::of(int{3})});
    p.run("subgroups", {1, 1, 1}, {40, 1, 1}, {Arg::buffer(in), Arg::buffer(out)});
    std::vector<float> x(64), y(64);
    for (int i = 0; i < 64; ++i)
      x[i] = (i - 32) * 3.1f;
    m.run("small", {4, 1, 1}, {1, 1, 1}, {Arg::buffer(x), Arg::buffer(y)});
    std::vector<float> scalar(64);  // one loop over 61 items, vectorised by LLVM, and the rest
    m.run("scalar", {1, 1, 1}, {61, 1, 1}, {Arg::buffer(x), Arg::buffer(scalar)});
    EXPECT_EQ(std::vector<float>(scalar.begin(), scalar.begin() + 61), std::vector<float>(y.begin(), y.begin() + 61))
        << level;
    if (level == 3) {
      nested = data;
      groups = out;
      exps = y;
    }
    EXPECT_EQ(data, nested) << level;
    EXPECT_EQ(out, groups) << level;
    EXPECT_EQ(y, exps) << level;
  }
}

TEST(Arena, GrowsAlignedAndRefusesTheAbsurd) {
  void* a = kRuntime.context_memory(1000);
  ASSERT_NE(a, nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a) % 128, 0u);
  EXPECT_EQ(kRuntime.context_memory(10), a);
  EXPECT_NE(kRuntime.context_memory(10 << 20), nullptr);
  EXPECT_EQ(takeRefusedBytes(), 0u);
  EXPECT_EQ(kRuntime.context_memory(1ull << 40), nullptr);
  EXPECT_EQ(takeRefusedBytes(), 1ull << 40);
  EXPECT_EQ(takeRefusedBytes(), 0u);
  EXPECT_NE(kRuntime.context_memory(100), nullptr);
}

// More than 64 kernels: the cheap pipeline.
TEST(ManyKernels, Build) {
  Program p(loadSpirv("math"));
  ASSERT_TRUE(p.ok());
  EXPECT_GT(p.module()->kernels().size(), 64u);
}

INSTANTIATE_TEST_SUITE_P(Levels, Barrier, ::testing::ValuesIn(hostLevels()),
                         [](auto& i) { return std::string(isaLevelName(i.param)); });

}  // namespace
}  // namespace zefuse::cpu::testing
