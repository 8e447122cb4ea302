// Convolutions of f32 with a window of one place, which are products in panels.
#include <gtest/gtest.h>

#include <cstring>
#include <dnnl.hpp>
#include <random>

#include "runtime/primitives/core/team.h"
#include "runtime/primitives/simd/vector_post_ops.h"
#include "tests/unit/primitives/convolution_trial.h"

namespace zefuse::primitives::testing {
namespace {

using plan::LibraryWay;

class PanelConvolution : public ::testing::Test {
protected:
  void SetUp() override {
    if (dnnl::get_effective_cpu_isa() < dnnl::cpu_isa::avx2)
      GTEST_SKIP() << "no AVX2 in this CPU";
  }
};

ConvolutionDesc pointwise(int64_t batch, int64_t in, int64_t out, Dims image,
                          ConvolutionKind kind = ConvolutionKind::forward) {
  const Dims ones(image.size(), 1), none(image.size(), 0);
  ConvolutionDesc desc = describe(kind, {batch, in, out, image, ones, ones, none, ones}, DType::f32, true);
  desc.way = LibraryWay::panels;
  return desc;
}

TensorDesc operandOf(const ConvolutionDesc& desc, bool images, bool channels, bool places) {
  Dims sizes = desc.out.sizes;
  for (size_t d = 0; d < sizes.size(); ++d)
    if (!(d == 0 ? images : d == 1 ? channels : places))
      sizes[d] = 1;
  return channelsLast(DType::f32, sizes);
}

TEST_F(PanelConvolution, RandomShapes) {
  std::mt19937 generator(1);
  auto draw = [&](int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(generator);
  };
  for (uint32_t seed = 0; seed < 60; ++seed) {
    Dims image;
    for (int64_t d = draw(1, 3); d > 0; --d)
      image.push_back(draw(1, 5));
    const auto kind = draw(0, 2) ? ConvolutionKind::forward : ConvolutionKind::transposed;
    ConvolutionDesc desc = pointwise(draw(1, 3), draw(0, 4) ? draw(1, 70) : draw(250, 600), draw(1, 150), image, kind);
    desc.pack_weight = draw(0, 1);
    if (draw(0, 1))
      desc.bias = dense(DType::f32, {desc.out.sizes[1]});
    for (int64_t count = draw(0, 3); count > 0; --count) {
      auto post_op = PostOpKind(draw(0, 9));
      if (!hasVectorPostOp(post_op) && desc.input.sizes[1] > 100)  // a pass of oneDNN's, less exact than these sums
        post_op = PostOpKind::silu;
      const bool binary = post_op == PostOpKind::add || post_op == PostOpKind::mul;
      desc.post_ops.push_back(
          {post_op, binary ? std::optional(operandOf(desc, draw(0, 1), draw(0, 1), draw(0, 1))) : std::nullopt});
    }
    SCOPED_TRACE(seed);
    Trial trial(desc, seed);
    trial.expectCorrect();
    EXPECT_TRUE(trial.implementation.starts_with("panels:")) << toString(desc) << "\n" << trial.implementation;
    ASSERT_FALSE(HasFailure());
  }
}

// Columns of every rest, with post-ops in the products' code and behind it.
TEST_F(PanelConvolution, EveryEdge) {
  for (int64_t out = 1; out <= 81; ++out)
    for (const PostOpKind last : {PostOpKind::relu6, PostOpKind::silu}) {
      ConvolutionDesc desc = pointwise(1, 37, out, {1 + out % 13});
      desc.bias = dense(DType::f32, {out});
      desc.pack_weight = true;
      desc.post_ops = {{PostOpKind::mul, operandOf(desc, false, true, false)},
                       {PostOpKind::add, operandOf(desc, true, true, true)},
                       {PostOpKind::mul, operandOf(desc, true, false, true)},
                       {last, {}}};
      Trial trial(desc, uint32_t(out));
      trial.expectCorrect();
      EXPECT_EQ(trial.implementation, "panels:avx2");
      ASSERT_FALSE(HasFailure()) << out;
    }
}

// A weight that is used once, and any number of threads.
TEST_F(PanelConvolution, BitsDoNotDependOnThreadsNorPacking) {
  for (int64_t batch : {1, 5}) {
    ConvolutionDesc desc = pointwise(batch, 300, 88, {7, 9});
    desc.post_ops = {{PostOpKind::mul, operandOf(desc, true, true, false)}, {PostOpKind::relu, {}}};
    const int before = maxThreads();
    std::vector<float> first;
    for (int threads : {1, 2, 3, 32})
      for (bool pack : {true, false}) {
        setMaxThreads(threads);
        desc.pack_weight = pack;
        Trial trial(desc);
        trial.run();
        EXPECT_EQ((*Convolution::get(desc))->takesGivenB(), pack);
        if (first.empty())
          first = trial.out.wide;
        // There is NaN behind the result.
        EXPECT_EQ(std::memcmp(trial.out.wide.data(), first.data(), first.size() * sizeof(float)), 0) << threads << pack;
      }
    setMaxThreads(before);
  }
}

TEST_F(PanelConvolution, IsTakenWithoutAvx512WhereSomethingFollows) {
  const bool without = dnnl::get_effective_cpu_isa() < dnnl::cpu_isa::avx512_core;
  auto takes = [](ConvolutionDesc desc) {
    desc.way = LibraryWay::automatic;
    return (*Convolution::get(desc))->implementation().starts_with("panels:");
  };
  ConvolutionDesc desc = pointwise(1, 96, 24, {56, 56});
  EXPECT_FALSE(takes(desc));
  desc.post_ops = {{PostOpKind::relu, {}}};
  EXPECT_EQ(takes(desc), without);
  ConvolutionDesc strided =
      describe(ConvolutionKind::forward, {1, 96, 24, {8, 8}, {1, 1}, {2, 2}, {0, 0}, {1, 1}}, DType::f32, true);
  ConvolutionDesc groups =
      describe(ConvolutionKind::forward, {1, 96, 24, {8, 8}, {1, 1}, {1, 1}, {0, 0}, {1, 1}, 4}, DType::f32, true);
  ConvolutionDesc narrow =
      describe(ConvolutionKind::forward, {1, 96, 24, {8, 8}, {1, 1}, {1, 1}, {0, 0}, {1, 1}}, DType::bf16, true);
  for (ConvolutionDesc other : {strided, groups, narrow}) {
    other.post_ops = desc.post_ops;
    EXPECT_FALSE(takes(other)) << toString(other);
  }
}

}  // namespace
}  // namespace zefuse::primitives::testing
