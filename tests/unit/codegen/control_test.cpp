// Control flow, integers, conversions, vectors, private memory and built-ins, against the same code in C++.
#include "tests/unit/codegen/harness.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <random>

namespace zefuse::cpu::testing {
namespace {

class Control : public ::testing::TestWithParam<IsaLevel> {
protected:
  void SetUp() override {
    static std::map<IsaLevel, std::unique_ptr<Program>> all;
    auto& p = all[GetParam()];
    if (!p)
      p = std::make_unique<Program>(loadSpirv("control"), CompileOptions{.isa = GetParam()});
    program = p.get();
    ASSERT_TRUE(program->ok());
  }
  Program* program = nullptr;
  std::mt19937_64 random{42};
};

int switchPhi(int v) {
  int r = 0;
  for (int k = 0; k < 5; ++k) {
    switch (v % 7) {
    case 0: r += 1; break;
    case 1:
      r += k;
      v = static_cast<int>(v + 3u);
      [[fallthrough]];
    case 2: r ^= 5; break;
    case 3:
      if (k == 2)
        continue;
      r -= 2;
      break;
    case -1: r = -r; break;
    case 5: k += 1; break;
    default: r = static_cast<int>(r * 3u + v); break;
    }
    v = static_cast<int>(v * 5u + 1u + k);
    if (r > 1000)
      break;
  }
  return r;
}

TEST_P(Control, SwitchAndPhi) {
  std::vector<int> in(256), out(256);
  for (size_t i = 0; i < in.size(); ++i)
    in[i] = static_cast<int>(i) - 128;
  program->run("switch_phi", {4, 1, 1}, {64, 1, 1}, {Arg::buffer(in), Arg::buffer(out)});
  for (size_t i = 0; i < in.size(); ++i)
    EXPECT_EQ(out[i], switchPhi(in[i])) << in[i];
}

TEST_P(Control, SwitchOn64Bits) {
  std::vector<int64_t> in{0x100000001, 1, -5, 5, 0x1fffffffb, 0};
  std::vector<int> out(6);
  program->run("switch64", {6, 1, 1}, {1, 1, 1}, {Arg::buffer(in), Arg::buffer(out)});
  EXPECT_EQ(out, (std::vector<int>{1, 2, 3, 4, 4, 4}));
}

TEST_P(Control, IntegerFunctions) {
  size_t n = 128;
  std::vector<int8_t> c(n);
  std::vector<int16_t> s(n);
  std::vector<int64_t> l(n), out(8 * n);
  for (size_t i = 0; i < n; ++i) {
    c[i] = static_cast<int8_t>(random());
    s[i] = static_cast<int16_t>(random());
    l[i] = static_cast<int64_t>(random()) >> (i % 60);
  }
  program->run("integers", {n / 16, 1, 1}, {16, 1, 1},
               {Arg::buffer(c), Arg::buffer(s), Arg::buffer(l), Arg::buffer(out)});
  auto clamp = [](int64_t v, int64_t lo, int64_t hi) { return std::min(std::max(v, lo), hi); };
  for (size_t i = 0; i < n; ++i) {
    int8_t a = static_cast<int8_t>(c[i] * 3);
    int16_t b = static_cast<int16_t>(s[i] - 7);
    uint8_t ua = static_cast<uint8_t>(c[i]) >> 1;
    int64_t* o = &out[8 * i];
    EXPECT_EQ(o[0], a);
    EXPECT_EQ(o[1], b >> 2);
    EXPECT_EQ(o[2], ua);
    EXPECT_EQ(o[3], l[i] / 7 + l[i] % 5);
    EXPECT_EQ(o[4], static_cast<int64_t>((static_cast<__int128>(l[i]) * l[i]) >> 64) +
                        (l[i] ? std::countl_zero(static_cast<uint64_t>(l[i])) : 64) +
                        std::popcount(static_cast<uint64_t>(l[i])));
    EXPECT_EQ(o[5], clamp(s[i] + 32000, -32768, 32767) + clamp(c[i] - 100, -128, 127) + ((s[i] + b) >> 1) +
                        ((s[i] + b + 1) >> 1));
    uint32_t mixed = std::rotl(static_cast<uint32_t>(l[i]), 5) + static_cast<uint32_t>(s[i] * 3 + 2) +
                     static_cast<uint32_t>(static_cast<int16_t>((c[i] << 8) | ua)) +
                     static_cast<uint32_t>(std::abs(s[i] - b));
    EXPECT_EQ(o[6], mixed);
    EXPECT_EQ(o[7], clamp(s[i], 0, 255) + clamp(l[i], 0, 65535));
  }
}

TEST_P(Control, DivisionNeverTraps) {
  std::vector<int> a{7, 5, std::numeric_limits<int>::min(), 0, -9, 1}, b{2, 0, -1, 0, 4, -1}, out(6);
  program->run("division", {1, 1, 1}, {6, 1, 1}, {Arg::buffer(a), Arg::buffer(b), Arg::buffer(out)});
  EXPECT_EQ(out[0], 4);
  EXPECT_EQ(out[4], -3);
  EXPECT_EQ(out[5], -1);
}

TEST_P(Control, ConversionsRound) {
  std::vector<float> x{2.5f, 3.5f, -2.5f, 0.49f, -0.51f, 300.7f, -4.0f, 1e-20f};
  std::vector<int> out(6 * x.size());
  program->run("conversions", {1, 1, 1}, {x.size(), 1, 1}, {Arg::buffer(x), Arg::buffer(out)});
  for (size_t i = 0; i < x.size(); ++i) {
    EXPECT_EQ(out[6 * i], static_cast<int>(std::nearbyint(x[i])));
    EXPECT_EQ(out[6 * i + 1], static_cast<int>(std::ceil(x[i])));
    EXPECT_EQ(out[6 * i + 2], static_cast<int>(std::floor(x[i])));
    EXPECT_EQ(out[6 * i + 3], static_cast<int>(x[i]));
    EXPECT_EQ(out[6 * i + 4], std::fabs(x[i]) < 1e-10f ? 1
                              : x[i] > 0               ? std::numeric_limits<int>::max()
                                                       : std::numeric_limits<int>::min());
    EXPECT_EQ(out[6 * i + 5], x[i] < 0 ? 0 : x[i] > 255 ? 255 : static_cast<int>(x[i]));
  }
}

float halfToFloat(uint16_t h) { return static_cast<float>(std::bit_cast<_Float16>(h)); }

TEST_P(Control, HalfAsStorage) {
  std::vector<float> x{1.0f, 0.1f, -0.1f, 65504.0f, 1e-7f, -1e-8f, 3.14159f, 1e6f}, y(8);
  std::vector<uint16_t> h(24);
  program->run("halves", {8, 1, 1}, {1, 1, 1}, {Arg::buffer(h), Arg::buffer(x), Arg::buffer(y)});
  for (size_t i = 0; i < x.size(); ++i) {
    _Float16 nearest = static_cast<_Float16>(x[i]);
    EXPECT_EQ(h[3 * i], std::bit_cast<uint16_t>(nearest)) << x[i];
    EXPECT_EQ(y[i], static_cast<float>(nearest));
    EXPECT_LE(std::fabs(halfToFloat(h[3 * i + 1])), std::fabs(x[i])) << "rtz " << x[i];
    EXPECT_GE(halfToFloat(h[3 * i + 2]), x[i]) << "rtp " << x[i];
    // A directed result is a neighbour of the nearest one.
    for (int k = 1; k < 3; ++k)
      EXPECT_LE(std::abs(static_cast<int>(h[3 * i + k] & 0x7fff) - static_cast<int>(h[3 * i] & 0x7fff)), 1) << x[i];
  }
}

TEST_P(Control, SmallVectors) {
  std::vector<float> x(3 * 8), out(8 * 8);
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = static_cast<float>(i % 7);
  program->run("vectors", {2, 1, 1}, {4, 1, 1}, {Arg::buffer(x), Arg::buffer(out)});
  for (size_t i = 0; i < 8; ++i) {
    float a[3] = {x[3 * i], x[3 * i + 1], x[3 * i + 2]};
    float b[4] = {a[2], a[1], a[0], 1}, r[4];
    bool any = false;
    for (int k = 0; k < 4; ++k) {
      r[k] = b[k] > 2 ? b[k] * 10 : b[k];
      any |= b[k] > 2;
    }
    r[3] = any ? 7 : 9;
    for (int k = 0; k < 4; ++k)
      EXPECT_EQ(out[8 * i + k], r[k]) << i << " " << k;
    EXPECT_EQ(out[8 * i + 4], r[2]);
    EXPECT_EQ(out[8 * i + 5], r[0]);
    EXPECT_EQ(out[8 * i + 6], r[i & 3]);
    EXPECT_EQ(out[8 * i + 7], a[0] * a[0] + a[1] * a[1] + a[2] * a[2]);
  }
}

TEST_P(Control, PrivateMemoryAndCalls) {
  std::vector<int> out(32);
  program->run("private_memory", {4, 1, 1}, {8, 1, 1}, {Arg::buffer(out), Arg::of(int{9})});
  for (int g = 0; g < 32; ++g) {
    int acc = 0, sum = 0;
    for (int k = 0; k < 9; ++k) {
      int j = (k * 5 + g % 8) % 17, x = j * j + g;
      acc += x;
      sum += x > 3 ? x * 2 : acc;
    }
    EXPECT_EQ(out[g], sum + acc) << g;
  }
}

TEST_P(Control, WorkItemBuiltIns) {
  Size3 groups{2, 3, 2}, local{4, 2, 3}, offset{100, 20, 3};
  std::vector<int64_t> out(20 * 8 * 6 * 6, -1);
  program->run("ids", groups, local, {Arg::buffer(out)}, offset);
  for (int64_t z = 0; z < 6; ++z)
    for (int64_t y = 0; y < 6; ++y)
      for (int64_t x = 0; x < 8; ++x) {
        int64_t at[3] = {x, y, z};
        int64_t* o = &out[20 * ((z * 6 + y) * 8 + x)];
        for (int d = 0; d < 3; ++d) {
          int64_t l = static_cast<int64_t>(local[d]);
          ASSERT_EQ(o[d], at[d] + static_cast<int64_t>(offset[d]));
          ASSERT_EQ(o[3 + d], at[d] % l);
          ASSERT_EQ(o[6 + d], at[d] / l);
          ASSERT_EQ(o[9 + d], static_cast<int64_t>(groups[d]) * l);
          ASSERT_EQ(o[12 + d], static_cast<int64_t>(offset[d]));
        }
        ASSERT_EQ(o[15], 3);
        ASSERT_EQ(o[16], ((z % 3) * 2 + y % 2) * 4 + x % 4);
        ASSERT_EQ(o[17], 3);
        ASSERT_EQ(o[18], 3);
        ASSERT_EQ(o[19], 1);
      }
}

TEST(BlockOrder, ABlockMayStandBeforeItsDominator) {
  Program program(loadSpirv("block_order"));
  ASSERT_TRUE(program.ok());
  std::vector<uint32_t> out(40);
  program.run("sums", {4, 1, 1}, {10, 1, 1}, {Arg::buffer(out)});
  for (uint32_t i = 0; i < out.size(); ++i)
    EXPECT_EQ(i * (i + 1) / 2, out[i]) << i;
}

INSTANTIATE_TEST_SUITE_P(Levels, Control, ::testing::ValuesIn(hostLevels()),
                         [](auto& i) { return std::string(isaLevelName(i.param)); });

}  // namespace
}  // namespace zefuse::cpu::testing
