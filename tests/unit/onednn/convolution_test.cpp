#include "runtime/onednn/convolution.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "tests/unit/onednn/reference.h"

namespace zefuse::onednn::testing {
namespace {

using plan::ConvolutionKind;
using plan::DType;
using plan::PostOpKind;
using Dims = std::vector<int64_t>;

TensorDesc channelsLast(DType dtype, Dims sizes) {
  std::vector<size_t> order = {0};
  for (size_t d = 2; d < sizes.size(); ++d)
    order.push_back(d);
  order.push_back(1);
  return permuted(dtype, std::move(sizes), std::move(order));
}

struct Geometry {
  int64_t batch, in, out;  // channels
  Dims image, kernel, stride, padding, dilation;
  int64_t groups = 1;
  Dims output_padding = {};
};

// Of a forward or transposed convolution, or the gradient of the forward one's weight.
ConvolutionDesc describe(ConvolutionKind kind, const Geometry& g, DType dtype, bool channels_last) {
  auto image = [&](Dims sizes) { return channels_last ? channelsLast(dtype, sizes) : dense(dtype, sizes); };
  Dims in = {g.batch, g.in}, out = {g.batch, g.out};
  const bool transposed = kind == ConvolutionKind::transposed;
  Dims weight = transposed ? Dims{g.in, g.out / g.groups} : Dims{g.out, g.in / g.groups};
  for (size_t d = 0; d < g.image.size(); ++d) {
    const int64_t reach = g.dilation[d] * (g.kernel[d] - 1) + 1;
    in.push_back(g.image[d]);
    out.push_back(transposed ? (g.image[d] - 1) * g.stride[d] - 2 * g.padding[d] + reach +
                                   (g.output_padding.empty() ? 0 : g.output_padding[d])
                             : (g.image[d] + 2 * g.padding[d] - reach) / g.stride[d] + 1);
    weight.push_back(g.kernel[d]);
  }
  ConvolutionDesc desc;
  desc.kind = kind;
  desc.input = image(in);
  desc.weight = dense(dtype, weight);
  desc.out = image(out);
  if (kind == ConvolutionKind::weights)
    std::swap(desc.weight, desc.out);
  desc.stride = g.stride;
  desc.padding = g.padding;
  desc.dilation = g.dilation;
  desc.groups = g.groups;
  return desc;
}

bool next(Dims& index, const Dims& sizes) {
  for (size_t d = index.size(); d-- > 0;) {
    if (++index[d] < sizes[d])
      return true;
    index[d] = 0;
  }
  return false;
}

struct Trial {
  ConvolutionDesc desc;
  Tensor input, weight, out, bias;
  std::vector<Tensor> operands;
  std::string implementation;

  explicit Trial(const ConvolutionDesc& given, uint32_t seed = 1) : desc(given) {
    input = randomTensor(desc.input, seed);
    weight = randomTensor(desc.weight, seed + 1);
    out = randomTensor(desc.out, seed + 2);
    if (desc.bias)
      bias = randomTensor(*desc.bias, seed + 3);
    for (const PostOpDesc& op : desc.post_ops)
      operands.push_back(op.operand ? randomTensor(*op.operand, seed + 4) : Tensor());
  }

  void run() {
    auto convolution = Convolution::get(desc);
    ASSERT_TRUE(convolution.ok()) << convolution.status().toString();
    implementation = (*convolution)->implementation();
    AlignedBuffer packed((*convolution)->packedBytes()), scratch((*convolution)->scratchBytes());
    const void* b = weight.data();
    if ((*convolution)->packedBytes()) {
      Status status = (*convolution)->packB(b, packed.data);
      ASSERT_TRUE(status.ok()) << status.toString();
      b = packed.data;
    }
    std::vector<const void*> addresses;
    for (size_t i = 0; i < operands.size(); ++i)
      addresses.push_back(desc.post_ops[i].operand ? operands[i].data() : nullptr);
    Status status =
        (*convolution)->run({input.data(), b, desc.bias ? bias.data() : nullptr, out.data(), addresses, scratch.data});
    ASSERT_TRUE(status.ok()) << status.toString();
  }

  // Sums of products by their definition, in double precision: every pair of an input and an output place.
  std::vector<double> reference() const {
    const size_t spatial = desc.stride.size();
    const bool transposed = desc.kind == ConvolutionKind::transposed;
    const Tensor& image = desc.kind == ConvolutionKind::weights ? weight : transposed ? input : out;
    const TensorDesc& x = transposed ? desc.out : desc.input;  // the forward convolution's
    const TensorDesc& y = image.desc;
    const TensorDesc& w = desc.kind == ConvolutionKind::weights ? desc.out : desc.weight;
    const Dims& result = desc.out.sizes;
    auto position = [&](const Dims& index) {
      int64_t at = 0;
      for (size_t d = 0; d < index.size(); ++d)
        at = at * result[d] + index[d];
      return size_t(at);
    };
    int64_t count = 1;
    for (int64_t size : result)
      count *= size;
    std::vector<double> sums(size_t(count), 0.0);
    Dims at(w.sizes.size(), 0);  // in the weight
    do {
      const int64_t group = at[0] / (w.sizes[0] / desc.groups);
      Dims place(spatial + 1, 0), limits = {y.sizes[0]};
      limits.insert(limits.end(), y.sizes.begin() + 2, y.sizes.end());
      do {
        Dims yi = {place[0], at[0]}, xi = {place[0], group * w.sizes[1] + at[1]};
        bool inside = true;
        for (size_t d = 0; d < spatial; ++d) {
          yi.push_back(place[d + 1]);
          xi.push_back(place[d + 1] * desc.stride[d] - desc.padding[d] + at[d + 2] * desc.dilation[d]);
          inside &= xi.back() >= 0 && xi.back() < x.sizes[d + 2];
        }
        if (!inside)
          continue;
        switch (desc.kind) {
        case ConvolutionKind::forward: sums[position(yi)] += input.at(xi) * weight.at(at); break;
        case ConvolutionKind::transposed: sums[position(xi)] += input.at(yi) * weight.at(at); break;
        case ConvolutionKind::weights: sums[position(at)] += input.at(xi) * weight.at(yi); break;
        }
      } while (next(place, limits));
    } while (next(at, w.sizes));
    Dims index(result.size(), 0);
    do {
      double& value = sums[position(index)];
      if (desc.bias)
        value += bias.at({index[1]});
      for (size_t i = 0; i < desc.post_ops.size(); ++i)
        value = apply(desc.post_ops[i].kind, value, desc.post_ops[i].operand ? operands[i].broadcastAt(index) : 0);
    } while (next(index, result));
    return sums;
  }

  void expectCorrect() {
    run();
    if (::testing::Test::HasFatalFailure())
      return;
    std::vector<double> expected = reference();
    double scale = 1e-30, worst = 0;
    size_t at = 0;
    Dims index(desc.out.sizes.size(), 0);
    do {
      double wanted = expected[at++], made = out.at(index);
      scale = std::max(scale, std::abs(wanted));
      worst = std::isnan(made) ? std::numeric_limits<double>::infinity() : std::max(worst, std::abs(made - wanted));
    } while (next(index, desc.out.sizes));
    EXPECT_LE(worst / scale, desc.out.dtype == DType::bf16 ? 1.2e-2 : 2e-6) << toString(desc) << "\n" << implementation;
  }
};

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
}  // namespace zefuse::onednn::testing
