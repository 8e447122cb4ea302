// Products of f32 in tiles of three bf16 against double precision.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "runtime/primitives/core/team.h"
#include "runtime/primitives/simd/amx_tiles.h"
#include "tests/unit/primitives/reference.h"

namespace zefuse::primitives::testing {
namespace {

using plan::DType;
using plan::LibraryWay;
using plan::PostOpKind;

class SplitMatmul : public ::testing::Test {
protected:
  void SetUp() override {
    if (!tilesAvailable())
      GTEST_SKIP() << "no tiles in this CPU";
  }
};

MatmulDesc product(int64_t m, int64_t k, int64_t n) {
  MatmulDesc desc{dense(DType::f32, {m, k}), dense(DType::f32, {k, n}), dense(DType::f32, {m, n})};
  desc.way = LibraryWay::split;
  return desc;
}

bool isSplit(const MatmulDesc& desc) { return implementationOf(desc).starts_with("tiles of three bf16"); }

std::vector<float> run(const MatmulDesc& desc, Case& test) {
  EXPECT_TRUE(Matmul::get(desc).ok());
  const auto matmul = *Matmul::get(desc);
  AlignedBuffer packed(matmul->packedBytes()), scratch(matmul->scratchBytes());
  std::memset(scratch.data, 0xff, matmul->scratchBytes());
  const void* b = test.b.data();
  if (matmul->packedBytes()) {
    EXPECT_TRUE(matmul->packB(b, packed.data).ok());
    b = packed.data;
  }
  EXPECT_TRUE(matmul->run({test.a.data(), b, test.bias.data(), test.out.data(), {}, scratch.data, {}, {}}).ok());
  std::vector<float> out = test.out.wide;  // without the NaN behind it
  out.resize(size_t(desc.out.sizes[0] * desc.out.sizes[1]));
  return out;
}

TEST_F(SplitMatmul, RandomProducts) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    Draw draw(seed);
    const int64_t m = draw(1, 100), n = draw(1, 100), k = draw(0, 9) ? draw(1, 100) : draw(500, 1100);
    const int64_t batch = draw(0, 2) ? 0 : draw(1, 3);
    auto tensor = [&](int64_t rows, int64_t columns, bool broadcasts, bool any) {
      std::vector<int64_t> sizes{rows, columns};
      if (batch)
        sizes.insert(sizes.begin(), broadcasts && !draw(0, 2) ? 1 : batch);
      const bool transposed = any && draw(0, 1);
      return draw.layout(std::move(sizes), transposed, any);
    };
    MatmulDesc desc{tensor(m, k, true, true), tensor(k, n, true, true), tensor(m, n, false, false)};
    desc.way = LibraryWay::split;
    desc.pack_b = (!batch || desc.b.sizes[0] == 1) && draw(0, 1);
    if (draw(0, 1))
      desc.bias = draw(0, 2) ? dense(DType::f32, {n}) : dense(DType::f32, {m, n});
    desc.post_ops = draw.postOps(m, n);
    EXPECT_TRUE(isSplit(desc)) << implementationOf(desc);
    Case test = makeCase(desc, seed);
    ASSERT_EQ(runAndCompare(test), "") << m << "x" << k << "x" << n << ", batch " << batch;
  }
}

// Nearer to double precision than a sum of rounded products is.
TEST_F(SplitMatmul, IsOfAllBits) {
  const MatmulDesc desc = product(64, 800, 64);
  Case test = makeCase(desc, 5);
  const std::vector<float> found = run(desc, test);
  double error = 0, size = 0;
  for (int64_t i = 0; i < 64; ++i)
    for (int64_t j = 0; j < 64; ++j) {
      double sum = 0;
      for (int64_t k = 0; k < 800; ++k)
        sum += double(test.a.wide[size_t(i * 800 + k)]) * double(test.b.wide[size_t(k * 64 + j)]);
      error += std::pow(found[size_t(i * 64 + j)] - sum, 2);
      size += sum * sum;
    }
  EXPECT_LT(std::sqrt(error / size), 3e-7);
}

TEST_F(SplitMatmul, NumbersWhosePartsDoNotAddUpAreMultipliedAsTheyAre) {
  constexpr float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (bool pack : {false, true})
    for (bool in_left : {false, true})
      for (float x : {infinity, -infinity, nan, 3.4e38f, -1e30f}) {
        SCOPED_TRACE(std::to_string(x) + (in_left ? " in a" : " in b") + (pack ? ", packed" : ""));
        MatmulDesc desc = product(40, 70, 50), plain = desc;
        desc.pack_b = plain.pack_b = pack;
        desc.bias = plain.bias = dense(DType::f32, {50});
        plain.way = LibraryWay::blocked;
        Case test = makeCase(desc, 3);
        (in_left ? test.a : test.b).wide[1234] = x;
        const std::vector<float> found = run(desc, test), wanted = run(plain, test);
        for (size_t i = 0; i < wanted.size(); ++i)
          if (std::isnan(wanted[i]))
            ASSERT_TRUE(std::isnan(found[i])) << i << ": " << found[i];
          else if (std::isinf(wanted[i]))
            ASSERT_EQ(found[i], wanted[i]) << i;
          else
            ASSERT_NEAR(found[i], wanted[i], 2e-6f * std::abs(wanted[i]) + 2e-5f) << i;
      }
}

TEST_F(SplitMatmul, BitsDoNotDependOnTheThreads) {
  MatmulDesc desc = product(300, 1100, 70);
  Case test = makeCase(desc, 7);
  const int before = maxThreads();
  setMaxThreads(1);
  const std::vector<float> one = run(desc, test);
  for (int threads : {2, 3, 7}) {
    setMaxThreads(threads);
    EXPECT_EQ(run(desc, test), one) << threads;
  }
  setMaxThreads(before);
}

TEST_F(SplitMatmul, IsTakenWhereAMeasurementChoseIt) {
  EXPECT_TRUE(isSplit(product(128, 768, 768)));
  MatmulDesc desc = product(128, 768, 768), automatic = desc;
  automatic.way = LibraryWay::automatic;
  EXPECT_FALSE(isSplit(automatic));
  // What it does not take is as automatic.
  desc.alpha = automatic.alpha = 0.5f;
  EXPECT_EQ(implementationOf(desc), implementationOf(automatic));
  Case test = makeCase(desc);
  EXPECT_EQ(runAndCompare(test), "");
}

}  // namespace
}  // namespace zefuse::primitives::testing
