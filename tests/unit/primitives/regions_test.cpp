// Which calls open a parallel region.
#include "tests/unit/regions.h"

#include <gtest/gtest.h>

#include "runtime/primitives/core/team.h"
#include "tests/unit/primitives/reference.h"

namespace zefuse::primitives::testing {
namespace {

using plan::DType;
using zefuse::testing::regionsOpened;

class Regions : public ::testing::Test {
protected:
  void TearDown() override { setMaxThreads(before); }
  // By the second of two calls: of the first, copies made once open regions too.
  static int of(int64_t m, int64_t k, int64_t n, int threads) {
    setMaxThreads(threads);
    MatmulDesc desc;
    desc.a = dense(DType::f32, {m, k});
    desc.b = dense(DType::f32, {k, n});
    desc.out = dense(DType::f32, {m, n});
    Case test = makeCase(desc);
    EXPECT_EQ(runAndCompare(test), "");
    const int so_far = regionsOpened();
    EXPECT_EQ(runAndCompare(test), "");
    EXPECT_EQ(maxThreads(), threads);
    return regionsOpened() - so_far;
  }
  const int before = maxThreads();
};

TEST_F(Regions, ProductsOpenNoneForLittleWork) {
  EXPECT_EQ(of(8, 16, 24, 2), 0);
  EXPECT_GT(of(64, 64, 64, 2), 0);  // some microseconds
  EXPECT_EQ(of(64, 64, 64, 64), 0);
  EXPECT_GT(of(144, 144, 144, 8), 0);
}

TEST_F(Regions, MoreThreadsNeedMoreWork) {
  EXPECT_EQ(threadsWorth(1e9, 1), 1);
  EXPECT_EQ(threadsWorth(0, 8), 1);
  double least = 0;
  for (const int threads : {2, 4, 16, 64}) {
    double wanted = 100;
    while (threadsWorth(wanted, threads) == 1)
      wanted *= 1.1;
    EXPECT_EQ(threadsWorth(wanted, threads), threads);
    EXPECT_GT(wanted, least * 0.8);
    EXPECT_LT(wanted, 50000);
    least = wanted;
  }
}

}  // namespace
}  // namespace zefuse::primitives::testing
