// Library calls prepared together.
#include "runtime/executor/library_calls.h"

#include <gtest/gtest.h>

#include "runtime/primitives/core/team.h"
#include "tests/unit/primitives/reference.h"

namespace zefuse::executor {
namespace {

using plan::DType;
using primitives::Convolution;
using primitives::ConvolutionDesc;
using primitives::Matmul;
using primitives::MatmulDesc;
using primitives::maxThreads;
using primitives::setMaxThreads;
using primitives::testing::dense;

MatmulDesc product(int64_t m, int64_t k, int64_t n) {
  MatmulDesc desc;
  desc.a = dense(DType::f32, {m, k});
  desc.b = dense(DType::f32, {k, n});
  desc.out = dense(DType::f32, {m, n});
  return desc;
}

TEST(Calls, AreTheCachesOwnInOrderAndOncePerDescriptor) {
  const int threads = maxThreads();
  for (int team : {1, 2, 5}) {
    setMaxThreads(team);
    std::vector<CallDesc> descs;
    for (int64_t i = 0; i < 12; ++i)
      descs.emplace_back(product(11 + team, 30 + i % 5, 21));
    ASSERT_FALSE(Matmul::isCached(std::get<MatmulDesc>(descs[0])));
    const auto all = getAll(descs);
    ASSERT_EQ(all.size(), descs.size());
    for (size_t i = 0; i < all.size(); ++i) {
      ASSERT_TRUE(all[i].ok());
      EXPECT_TRUE(Matmul::isCached(std::get<MatmulDesc>(descs[i])));
      // Made for this thread's team, though on other threads.
      EXPECT_EQ(*all[i], *Matmul::get(std::get<MatmulDesc>(descs[i])));
      EXPECT_EQ(*all[i], *all[i % 5]);
    }
    EXPECT_EQ(maxThreads(), team);
  }
  setMaxThreads(threads);
}

TEST(Calls, EachHasItsOwnRefusal) {
  MatmulDesc wrong = product(3, 4, 5);
  wrong.b.sizes[0] = 9;
  ConvolutionDesc empty;
  const std::vector<CallDesc> descs{product(3, 4, 5), wrong, empty, product(3, 4, 5)};
  EXPECT_FALSE(Matmul::isCached(wrong));
  const auto all = getAll(descs);
  EXPECT_TRUE(all[0].ok());
  EXPECT_EQ(all[1].status().toString(), Matmul::get(wrong).status().toString());
  EXPECT_EQ(all[2].status().toString(), Convolution::get(empty).status().toString());
  EXPECT_TRUE(all[3].ok());
}

}  // namespace
}  // namespace zefuse::executor
