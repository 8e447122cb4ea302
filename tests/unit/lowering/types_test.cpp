// Element types: lowered for each target, run on the host, compared with plain C++.
#include "tests/unit/lowering/numerics.h"

namespace zefuse::test {
namespace {

uint16_t bf16Of(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  if (std::isnan(value))
    return 0x7fc0;
  return (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
}
float floatOf(uint16_t bits) {
  uint32_t wide = uint32_t(bits) << 16;
  float value;
  std::memcpy(&value, &wide, 4);
  return value;
}

TEST_P(Lowering, Bf16RoundsToNearestEven) {
  KernelText text;
  text.input({"%x", type("77", "bf16"), "(d0) -> (d0)"});
  text.input({"%y", type("77"), "(d0) -> (d0)"});
  text.empty("%e", type("77", "bf16"));
  text.generic("%r", "p", {{"%x", type("77", "bf16"), "(d0) -> (d0)"}, {"%y", type("77"), "(d0) -> (d0)"}},
               {"%e", type("77", "bf16"), "(d0) -> (d0)"},
               "%w = arith.extf %0 : bf16 to f32\n %s = arith.addf %w, %1 : f32\n %t = arith.truncf %s : f32 to bf16\n "
               "yield %t : bf16");
  text.output({"%r", type("77", "bf16"), "(d0) -> (d0)"});
  Program program(text.module(), GetParam());
  ASSERT_TRUE(program.ok());
  std::vector<uint16_t> x(77), out(77);
  Floats y = randomFloats(77, 5);
  Floats source = randomFloats(77, 6);
  for (int i = 0; i < 77; ++i)
    x[i] = bf16Of(source[i]);
  x[1] = 0, y[1] = 1.0f + 1.0f / 256;  // a tie: to even, down
  x[2] = 0, y[2] = 1.0f + 3.0f / 256;  // a tie: to even, up
  x[3] = 0, y[3] = std::numeric_limits<float>::infinity();
  x[4] = 0, y[4] = std::numeric_limits<float>::max();  // rounds to infinity
  uint32_t nan_bits = 0x7f800001;                      // a NaN whose payload lies in the bits that go away
  x[5] = 0, std::memcpy(&y[5], &nan_bits, 4);
  nan_bits = 0xffffffff;  // rounding up would carry into the sign
  x[6] = 0, std::memcpy(&y[6], &nan_bits, 4);
  program.run({x.data(), y.data(), out.data()});
  for (int i = 0; i < 77; ++i) {
    float sum = floatOf(x[i]) + y[i];
    if (std::isnan(sum))
      EXPECT_TRUE(std::isnan(floatOf(out[i]))) << i;
    else
      EXPECT_EQ(out[i], bf16Of(sum)) << i;
  }
}

TEST_P(Lowering, EveryF16ValueThereAndBack) {
  // All 65536 bit patterns to f32, compared with the compiler's own conversion; and back through f32 values between
  // them.
  KernelText text;
  std::string half = type("65536", "f16"), single = type("65536");
  const char* same = "(d0) -> (d0)";
  text.input({"%x", half, same});
  text.input({"%y", single, same});
  text.empty("%e", single);
  text.generic("%w", "p", {{"%x", half, same}}, {"%e", single, same},
               "%s = arith.extf %0 : f16 to f32\n yield %s : f32");
  text.empty("%eh", half);
  text.generic("%h", "p", {{"%y", single, same}}, {"%eh", half, same},
               "%s = arith.truncf %0 : f32 to f16\n yield %s : f16");
  text.output({"%w", single, same});
  text.output({"%h", half, same});
  Program program(text.module(), GetParam());
  ASSERT_TRUE(program.ok());
  std::vector<uint16_t> x(65536), h(65536);
  Floats y(65536), w(65536);
  for (int i = 0; i < 65536; ++i) {
    x[i] = i;
    _Float16 value;
    std::memcpy(&value, &x[i], 2);
    uint32_t bits;
    float wide = value;
    std::memcpy(&bits, &wide, 4);
    bits += (i * 977u) & 0x1fff;  // below, at and above the ties
    if (i % 3 == 0)
      bits = (bits & ~0x1fffu) | 0x1000;
    std::memcpy(&y[i], &bits, 4);
  }
  program.run({x.data(), y.data(), w.data(), h.data()});
  for (int i = 0; i < 65536; ++i) {
    _Float16 value, narrowed = static_cast<_Float16>(y[i]), got;
    std::memcpy(&value, &x[i], 2);
    std::memcpy(&got, &h[i], 2);
    if (std::isnan(float(value)))
      ASSERT_TRUE(std::isnan(w[i])) << i;
    else
      ASSERT_EQ(w[i], float(value)) << i;
    if (std::isnan(y[i]))
      ASSERT_TRUE(std::isnan(float(got))) << i;
    else
      ASSERT_EQ(float(got), float(narrowed)) << y[i];
  }
}

TEST_P(Lowering, Bf16SumsInF32) {
  KernelText text;
  std::string full = type("9x50", "bf16"), row = type("9");
  text.input({"%x", full, flat(50)});
  text.fill("%i", row, "0.0");
  text.generic("%s", "pr", {{"%x", full, both}}, {"%i", row, rows},
               "%w = arith.extf %0 : bf16 to f32\n %s = arith.addf %w, %o : f32\n yield %s : f32");
  text.empty("%e", type("9", "bf16"));
  text.generic("%r", "p", {{"%s", row, "(d0) -> (d0)"}}, {"%e", type("9", "bf16"), "(d0) -> (d0)"},
               "%t = arith.truncf %0 : f32 to bf16\n yield %t : bf16");
  text.output({"%r", type("9", "bf16"), "(d0) -> (d0)"});
  Program program(text.module(), GetParam());
  ASSERT_TRUE(program.ok());
  std::vector<uint16_t> x(450), out(9);
  Floats source = randomFloats(450);
  for (int i = 0; i < 450; ++i)
    x[i] = bf16Of(source[i]);
  program.run({x.data(), out.data()});
  for (int i = 0; i < 9; ++i) {
    double sum = 0;
    for (int j = 0; j < 50; ++j)
      sum += floatOf(x[i * 50 + j]);
    EXPECT_NEAR(floatOf(out[i]), sum, 0.005 * (1 + std::abs(sum)));
  }
}

TEST_P(Lowering, IntegersAndBools) {
  // floor division and remainder of i64 (zero divisors included), a comparison stored as bool, any() over rows.
  KernelText text;
  std::string ints = type("5x30", "i64"), bools = type("5x30", "i1");
  text.input({"%a", ints, flat(30)});
  text.input({"%b", ints, flat(30)});
  text.empty("%e", ints);
  text.generic("%q", "pp", {{"%a", ints, both}, {"%b", ints, both}}, {"%e", ints, both},
               "%d = arith.floordivsi %0, %1 : i64\n yield %d : i64");
  text.empty("%eb", bools);
  text.generic("%l", "pp", {{"%a", ints, both}, {"%b", ints, both}}, {"%eb", bools, both},
               "%d = arith.cmpi slt, %0, %1 : i64\n yield %d : i1");
  text.fill("%i", type("5", "i1"), "0");
  text.generic("%any", "pr", {{"%l", bools, both}}, {"%i", type("5", "i1"), rows},
               "%s = arith.ori %0, %o : i1\n yield %s : i1");
  text.output({"%q", ints, flat(30)});
  text.output({"%l", bools, flat(30)});
  text.output({"%any", type("5", "i1"), "(d0) -> (d0)"});
  Program program(text.module(), GetParam());
  ASSERT_TRUE(program.ok());
  std::mt19937 generator(3);
  std::vector<int64_t> a(150), b(150), q(150);
  std::vector<uint8_t> l(150, 9), any(5, 9);
  for (int i = 0; i < 150; ++i) {
    a[i] = int64_t(generator() % 200) - 100 + (i >= 120 ? 1000 : 0);
    b[i] = int64_t(generator() % 21) - 10;
  }
  a[7] = std::numeric_limits<int64_t>::min(), b[7] = -1;
  b[8] = 0;
  program.run({a.data(), b.data(), q.data(), l.data(), any.data()});
  for (int i = 0; i < 150; ++i) {
    if (b[i] != 0 && i != 7)
      EXPECT_EQ(q[i], a[i] / b[i] - (a[i] % b[i] != 0 && (a[i] % b[i] < 0) != (b[i] < 0))) << a[i] << " / " << b[i];
    EXPECT_EQ(l[i], a[i] < b[i]) << i;
  }
  for (int r = 0; r < 5; ++r)
    EXPECT_EQ(any[r], std::any_of(&l[r * 30], &l[r * 30] + 30, [](uint8_t v) { return v; }));
  EXPECT_EQ(any[4], 0);
}

}  // namespace
}  // namespace zefuse::test
