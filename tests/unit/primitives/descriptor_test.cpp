#include "runtime/primitives/matmul/descriptor.h"

#include <gtest/gtest.h>

#include "tests/unit/primitives/reference.h"

namespace zefuse::primitives::testing {
namespace {

using plan::DType;

TEST(Canonical, FoldsBatchIntoRows) {
  MatmulDesc desc;
  desc.a = dense(DType::f32, {2, 3, 5});
  desc.b = permuted(DType::f32, {1, 5, 7}, {0, 2, 1});
  desc.out = dense(DType::f32, {2, 3, 7});
  EXPECT_EQ(toString(canonical(desc)), "matmul f32[6,5] strides [5,1] x f32[5,7] strides [1,5] -> "
                                       "f32[6,7] strides [7,1]");
  // b expanded over the batch is the same.
  desc.b = {DType::f32, {2, 5, 7}, {0, 1, 5}};
  EXPECT_EQ(toString(canonical(desc)), "matmul f32[6,5] strides [5,1] x f32[5,7] strides [1,5] -> "
                                       "f32[6,7] strides [7,1]");
  // An operand that repeats over the batch but not over rows keeps them apart.
  desc.post_ops = {{plan::PostOpKind::add, dense(DType::f32, {3, 7})}};
  EXPECT_EQ(canonical(desc).out.sizes, (std::vector<int64_t>{2, 3, 7}));
  EXPECT_EQ(canonical(desc).post_ops[0].operand->sizes, (std::vector<int64_t>{1, 3, 7}));
}

TEST(Canonical, OneRowTakesTheBatchAsRows) {
  MatmulDesc desc;
  desc.a = {DType::f32, {4, 1, 5}, {50, 3, 1}};
  desc.b = dense(DType::f32, {1, 5, 7});
  desc.out = dense(DType::f32, {4, 1, 7});
  EXPECT_EQ(toString(canonical(desc)), "matmul f32[4,5] strides [50,1] x f32[5,7] strides [7,1] -> "
                                       "f32[4,7] strides [7,1]");
}

TEST(Canonical, MergesBatchDimensions) {
  MatmulDesc desc;
  desc.a = dense(DType::f32, {2, 3, 4, 5});
  desc.b = dense(DType::f32, {2, 3, 5, 7});
  desc.out = dense(DType::f32, {2, 3, 4, 7});
  EXPECT_EQ(canonical(desc).a.sizes, (std::vector<int64_t>{6, 4, 5}));
}

TEST(Canonical, HeadsKeepFourDimensions) {
  MatmulDesc desc;
  desc.a = permuted(DType::f32, {1, 12, 8, 4}, {0, 2, 1, 3});
  desc.b = permuted(DType::f32, {1, 12, 4, 8}, {0, 3, 1, 2});
  desc.out = dense(DType::f32, {1, 12, 8, 8});
  EXPECT_EQ(canonical(desc).a, desc.a);
  EXPECT_EQ(canonical(desc).b, desc.b);
}

TEST(Canonical, SizeOneDimensionsGetDenseStrides) {
  MatmulDesc desc;
  desc.a = {DType::f32, {1, 5}, {77, 1}};
  desc.b = {DType::f32, {5, 1}, {1, 99}};
  desc.out = {DType::f32, {1, 1}, {13, 0}};
  EXPECT_EQ(toString(canonical(desc)), "matmul f32[1,5] strides [5,1] x f32[5,1] strides [1,1] -> "
                                       "f32[1,1] strides [1,1]");
}

}  // namespace
}  // namespace zefuse::primitives::testing
