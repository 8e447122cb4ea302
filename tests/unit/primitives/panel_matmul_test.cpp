// Products of f32 by a right side that is packed in panels, against double precision.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <dnnl.hpp>
#include <limits>

#include "runtime/primitives/core/team.h"
#include "tests/unit/primitives/reference.h"

namespace zefuse::primitives::testing {
namespace {

using plan::DType;
using plan::LibraryWay;
using plan::PostOpKind;

class PanelMatmul : public ::testing::Test {
protected:
  void SetUp() override {
    if (dnnl::get_effective_cpu_isa() < dnnl::cpu_isa::avx2)
      GTEST_SKIP() << "no AVX2 in this CPU";
  }
};

// x w^T, as modules keep their weights.
MatmulDesc packedLinear(int64_t m, int64_t k, int64_t n, LibraryWay way = LibraryWay::panels) {
  MatmulDesc desc{dense(DType::f32, {m, k}), permuted(DType::f32, {k, n}, {1, 0}), dense(DType::f32, {m, n})};
  desc.pack_b = true;
  desc.way = way;
  return desc;
}

bool isInPanels(const MatmulDesc& desc) { return implementationOf(desc).starts_with("panels:"); }

std::vector<float> runPacked(const MatmulDesc& desc, Case& test, bool given = false) {
  EXPECT_TRUE(Matmul::get(desc).ok());
  const auto matmul = *Matmul::get(desc);
  AlignedBuffer packed(matmul->packedBytes()), scratch(matmul->scratchBytes());
  std::memset(scratch.data, 0xff, matmul->scratchBytes());
  EXPECT_TRUE(matmul->packB(test.b.data(), packed.data).ok());
  const void* b = matmul->packedBytes() && !given ? packed.data : test.b.data();
  EXPECT_TRUE(matmul->run({test.a.data(), b, test.bias.data(), test.out.data(), {}, scratch.data, {}, {}, given}).ok());
  std::vector<float> out = test.out.wide;  // without the NaN behind it
  out.resize(size_t(desc.out.sizes[0] * desc.out.sizes[1]));
  return out;
}

// |found - product| / |product|, of sums in double precision.
double errorOf(const std::vector<float>& found, const Case& test) {
  const int64_t m = test.desc.a.sizes[0], k = test.desc.a.sizes[1], n = test.desc.b.sizes[1];
  double error = 0, size = 0;
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (int64_t l = 0; l < k; ++l)
        sum += test.a.at({i, l}) * test.b.at({l, j});
      error += std::pow(found[size_t(i * n + j)] - sum, 2);
      size += sum * sum;
    }
  return std::sqrt(error / size);
}

TEST_F(PanelMatmul, RandomProducts) {
  for (uint32_t seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE(seed);
    Draw draw(seed);
    const int64_t m = draw(0, 3) ? draw(1, 40) : draw(1, 300), n = draw(1, 150);
    const int64_t k = draw(0, 5) ? draw(1, 100) : draw(300, 900), batch = draw(0, 2) ? 0 : draw(1, 3);
    auto tensor = [&](int64_t rows, int64_t columns, bool any) {
      std::vector<int64_t> sizes{rows, columns};
      if (batch)
        sizes.insert(sizes.begin(), batch);
      const bool transposed = any && !draw(0, 2);
      return draw.layout(std::move(sizes), transposed, any);
    };
    MatmulDesc desc{tensor(m, k, true), tensor(k, n, true), tensor(m, n, false)};
    if (batch)
      desc.b.sizes[0] = 1;
    desc.way = LibraryWay::panels;
    desc.pack_b = true;
    if (draw(0, 1))
      desc.bias = draw(0, 2) ? dense(DType::f32, {n}) : dense(DType::f32, {m, n});
    desc.post_ops = draw.postOps(m, n);
    EXPECT_TRUE(isInPanels(desc)) << implementationOf(desc);
    Case test = makeCase(desc, seed);
    ASSERT_EQ(runAndCompare(test), "") << m << "x" << k << "x" << n << ", batch " << batch;
  }
}

// Every number of rows that a strip may have, and of columns that a last panel may have.
TEST_F(PanelMatmul, EveryEdge) {
  for (int64_t m = 1; m <= 14; ++m)
    for (int64_t n = 1; n <= 81; n += m % 3 + 1) {
      MatmulDesc desc = packedLinear(m, 37, n);
      desc.bias = dense(DType::f32, {n});
      EXPECT_TRUE(isInPanels(desc)) << implementationOf(desc);
      Case test = makeCase(desc, uint32_t(m * 100 + n));
      ASSERT_EQ(runAndCompare(test), "") << m << "x37x" << n;
    }
}

// Rows of the result inside of wider ones.
TEST_F(PanelMatmul, RowsOfTheResultMayBeApart) {
  MatmulDesc desc = packedLinear(29, 400, 50);
  desc.out.strides = {77, 1};
  EXPECT_TRUE(isInPanels(desc)) << implementationOf(desc);
  Case test = makeCase(desc, 3);
  EXPECT_EQ(runAndCompare(test), "");
}

// Sums of blocks of the depth are added to each other, and round less often than one long sum.
TEST_F(PanelMatmul, IsNearerToDoublePrecisionThanOneSumAfterTheOther) {
  for (int64_t m : {1, 2, 3, 64}) {
    const MatmulDesc desc = packedLinear(m, 3072, 64);
    Case test = makeCase(desc, 5);
    std::vector<float> one_sum(size_t(m * 64));
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < 64; ++j)
        for (int64_t k = 0; k < 3072; ++k)
          one_sum[size_t(i * 64 + j)] =
              std::fma(float(test.a.at({i, k})), float(test.b.at({k, j})), one_sum[size_t(i * 64 + j)]);
    EXPECT_LT(errorOf(runPacked(desc, test), test), 0.7 * errorOf(one_sum, test)) << m;
  }
}

