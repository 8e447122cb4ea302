// Vectors of bf16 become f32 two at a time.
#include <gtest/gtest.h>

#include <bit>
#include <iterator>
#include <string>

#include "tests/unit/codegen/harness.h"
#include "tests/unit/cuda/ptx_of.h"

namespace zefuse::cpu::testing {
namespace {

TEST(Widened, IsOneInstructionEach) {
  const std::string ptx = ptxOf("widened");
  EXPECT_NE(ptx.find("and.b32"), std::string::npos) << ptx;
  EXPECT_EQ(ptx.find("cvt.u32.u16"), std::string::npos) << ptx;
}

TEST(Widened, HasAllBits) {
  alignas(32) static uint16_t x[1 << 16];
  alignas(32) static float out[1 << 16];
  for (size_t i = 0; i < std::size(x); ++i)
    x[i] = uint16_t(i);
  Program program(loadSpirv("../cuda/widened"));
  ASSERT_TRUE(program.ok());
  program.run("widened", {std::size(x) / 64, 1, 1}, {8, 1, 1}, {Arg::of(&x[0]), Arg::of(&out[0])});
  for (size_t i = 0; i < std::size(x); ++i)
    ASSERT_EQ(std::bit_cast<uint32_t>(out[i]), uint32_t(i) << 16);
}

}  // namespace
}  // namespace zefuse::cpu::testing
