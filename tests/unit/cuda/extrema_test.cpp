// Comparisons and selects that are the larger or smaller of two values become instructions, with the same results.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <string>

#include "tests/unit/codegen/harness.h"
#include "tests/unit/cuda/ptx_of.h"

namespace zefuse::cpu::testing {
namespace {

TEST(Extrema, AreInstructions) {
  const std::string ptx = ptxOf("extrema");
  for (const char* instruction : {"max.NaN.f32", "min.NaN.f32", "max.f32", "min.f32"})
    EXPECT_NE(ptx.find(instruction), std::string::npos) << instruction;
  EXPECT_EQ(ptx.find("setp."), std::string::npos) << ptx;
}

TEST(Extrema, OfAllKindsOfNumbers) {
  const float nan = std::nanf(""), inf = std::numeric_limits<float>::infinity();
  const float values[] = {nan, -inf, -2.5f, -0.0f, 0.0f, 1e-40f, 3.0f, inf};
  std::vector<float> a, b;
  for (float x : values)
    for (float y : values) {
      a.push_back(x);
      b.push_back(y);
    }
  std::vector<float> out(4 * a.size());
  Program program(loadSpirv("../cuda/extrema"));
  ASSERT_TRUE(program.ok());
  program.run("extrema", {a.size() / 8, 1, 1}, {8, 1, 1}, {Arg::buffer(a), Arg::buffer(b), Arg::buffer(out)});
  for (size_t i = 0; i < a.size(); ++i) {
    const float x = a[i], y = b[i], larger = x > y ? x : y, smaller = x < y ? x : y;
    const float expected[] = {std::isnan(x) ? x : larger, std::isnan(x) ? x : smaller, std::isnan(y) ? x : larger,
                              std::isnan(y) ? x : smaller};
    for (size_t k = 0; k < 4; ++k)
      EXPECT_TRUE(out[4 * i + k] == expected[k] || (std::isnan(out[4 * i + k]) && std::isnan(expected[k])))
          << x << ", " << y << ": " << out[4 * i + k] << " instead of " << expected[k];
  }
}

TEST(Extrema, OfNumbersOfSixteenBits) {
  const uint16_t nan = 0x7fc0, values[] = {0x3f80, 0xbf80, 0x4040, 0xff80, nan, 0x0000};  // 1, -1, 3, -inf, NaN, 0
  std::vector<uint16_t> a;
  for (uint16_t x : values)
    for (uint16_t y : values)
      for (uint16_t z : values)
        a.insert(a.end(), {0xbf80, x, y, z});
  std::vector<float> out(a.size() / 4);
  Program program(loadSpirv("../cuda/extrema"));
  ASSERT_TRUE(program.ok());
  program.run("largest_of_four", {out.size() / 8, 1, 1}, {8, 1, 1}, {Arg::buffer(a), Arg::buffer(out)});
  for (size_t i = 0; i < out.size(); ++i) {
    float largest = -1;
    for (size_t k = 1; k < 4; ++k) {
      const float x = std::bit_cast<float>(uint32_t(a[4 * i + k]) << 16);
      largest = std::isnan(largest) || std::isnan(x) ? std::nanf("") : std::max(largest, x);
    }
    EXPECT_TRUE(out[i] == largest || (std::isnan(out[i]) && std::isnan(largest))) << i << ": " << out[i];
  }
}

}  // namespace
}  // namespace zefuse::cpu::testing