TEST_F(PanelMatmul, InfinitiesAndNanStayInTheirRowsAndColumns) {
  constexpr float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (bool in_left : {false, true})
    for (float x : {infinity, -infinity, nan, 3.4e38f, -1e30f}) {
      SCOPED_TRACE(std::to_string(x) + (in_left ? " in a" : " in b"));
      MatmulDesc desc = packedLinear(40, 70, 50), other = desc;
      other.way = LibraryWay::blocked;
      Case test = makeCase(desc, 3);
      (in_left ? test.a : test.b).wide[1234] = x;
      const std::vector<float> found = runPacked(desc, test), wanted = runPacked(other, test);
      for (size_t i = 0; i < wanted.size(); ++i)
        if (std::isnan(wanted[i]))
          ASSERT_TRUE(std::isnan(found[i])) << i << ": " << found[i];
        else if (std::isinf(wanted[i]))
          ASSERT_EQ(found[i], wanted[i]) << i;
        else
          ASSERT_NEAR(found[i], wanted[i], 2e-6f * std::abs(wanted[i]) + 2e-5f) << i;
    }
}

TEST_F(PanelMatmul, BitsDoNotDependOnTheThreads) {
  for (int64_t m : {1, 23, 300}) {
    MatmulDesc desc = packedLinear(m, 1100, 710);
    desc.bias = dense(DType::f32, {710});
    Case test = makeCase(desc, 7);
    const int before = maxThreads();
    setMaxThreads(1);
    const std::vector<float> one = runPacked(desc, test);
    for (int threads : {2, 3, 7, 32}) {
      setMaxThreads(threads);
      EXPECT_EQ(runPacked(desc, test), one) << m << ", " << threads;
    }
    setMaxThreads(before);
  }
}

// As a weight is used whose contents change from call to call.
TEST_F(PanelMatmul, ARightSideThatIsNotPackedGivesTheSameBits) {
  for (int64_t m : {1, 3, 40, 1300})
    for (bool transposed : {true, false}) {
      MatmulDesc desc = packedLinear(m, 600, 83);
      desc.bias = dense(DType::f32, {83});
      if (!transposed)
        desc.b = dense(DType::f32, {600, 83});
      EXPECT_TRUE((*Matmul::get(desc))->takesGivenB());
      Case test = makeCase(desc, 11);
      EXPECT_EQ(runPacked(desc, test, true), runPacked(desc, test)) << m << transposed;
    }
}

TEST_F(PanelMatmul, OnePackedWeightServesAnyNumberOfRows) {
  const auto one = *Matmul::get(packedLinear(1, 768, 770)), many = *Matmul::get(packedLinear(300, 768, 770));
  const auto other = *Matmul::get(packedLinear(300, 770, 768));
  EXPECT_TRUE(one->packsLike(*many));
  EXPECT_FALSE(one->packsLike(*other));
  EXPECT_EQ(one->packedBytes(), size_t(768) * 776 * sizeof(float));  // 47 panels, and one of 24 columns
}

TEST_F(PanelMatmul, IsTakenWithoutAvx512) {
  const bool without = dnnl::get_effective_cpu_isa() < dnnl::cpu_isa::avx512_core;
  for (int64_t m : {1, 16, 128, 1500})
    EXPECT_EQ(isInPanels(packedLinear(m, 768, 768, LibraryWay::automatic)), without) << m;
  EXPECT_FALSE(isInPanels(packedLinear(128, 768, 2, LibraryWay::automatic)));  // a panel would be mostly zeros
  EXPECT_FALSE(isInPanels(packedLinear(2, 30, 64, LibraryWay::automatic)));
  // What it does not take is as automatic.
  MatmulDesc given = packedLinear(128, 96, 96), scaled = given, batches = given, automatic;
  given.pack_b = false;
  scaled.alpha = 0.5f;
  batches.a = dense(DType::f32, {2, 128, 64});
  batches.b = dense(DType::f32, {2, 64, 64});
  batches.out = dense(DType::f32, {2, 128, 64});
  for (const MatmulDesc& desc : {given, scaled, batches}) {
    automatic = desc;
    automatic.way = LibraryWay::automatic;
    EXPECT_FALSE(isInPanels(desc));
    EXPECT_EQ(implementationOf(desc), implementationOf(automatic));
    Case test = makeCase(desc);
    EXPECT_EQ(runAndCompare(test), "");
  }
}

}  // namespace
}  // namespace zefuse::primitives::testing
