#include "runtime/primitives/core/strided_copy.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "tests/unit/primitives/reference.h"

namespace zefuse::primitives::testing {
namespace {

using plan::DType;

TEST(StridedCopy, RoundsToNearestEvenAndKeepsSpecialValues) {
  const float infinity = std::numeric_limits<float>::infinity();
  std::vector<float> source = {1.0f, 1.00390625f, 1.01171875f, -infinity, std::bit_cast<float>(0x7f800001u), 3.4e38f};
  std::vector<uint16_t> target(source.size());
  TensorDesc wide = dense(DType::f32, {int64_t(source.size())}), narrow = dense(DType::bf16, wide.sizes);
  stridedCopy(wide, source.data(), narrow, target.data());
  EXPECT_EQ(target[0], 0x3f80);
  EXPECT_EQ(target[1], 0x3f80);  // a tie goes to the even neighbour below,
  EXPECT_EQ(target[2], 0x3f82);  // and to the one above
  EXPECT_EQ(target[3], 0xff80);
  EXPECT_EQ(target[4] & 0x7fc0, 0x7fc0);  // NaN, not infinity
  EXPECT_EQ(target[5], 0x7f80);
  std::vector<float> back(source.size());
  stridedCopy(narrow, target.data(), wide, back.data());
  EXPECT_EQ(back[2], 1.015625f);
  EXPECT_TRUE(std::isnan(back[4]));
}

TEST(StridedCopy, AnyStridesInBothTensors) {
  TensorDesc from = permuted(DType::f32, {3, 200, 170}, {2, 0, 1}),
             to = permuted(DType::bf16, {3, 200, 170}, {1, 2, 0});
  Tensor source = randomTensor(from, 3), target = randomTensor(to, 4);
  stridedCopy(from, source.data(), to, target.data());
  for (int64_t i = 0; i < 3; ++i)
    for (int64_t j = 0; j < 200; ++j)
      for (int64_t k = 0; k < 170; ++k)
        ASSERT_NEAR(target.at({i, j, k}), source.at({i, j, k}), 4e-3) << i << " " << j << " " << k;
}

}  // namespace
}  // namespace zefuse::primitives::testing
