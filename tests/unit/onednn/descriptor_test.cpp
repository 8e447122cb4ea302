#include "runtime/onednn/descriptor.h"

#include <gtest/gtest.h>

#include "tests/unit/onednn/reference.h"

namespace zefuse::onednn::testing {
namespace {

using plan::DType;

TEST(Canonical, FoldsBatchIntoRows) {
  MatmulDesc desc;
  desc.a = dense(DType::f32, {2, 3, 5});
  desc.b = permuted(DType::f32, {1, 5, 7}, {0, 2, 1});
  desc.out = dense(DType::f32, {2, 3, 7});
  MatmulDesc form = canonical(desc);
  EXPECT_EQ(toString(form), "matmul f32[6,5] strides [5,1] x f32[5,7] strides [1,5] -> "
                            "f32[6,7] strides [7,1]");
}

} // namespace
} // namespace zefuse::onednn::testing
