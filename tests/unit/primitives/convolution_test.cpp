#include "runtime/primitives/convolution/convolution.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <dnnl.hpp>
#include <limits>
#include <random>

#include "tests/unit/primitives/convolution_trial.h"

namespace zefuse::primitives::testing {
namespace {

const Geometry geometries[] = {
    {2, 8, 12, {9, 7}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
    {1, 3, 16, {15, 11}, {7, 5}, {2, 3}, {3, 1}, {1, 1}},
    {2, 6, 9, {8, 8}, {1, 1}, {2, 2}, {0, 0}, {1, 1}, 3},
    {1, 16, 16, {10, 9}, {3, 3}, {2, 1}, {1, 1}, {1, 1}, 16},
    {1, 5, 10, {9, 9}, {3, 3}, {1, 1}, {2, 2}, {2, 2}, 5},
    {1, 32, 48, {6, 5}, {3, 2}, {1, 2}, {1, 0}, {2, 3}, 1},
    {2, 4, 6, {17}, {5}, {2}, {2}, {1}},
    {2, 4, 6, {12}, {3}, {1}, {4}, {3}, 2},
    {1, 3, 4, {5, 6, 7}, {3, 2, 3}, {1, 2, 1}, {1, 0, 1}, {1, 1, 2}},
    {1, 1, 1, {1, 1}, {1, 1}, {1, 1}, {0, 0}, {1, 1}},
    {2, 24, 24, {9, 8}, {7, 5}, {1, 1}, {3, 1}, {1, 2}, 24},
    {1, 17, 17, {11}, {4}, {1}, {1}, {2}, 17},
    {2, 16, 16, {40}, {5}, {2}, {12}, {3}, 16},
    {2, 21, 21, {4, 5, 19}, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, 21},
    {1, 40, 40, {5, 6, 11}, {3, 2, 5}, {2, 1, 2}, {1, 0, 2}, {1, 2, 1}, 40},
    {1, 16, 16, {6, 4, 4}, {5, 1, 1}, {1, 1, 1}, {2, 0, 0}, {1, 1, 1}, 16},
    {1, 9, 9, {3, 4, 8}, {1, 3, 7}, {1, 2, 3}, {0, 1, 3}, {1, 1, 2}, 9},
};

class Kinds : public ::testing::TestWithParam<ConvolutionKind> {};

TEST_P(Kinds, AgreeWithTheDefinition) {
  for (const Geometry& geometry : geometries)
    for (DType dtype : {DType::f32, DType::bf16})
      for (bool channels_last : {true, false})
        for (bool pack : {true, false}) {
          ConvolutionDesc desc = describe(GetParam(), geometry, dtype, channels_last);
          desc.pack_weight = pack && GetParam() != ConvolutionKind::weights;
          Trial(desc).expectCorrect();
        }
}

INSTANTIATE_TEST_SUITE_P(All, Kinds, ::testing::ValuesIn(plan::EnumValuesConvolutionKind()),
                         [](const auto& info) { return plan::EnumNameConvolutionKind(info.param); });

// Whose gradient is zero. oneDNN's kernels for bf16 leave there what an earlier call had in the tile, or in memory.
TEST(Convolution, ElementsThatMeetPaddingAlone) {
  const Geometry cases[] = {
      {9, 8, 2, {2}, {7}, {4}, {6}, {1}},
      {9, 8, 1, {3}, {7}, {4}, {3}, {1}},
      {1, 8, 20, {1}, {3}, {3}, {2}, {1}},
      {9, 33, 16, {2}, {5}, {3}, {3}, {1}},
      {2, 16, 16, {2, 2}, {3, 3}, {2, 2}, {1, 1}, {1, 1}},  // a ResNet's last stage of a small image
  };
  for (const Geometry& geometry : cases)
    for (DType dtype : {DType::f32, DType::bf16})
      for (bool channels_last : {true, false})
        Trial(describe(ConvolutionKind::weights, geometry, dtype, channels_last)).expectCorrect();
}

TEST(Convolution, OutputPadding) {
  Geometry geometry{1, 6, 4, {5, 4}, {3, 3}, {2, 3}, {1, 0}, {1, 1}};
  geometry.output_padding = {1, 2};
  Trial(describe(ConvolutionKind::transposed, geometry, DType::f32, true)).expectCorrect();
}

// oneDNN 3.2's kernel for steps of more than one adds the bias, and applies post-ops, with each block of channels.
TEST(Convolution, TransposedOfManyChannels) {
  for (const Geometry& geometry : {Geometry{2, 512, 32, {3, 3}, {4, 4}, {2, 2}, {1, 1}, {1, 1}},
                                   Geometry{1, 1024, 16, {3, 4}, {4, 4}, {2, 2}, {1, 1}, {1, 1}},
                                   Geometry{1, 256, 16, {3, 2, 3}, {4, 4, 4}, {2, 2, 2}, {1, 1, 1}, {1, 1, 1}}})
    for (DType dtype : {DType::f32, DType::bf16})
      for (bool bias : {true, false})
        for (bool post_ops : {true, false}) {
          ConvolutionDesc desc = describe(ConvolutionKind::transposed, geometry, dtype, true);
          desc.pack_weight = true;
          if (bias)
            desc.bias = dense(dtype, {geometry.out});
          if (post_ops)
            desc.post_ops = {{PostOpKind::add, desc.out}, {PostOpKind::relu, {}}};
          Trial(desc).expectCorrect();
        }
}

// One channel per group and steps of one: a forward convolution with the weight mirrored.
TEST(Convolution, DepthwiseGradientIsAForwardConvolution) {
  Geometry geometry{1, 32, 32, {14, 12}, {7, 5}, {1, 1}, {3, 2}, {1, 1}, 32};
  for (bool pack : {true, false}) {
    ConvolutionDesc desc = describe(ConvolutionKind::transposed, geometry, DType::f32, true);
    desc.pack_weight = pack;
    desc.post_ops = {{PostOpKind::add, desc.out}};
    Trial trial(desc);
    trial.expectCorrect();
    EXPECT_NE(trial.implementation.find("mirrors the weight"), std::string::npos) << trial.implementation;
  }
  geometry.stride = {2, 1};
  Trial strided(describe(ConvolutionKind::transposed, geometry, DType::f32, true));
  strided.expectCorrect();
  EXPECT_EQ(strided.implementation.find("mirrors"), std::string::npos) << strided.implementation;
  geometry.stride = {1, 1};
  geometry.output_padding = {0, 0};
  geometry.padding = {7, 2};  // cuts away more than the weight reaches: no forward convolution
  Trial cut(describe(ConvolutionKind::transposed, geometry, DType::f32, true));
  cut.expectCorrect();
  EXPECT_EQ(cut.implementation.find("mirrors"), std::string::npos) << cut.implementation;
}

// oneDNN has depthwise kernels for images alone, and with little padding.
TEST(Convolution, DerivativesHaveTheirPostOpsAfterwards) {
  for (int64_t groups : {1, 32}) {
    ConvolutionDesc desc =
        describe(ConvolutionKind::transposed, {2, 32, 32, {14, 12}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, groups, {1, 1}},
                 DType::f32, true);
    desc.pack_weight = true;
    desc.post_ops = {{PostOpKind::add, desc.out}, {PostOpKind::silu, {}}};
    Trial trial(desc);
    trial.expectCorrect();
    EXPECT_NE(trial.implementation.find("; then "), std::string::npos) << trial.implementation;
  }
}

TEST(Convolution, SequencesAreConvolvedByDepthwiseKernels) {
  if (dnnl::get_effective_cpu_isa() < dnnl::cpu_isa::avx2)
    GTEST_SKIP() << "no AVX2 in this CPU";
  for (int64_t dilation : {1, 2, 40})
    for (bool channels_last : {true, false}) {
      ConvolutionDesc desc =
          describe(ConvolutionKind::forward, {2, 32, 32, {150}, {3}, {1}, {dilation}, {dilation}, 32}, DType::f32,
                   channels_last);
      desc.pack_weight = true;
      desc.bias = dense(DType::f32, {32});
      desc.post_ops = {{PostOpKind::add, desc.out}, {PostOpKind::mul, dense(DType::f32, {1, 32, 1})}};
      Trial trial(desc);
      trial.expectCorrect();
      EXPECT_NE(trial.implementation.find("dw"), std::string::npos) << trial.implementation;
    }
}

// oneDNN 3.2 has its reference for volumes, and for a transposed convolution with dilation.
TEST(Convolution, StridedSequencesAreOneProduct) {
  for (const Geometry& geometry : {Geometry{2, 18, 257, {301}, {3}, {2}, {0}, {1}},
                                   {1, 1, 256, {5003}, {10}, {5}, {0}, {1}},
                                   {3, 24, 256, {90}, {2}, {2}, {0}, {1}},
                                   {1, 40, 300, {200}, {1}, {2}, {0}, {1}}})
    for (bool channels_last : {true, false})
      for (bool pack : {true, false}) {
        ConvolutionDesc desc = describe(ConvolutionKind::forward, geometry, DType::f32, channels_last);
        desc.pack_weight = pack;
        desc.bias = dense(DType::f32, {geometry.out});
        desc.post_ops = {{PostOpKind::gelu_erf, {}},
                         {PostOpKind::add, desc.out},
                         {PostOpKind::mul, dense(DType::f32, {1, geometry.out, 1})}};
        Trial trial(desc);
        trial.expectCorrect();
        EXPECT_NE(trial.implementation.find("one product"), std::string::npos) << trial.implementation;
      }
  auto implementationOf = [](const Geometry& geometry) {
    return (*Convolution::get(describe(ConvolutionKind::forward, geometry, DType::f32, true)))->implementation();
  };
  // Zeros of padding by infinite weights would be NaN; few results and steps of one are the library's.
  for (const Geometry& geometry : {Geometry{2, 18, 257, {301}, {3}, {2}, {1}, {1}},
                                   {2, 18, 64, {1301}, {3}, {2}, {0}, {1}},
                                   {2, 18, 257, {301}, {5}, {1}, {0}, {1}}})
    EXPECT_EQ(implementationOf(geometry).find("one product"), std::string::npos);
}

TEST(Convolution, VolumesAreConvolvedByADepthwiseKernelOfOurOwn) {
  if (dnnl::get_effective_cpu_isa() < dnnl::cpu_isa::avx2)
    GTEST_SKIP() << "no AVX2 in this CPU";
  const Geometry volume{2, 37, 37, {4, 5, 20}, {3, 3, 3}, {1, 2, 1}, {1, 1, 1}, {1, 1, 1}, 37};
  const Geometry image{1, 24, 24, {7, 9}, {3, 4}, {2, 3}, {2, 1}, {2, 3}, 24};
  for (auto [kind, geometry] : {std::pair{ConvolutionKind::forward, volume},
                                {ConvolutionKind::transposed, volume},
                                {ConvolutionKind::transposed, image},
                                {ConvolutionKind::weights, volume}})
    for (DType dtype : {DType::f32, DType::bf16})
      for (bool pack : {true, false}) {
        ConvolutionDesc desc = describe(kind, geometry, dtype, true);
        if (kind != ConvolutionKind::weights) {
          desc.pack_weight = pack;
          desc.bias = dense(DType::f32, {desc.out.sizes[1]});
          std::vector<int64_t> each_channel(desc.out.sizes.size(), 1);
          each_channel[1] = desc.out.sizes[1];
          desc.post_ops = {{PostOpKind::mul, dense(DType::f32, each_channel)},
                           {PostOpKind::add, desc.out},
                           {PostOpKind::silu, {}},
                           {PostOpKind::tanh, {}},
                           {PostOpKind::relu, {}}};
        }
        Trial trial(desc);
        trial.expectCorrect();
        EXPECT_EQ(trial.implementation.find("depthwise"), 0u) << trial.implementation;
      }
}

// With AVX-512 oneDNN's kernel of groups takes long padding, and several times as long as the depthwise one, which
// takes it copied.
// What oneDNN's depthwise kernels would take longer for than for all else is a pass of ours, of every post-op and rest.
TEST(Convolution, DepthwiseResultsAreActivatedInOnePass) {
  if (dnnl::get_effective_cpu_isa() < dnnl::cpu_isa::avx2)
    GTEST_SKIP() << "no AVX2 in this CPU";
  for (int64_t channels : {5, 32, 43, 100})
    for (int64_t batch : {1, 3})
      for (PostOpKind kind : {PostOpKind::relu, PostOpKind::relu6, PostOpKind::silu, PostOpKind::hardswish,
                              PostOpKind::sigmoid, PostOpKind::tanh}) {
        const Geometry geometry = {batch, channels, channels, {9, 13}, {3, 3}, {1, 2}, {1, 1}, {1, 1}, channels};
        ConvolutionDesc desc = describe(ConvolutionKind::forward, geometry, DType::f32, true);
        desc.pack_weight = true;
        desc.bias = dense(DType::f32, {channels});
        Dims each = {batch, channels, 1, 1};
        desc.post_ops = {{PostOpKind::mul, dense(DType::f32, each)},
                         {PostOpKind::add, channelsLast(DType::f32, desc.out.sizes)},
                         {kind, {}}};
        Trial trial(desc);
        trial.expectCorrect();
        EXPECT_EQ(trial.implementation.ends_with("; then a pass"), kind != PostOpKind::tanh) << trial.implementation;
        desc.post_ops.pop_back();
        Trial sums(desc);
        sums.expectCorrect();
        EXPECT_FALSE(sums.implementation.ends_with("; then a pass")) << sums.implementation;
      }
}

TEST(Convolution, DilatedImagesAreConvolvedByDepthwiseKernels) {
  if (dnnl::get_effective_cpu_isa() < dnnl::cpu_isa::avx2)
    GTEST_SKIP() << "no AVX2 in this CPU";
  ConvolutionDesc desc =
      describe(ConvolutionKind::forward, {1, 32, 32, {28, 28}, {5, 5}, {1, 1}, {8, 8}, {4, 4}, 32}, DType::f32, true);
  desc.pack_weight = true;
  Trial trial(desc);
  trial.expectCorrect();
  EXPECT_NE(trial.implementation.find("_dw:"), std::string::npos) << trial.implementation;
}

// oneDNN's direct implementations take no padding of long kernels. With the padding copied they do; its product of
// copied patches takes ten times as long for each element's post-ops as for its product.
TEST(Convolution, LongKernelsHaveTheirPaddingCopied) {
  for (bool channels_last : {true, false})
    for (DType dtype : {DType::f32, DType::bf16}) {
      ConvolutionDesc desc =
          describe(ConvolutionKind::forward, {2, 1, 32, {128}, {512}, {4}, {254}, {1}}, dtype, channels_last);
      desc.pack_weight = true;
      desc.bias = dense(DType::f32, {32});
      desc.post_ops = {{PostOpKind::relu, {}}, {PostOpKind::mul, dense(DType::f32, {1, 32, 1})}};
      Trial trial(desc);
      trial.expectCorrect();
      EXPECT_NE(trial.implementation.find("pads the input"), std::string::npos) << trial.implementation;
      EXPECT_EQ(trial.implementation.find("gemm"), std::string::npos) << trial.implementation;
    }
}

TEST(Convolution, AProductOfPatchesHasItsPostOpsAfterwards) {
  size_t products = 0;
  for (const Geometry& geometry : geometries)
    for (ConvolutionKind kind : {ConvolutionKind::forward, ConvolutionKind::transposed}) {
      ConvolutionDesc desc = describe(kind, geometry, DType::f32, true);
      desc.post_ops = {{PostOpKind::silu, {}}};
      Trial trial(desc);
      trial.expectCorrect();
      if (trial.implementation.find("gemm") == std::string::npos)
        continue;
      ++products;
      EXPECT_NE(trial.implementation.find("; then silu"), std::string::npos) << trial.implementation;
    }
  EXPECT_GT(products, 0u);
}

TEST(Convolution, EveryPostOp) {
  for (ConvolutionKind kind : {ConvolutionKind::forward, ConvolutionKind::transposed})
    for (const Geometry* geometry : {&geometries[0], &geometries[3]})
      for (PostOpKind op : plan::EnumValuesPostOpKind()) {
        SCOPED_TRACE(plan::EnumNamePostOpKind(op));
        ConvolutionDesc desc = describe(kind, *geometry, DType::f32, true);
        const bool binary = op == PostOpKind::add || op == PostOpKind::mul;
        desc.bias = dense(DType::f32, {geometry->out});
        desc.post_ops = {{op, binary ? std::optional(desc.out) : std::nullopt}};
        Trial(desc).expectCorrect();
        if (binary) {
          desc.post_ops = {{op, dense(DType::f32, {1, geometry->out, 1, 1})}, {PostOpKind::relu, {}}};
          Trial(desc).expectCorrect();
        }
      }
}

// Inference of conv, batch norm, residual, relu: nothing on its own, nothing copied.
TEST(Convolution, ResidualBlockIsOnePrimitive) {
  for (DType dtype : {DType::f32, DType::bf16}) {
    ConvolutionDesc desc =
        describe(ConvolutionKind::forward, {1, 64, 64, {14, 14}, {3, 3}, {1, 1}, {1, 1}, {1, 1}}, dtype, true);
    desc.pack_weight = true;
    desc.post_ops = {{PostOpKind::mul, dense(DType::f32, {1, 64, 1, 1})},
                     {PostOpKind::add, dense(DType::f32, {1, 64, 1, 1})},
                     {PostOpKind::add, desc.out},
                     {PostOpKind::relu, {}}};
    Trial run(desc);
    run.expectCorrect();
    if (dtype == DType::f32)  // without its instructions, bf16 is copied to f32
      EXPECT_EQ(run.implementation.find(';'), std::string::npos) << run.implementation;
  }
}

TEST(Convolution, ActivationsOfNanAndInfinities) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (PostOpKind op : {PostOpKind::relu, PostOpKind::relu6, PostOpKind::hardswish})
    for (int64_t groups : {1, 16}) {
      ConvolutionDesc desc = describe(ConvolutionKind::forward,
                                      {1, 16, 16, {4, 5}, {1, 1}, {1, 1}, {0, 0}, {1, 1}, groups}, DType::f32, true);
      desc.bias = dense(DType::f32, {16});
      desc.post_ops = {{op, {}}};
      Trial run(desc);
      std::fill(run.input.wide.begin(), run.input.wide.end(), 0.0f);
      run.bias.wide = {nan, -inf, inf, -1, 0, -0.0f, 7, 5.5f, 1e-30f, -1e-30f, 3e38f, -3e38f, 100, -100, 6, 2, 0};
      run.run();
      for (int64_t channel = 0; channel < 16; ++channel) {
        double wanted = apply(op, run.bias.wide[size_t(channel)], 0), made = run.out.at({0, channel, 1, 2});
        if (std::isnan(wanted))
          EXPECT_TRUE(std::isnan(made)) << channel;
        else
          EXPECT_FLOAT_EQ(made, float(wanted)) << plan::EnumNamePostOpKind(op) << channel;
        if (op != PostOpKind::hardswish && wanted == 0)
          EXPECT_FALSE(std::signbit(made)) << channel;
      }
    }
}

template <typename T> std::vector<T> codesOf(const Tensor& tensor) {
  return std::vector<T>(tensor.wide.begin(), tensor.wide.end());
}

// Of u8 by i8, and i8 by i8, against the same numbers in f32.
TEST(Convolution, Codes) {
  for (const Geometry& geometry : geometries)
    for (DType in : {DType::u8, DType::i8})
      for (DType result : {DType::f32, DType::u8, DType::i8}) {
        ConvolutionDesc desc = describe(ConvolutionKind::forward, geometry, DType::f32, true);
        Dims channel(desc.out.sizes.size(), 1);
        channel[1] = geometry.out;
        desc.post_ops = {{PostOpKind::mul, dense(DType::f32, channel)}, {PostOpKind::add, dense(DType::f32, channel)}};
        Trial trial(desc);
        const float least = in == DType::u8 ? 0 : -128;
        for (float& code : trial.input.wide)
          code = std::clamp(std::round(100 * code), -128.0f, 127.0f) + 128 + least;
        for (float& code : trial.weight.wide)
          code = std::clamp(std::round(80 * code), -128.0f, 127.0f);
        for (float& factor : trial.operands[0].wide)
          factor = 0.001f + 0.001f * std::abs(factor);
        const std::vector<double> expected = trial.reference();

        desc.input.dtype = in;
        desc.weight.dtype = DType::i8;
        desc.out.dtype = result;
        for (bool pack : {false, true}) {
          desc.pack_weight = pack;
          auto convolution = Convolution::get(desc);
          ASSERT_TRUE(convolution.ok()) << convolution.status().toString();
          const std::vector<uint8_t> unsigned_codes = codesOf<uint8_t>(trial.input);
          const std::vector<int8_t> signed_codes = codesOf<int8_t>(trial.input), weight = codesOf<int8_t>(trial.weight);
          AlignedBuffer packed((*convolution)->packedBytes()), scratch((*convolution)->scratchBytes());
          const void* b = weight.data();
          if ((*convolution)->packedBytes()) {
            ASSERT_TRUE((*convolution)->packB(b, packed.data).ok());
            b = packed.data;
          }
          std::vector<float> made(expected.size());
          std::vector<const void*> operands = {trial.operands[0].data(), trial.operands[1].data()};
          const void* a = in == DType::u8 ? static_cast<const void*>(unsigned_codes.data()) : signed_codes.data();
          Status status = (*convolution)->run({a, b, nullptr, made.data(), operands, scratch.data});
          ASSERT_TRUE(status.ok()) << status.toString();

          double worst = 0;
          size_t at = 0;
          Dims index(desc.out.sizes.size(), 0);
          do {
            int64_t offset = 0;
            for (size_t d = 0; d < index.size(); ++d)
              offset += index[d] * desc.out.strides[d];
            const double wanted = expected[at++];
            const auto* u8 = reinterpret_cast<const uint8_t*>(made.data());
            const auto* i8 = reinterpret_cast<const int8_t*>(made.data());
            if (result == DType::f32)
              worst = std::max(worst, std::abs(made[size_t(offset)] - wanted) / (1 + std::abs(wanted)));
            else if (result == DType::u8)
              worst = std::max(worst, std::abs(u8[offset] - std::clamp(wanted, 0.0, 255.0)));
            else
              worst = std::max(worst, std::abs(i8[offset] - std::clamp(wanted, -128.0, 127.0)));
          } while (next(index, desc.out.sizes));
          EXPECT_LE(worst, result == DType::f32 ? 1e-5 : 0.501) << toString(desc) << "\n"
                                                                << (*convolution)->implementation();
        }
      }
}

TEST(Convolution, RefusesWhatDoesNotFit) {
  ConvolutionDesc good = describe(ConvolutionKind::forward, geometries[0], DType::f32, true);
  auto refused = [&](auto change) {
    ConvolutionDesc desc = good;
    change(desc);
    auto result = Convolution::get(desc);
    return !result.ok() &&
           (result.status().code() == Code::invalid_argument || result.status().code() == Code::unsupported);
  };
  EXPECT_FALSE(refused([](auto&) {}));
  EXPECT_TRUE(refused([](auto& d) { d.groups = 3; }));
  EXPECT_TRUE(refused([](auto& d) { d.stride = {0, 1}; }));
  EXPECT_TRUE(refused([](auto& d) { d.dilation = {1}; }));
  EXPECT_TRUE(refused([](auto& d) { d.padding = {-1, 0}; }));
  EXPECT_TRUE(refused([](auto& d) { d.out.sizes[2] = 40; }));
  EXPECT_TRUE(refused([](auto& d) { d.input.dtype = DType::f64; }));
  EXPECT_TRUE(refused([](auto& d) { d.input.dtype = DType::u8; }));
  EXPECT_TRUE(refused([](auto& d) { d.out.dtype = DType::u8; }));
  EXPECT_TRUE(refused([](auto& d) { d.bias = dense(DType::f32, {3}); }));
  EXPECT_TRUE(refused([](auto& d) { d.post_ops = {{PostOpKind::add, dense(DType::f32, {1, 5, 1, 1})}}; }));
}

TEST(Convolution, EmptyBatch) {
  for (ConvolutionKind kind : plan::EnumValuesConvolutionKind()) {
    Geometry geometry = geometries[0];
    geometry.batch = 0;
    Trial run(describe(kind, geometry, DType::f32, true));
    run.run();
    if (kind == ConvolutionKind::weights)
      EXPECT_EQ(run.out.at({1, 2, 0, 1}), 0);
  }
}

}  // namespace
}  // namespace zefuse::primitives::testing
