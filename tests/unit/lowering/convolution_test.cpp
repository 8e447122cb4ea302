// zefuse.convolution as a GPU kernel: lowered, run on the host, compared with plain C++.
#include "tests/unit/lowering/convolution_text.h"
#include "tests/unit/lowering/numerics.h"

namespace zefuse::test {
namespace {

class Convolution : public testing::TestWithParam<TargetDescription> {};
INSTANTIATE_TEST_SUITE_P(Targets, Convolution,
                         testing::Values(*TargetDescription::named("dg2-g11"), *TargetDescription::named("sm_90")),
                         targetName);

// Calls use(image, result channel, input channel, result position, tap, input position) for each multiplication of the
// forward convolution, all tensors row-major.
template <typename Use> void forEachTerm(const ConvolutionText& c, Use use) {
  int per_group = c.outputs / c.groups, depth = c.inputs / c.groups;
  for (int n = 0; n < c.images; ++n)
    for (int o = 0; o < c.outputs; ++o)
      for (int d = 0; d < depth; ++d)
        for (int y = 0; y < c.resultSize(0); ++y)
          for (int x = 0; x < c.resultSize(1); ++x)
            for (int ky = 0; ky < c.kernel[0]; ++ky)
              for (int kx = 0; kx < c.kernel[1]; ++kx) {
                int in_y = y * c.stride[0] - c.padding[0] + ky * c.dilation[0];
                int in_x = x * c.stride[1] - c.padding[1] + kx * c.dilation[1];
                if (in_y < 0 || in_y >= c.size[0] || in_x < 0 || in_x >= c.size[1])
                  continue;
                int channel = o / per_group * depth + d;
                use(((n * c.outputs + o) * c.resultSize(0) + y) * c.resultSize(1) + x,
                    ((o * depth + d) * c.kernel[0] + ky) * c.kernel[1] + kx,
                    ((n * c.inputs + channel) * c.size[0] + in_y) * c.size[1] + in_x);
              }
}

// Row-major [n, c, pixels] to where a layout puts it.
Floats laidOut(const Floats& data, int channels, int pixels, bool channels_last) {
  if (!channels_last)
    return data;
  Floats result(data.size());
  for (size_t i = 0; i < data.size(); ++i) {
    size_t n = i / (channels * pixels), c = i / pixels % channels, p = i % pixels;
    result[(n * pixels + p) * channels + c] = data[i];
  }
  return result;
}
std::vector<double> laidOut(const std::vector<double>& data, int channels, int pixels, bool channels_last) {
  std::vector<double> result(data.size());
  for (size_t i = 0; i < data.size(); ++i) {
    size_t n = i / (channels * pixels), c = i / pixels % channels, p = i % pixels;
    result[channels_last ? (n * pixels + p) * channels + c : i] = data[i];
  }
  return result;
}

// The slices' parts of a result, added.
void expectSum(const Guarded& parts, int slices, const std::vector<double>& expected) {
  Guarded sums(expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    sums.data()[i] = 0;
    for (int slice = 0; slice < slices; ++slice)
      sums.data()[i] += parts[slice * expected.size() + i];
  }
  parts.expectUntouched();
  expectNear(sums, expected, 1e-5);
}

void checkConvolution(ConvolutionText c, const TargetDescription& target) {
  for (bool channels_last : {false, true}) {
    c.channels_last = channels_last;
    SCOPED_TRACE(c.module());
    Program program(c.module(), target);
    ASSERT_TRUE(program.ok());
    int in_pixels = c.size[0] * c.size[1], out_pixels = c.resultSize(0) * c.resultSize(1);
    Floats input = randomFloats(c.images * c.inputs * in_pixels, 1, 1), bias = randomFloats(c.outputs, 3, 1),
           weight = randomFloats(c.outputs * c.inputs / c.groups * c.kernel[0] * c.kernel[1], 2, 1),
           result = randomFloats(c.images * c.outputs * out_pixels, 4, 1);
    int taps = c.kernel[0] * c.kernel[1], depth = c.inputs / c.groups;
    Floats in = laidOut(input, c.inputs, in_pixels, channels_last), w = laidOut(weight, depth, taps, channels_last),
           grad = laidOut(result, c.outputs, out_pixels, channels_last);
    if (c.kind == "forward") {
      std::vector<double> expected(result.size());
      if (c.with_bias)
        for (size_t i = 0; i < expected.size(); ++i)
          expected[i] = bias[i / out_pixels % c.outputs];
      forEachTerm(c, [&](int out, int at, int in) { expected[out] += double(weight[at]) * input[in]; });
      if (c.with_bias)
        for (size_t i = 0; i < expected.size(); ++i)
          expected[i] = std::max(expected[i], 0.0) + result[i];
      Guarded out(expected.size() * c.slices);
      if (c.with_bias)
        program.run({in.data(), w.data(), bias.data(), grad.data(), out.data()});
      else
        program.run({in.data(), w.data(), out.data()});
      expectSum(out, c.slices, laidOut(expected, c.outputs, out_pixels, channels_last));
    } else if (c.kind == "transposed") {  // the derivative by the input
      std::vector<double> expected(input.size());
      forEachTerm(c, [&](int out, int at, int in) { expected[in] += double(weight[at]) * result[out]; });
      Guarded out(expected.size() * c.slices);
      program.run({grad.data(), w.data(), out.data()});
      expectSum(out, c.slices, laidOut(expected, c.inputs, in_pixels, channels_last));
    } else {
      std::vector<double> expected(weight.size());
      forEachTerm(c, [&](int out, int at, int in) { expected[at] += double(result[out]) * input[in]; });
      Guarded out(expected.size() * c.slices);
      program.run({in.data(), grad.data(), out.data()});
      expectSum(out, c.slices, laidOut(expected, depth, taps, channels_last));
    }
  }
}

TEST_P(Convolution, Forward) {
  checkConvolution({.images = 2, .inputs = 3, .outputs = 20, .size = {9, 11}, .kernel = {3, 3}, .padding = {1, 1}},
                   GetParam());
  checkConvolution({.inputs = 8, .outputs = 16, .size = {10, 7}, .kernel = {1, 1}}, GetParam());
  checkConvolution({.inputs = 4,
                    .outputs = 6,
                    .size = {13, 12},
                    .kernel = {3, 5},
                    .stride = {2, 3},
                    .padding = {1, 2},
                    .dilation = {2, 1}},
                   GetParam());
  checkConvolution(
      {.images = 2, .inputs = 8, .outputs = 12, .size = {6, 5}, .kernel = {3, 3}, .padding = {1, 1}, .groups = 4},
      GetParam());
}

TEST_P(Convolution, BiasActivationResidual) {
  checkConvolution(
      {.images = 2, .inputs = 4, .outputs = 17, .size = {8, 8}, .kernel = {3, 3}, .padding = {1, 1}, .with_bias = true},
      GetParam());
}

TEST_P(Convolution, DerivativeByTheInput) {
  checkConvolution({.images = 2,
                    .inputs = 6,
                    .outputs = 8,
                    .size = {9, 8},
                    .kernel = {3, 3},
                    .stride = {2, 1},
                    .padding = {1, 0},
                    .kind = "transposed"},
                   GetParam());
  checkConvolution({.inputs = 6,
                    .outputs = 8,
                    .size = {9, 9},
                    .kernel = {3, 2},
                    .stride = {3, 2},
                    .dilation = {2, 1},
                    .groups = 2,
                    .kind = "transposed"},
                   GetParam());
}

// Each slice's products lie apart; slices start inside a channel and inside an image.
TEST_P(Convolution, Slices) {
  for (const char* kind : {"forward", "transposed", "weights"})
    for (int groups : {1, 2}) {
      SCOPED_TRACE(kind);
      checkConvolution({.images = 2,
                        .inputs = 8,
                        .outputs = 16,
                        .size = {9, 11},
                        .kernel = {3, 3},
                        .stride = {2, 2},
                        .padding = {1, 1},
                        .groups = groups,
                        .kind = kind,
                        .slices = 4},
                       GetParam());
    }
}

TEST_P(Convolution, DerivativeByTheWeight) {
  checkConvolution({.images = 3,
                    .inputs = 6,
                    .outputs = 10,
                    .size = {7, 8},
                    .kernel = {3, 3},
                    .stride = {2, 1},
                    .padding = {1, 1},
                    .groups = 2,
                    .kind = "weights"},
                   GetParam());
}

}  // namespace
}  // namespace zefuse::test
