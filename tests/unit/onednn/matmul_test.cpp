#include "runtime/onednn/matmul.h"

#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "tests/unit/onednn/reference.h"

namespace zefuse::onednn::testing {
namespace {

using plan::DType;
using plan::PostOpKind;

MatmulDesc linear(int64_t m, int64_t k, int64_t n, DType dtype = DType::f32) {
  MatmulDesc desc;
  desc.a = dense(dtype, {m, k});
  desc.b = permuted(dtype, {k, n}, {1, 0}); // a transposed view of an [n, k] weight
  desc.out = dense(dtype, {m, n});
  return desc;
}

void expectCorrect(const MatmulDesc& desc, uint32_t seed = 1) {
  Case test = makeCase(desc, seed);
  std::string implementation;
  EXPECT_EQ(runAndCompare(test, &implementation), "");
  if (::testing::Test::HasFailure())
    std::printf("  seed %u: %s\n", seed, implementation.c_str());
}

TEST(Matmul, LinearWithBias) {
  for (DType dtype : {DType::f32, DType::bf16})
    for (bool pack : {false, true}) {
      MatmulDesc desc = linear(37, 70, 129, dtype);
      desc.bias = dense(dtype, {129});
      desc.pack_b = pack;
      expectCorrect(desc);
    }
}

TEST(Matmul, EveryPostOp) {
  for (DType dtype : {DType::f32, DType::bf16})
    for (PostOpKind kind : plan::EnumValuesPostOpKind()) {
      SCOPED_TRACE(plan::EnumNamePostOpKind(kind));
      MatmulDesc desc = linear(19, 33, 40, dtype);
      bool binary = kind == PostOpKind::add || kind == PostOpKind::mul;
      desc.post_ops = {{kind, binary ? std::optional(desc.out) : std::nullopt}};
      expectCorrect(desc);
    }
}

TEST(Matmul, PostOpsKeepTheirOrder) {
  MatmulDesc desc = linear(24, 48, 64);
  desc.alpha = 0.5f;
  desc.bias = dense(DType::f32, {64});
  desc.post_ops = {{PostOpKind::gelu_erf, {}},
                   {PostOpKind::mul, dense(DType::f32, {64})},
                   {PostOpKind::add, desc.out},
                   {PostOpKind::tanh, {}}};
  desc.pack_b = true;
  expectCorrect(desc);
}

TEST(Matmul, AlphaScalesTheProductOnly) {
  for (bool bias : {false, true}) {
    MatmulDesc desc = linear(24, 48, 64);
    desc.alpha = -2.5f;
    if (bias)
      desc.bias = dense(DType::f32, {64});
    expectCorrect(desc);
  }
}

// Shapes, strides, broadcasts, post-ops drawn at random.
TEST(Matmul, RandomProducts) {
  for (uint32_t seed = 0; seed < 600; ++seed) {
    std::mt19937 generator(seed);
    auto draw = [&](int low, int high) { return int64_t(generator() % (high - low + 1)) + low; };
    DType dtype = draw(0, 3) ? DType::f32 : DType::bf16;
    size_t rank = size_t(draw(2, 5));
    std::vector<int64_t> batch;
    for (size_t d = 2; d < rank; ++d)
      batch.push_back(draw(1, 3));
    int64_t m = draw(0, 3) ? draw(1, 40) : 1, n = draw(0, 5) ? draw(1, 70) : 1, k = draw(1, 50);
    auto tensor = [&](DType type, std::vector<int64_t> sizes) {
      std::vector<size_t> order;
      for (size_t d = 0; d < sizes.size(); ++d)
        order.push_back(d);
      if (draw(0, 1))
        std::swap(order[size_t(draw(0, int(rank) - 1))], order[size_t(draw(0, int(rank) - 1))]);
      TensorDesc desc = permuted(type, sizes, order);
      if (!draw(0, 3)) // a slice of something larger
        for (int64_t& stride : desc.strides)
          stride = stride == 1 && draw(0, 2) ? 1 : stride * 2;
      for (size_t d = 0; d < sizes.size(); ++d)
        if (sizes[d] == 1 && !draw(0, 2))
          desc.strides[d] = draw(0, 7);
      return desc;
    };
    auto broadcast = [&](std::vector<int64_t> sizes, size_t keep) {
      for (size_t d = 0; d < keep; ++d)
        if (!draw(0, 3))
          sizes[d] = 1;
      return sizes;
    };
    auto full = [&](int64_t rows, int64_t columns) {
      std::vector<int64_t> sizes = batch;
      sizes.push_back(rows);
      sizes.push_back(columns);
      return sizes;
    };
    MatmulDesc desc;
    desc.out = tensor(dtype, full(m, n));
    desc.a = tensor(dtype, broadcast(full(m, k), rank - 2));
    desc.b = tensor(dtype, broadcast(full(k, n), rank - 2));
    if (!draw(0, 5))
      desc.a.strides[rank - 2] = 0; // expanded
    auto operand = [&] {
      auto sizes = broadcast(full(m, n), rank);
      TensorDesc result = tensor(draw(0, 4) ? dtype : DType::f32, sizes);
      size_t keep = size_t(draw(0, int(rank)));
      while (result.sizes.size() > keep) {
        result.sizes.erase(result.sizes.begin());
        result.strides.erase(result.strides.begin());
      }
      return result;
    };
    desc.pack_b = draw(0, 1);
    if (!draw(0, 2))
      desc.alpha = 0.75f;
    if (draw(0, 1))
      desc.bias = operand();
    for (int64_t i = draw(0, 3); i > 0; --i) {
      auto kind = PostOpKind(draw(0, int(PostOpKind::MAX)));
      bool binary = kind == PostOpKind::add || kind == PostOpKind::mul;
      desc.post_ops.push_back({kind, binary ? std::optional(operand()) : std::nullopt});
    }
    expectCorrect(desc, seed);
    if (HasFailure())
      return;
  }
}

} // namespace
} // namespace zefuse::onednn::testing
