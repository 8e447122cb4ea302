#include "runtime/primitives/convolution/winograd.h"

#include <cmath>
#include <limits>

#include "runtime/primitives/core/team.h"
#include "tests/unit/primitives/convolution_trial.h"
#include "tests/unit/primitives/winograd_fixture.h"

namespace zefuse::primitives::testing {
namespace {

using plan::LibraryWay;

constexpr const char* name = "winograd F(2x2, 3x3)";

ConvolutionDesc describeWinograd(const Geometry& geometry, ConvolutionKind kind = ConvolutionKind::forward) {
  ConvolutionDesc desc = describe(kind, geometry, DType::f32, true);
  desc.way = LibraryWay::winograd;
  desc.pack_weight = true;
  return desc;
}

// Batch, channels, and images of odd sizes, of one place, with and without padding, with gaps in the window; channels
// that fill no vector, one, and some of the second of a panel's two.
const Geometry geometries[] = {
    {1, 16, 16, {8, 8}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},  {2, 20, 40, {9, 7}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
    {1, 33, 17, {11, 6}, {3, 3}, {1, 1}, {0, 0}, {1, 1}}, {3, 3, 70, {5, 4}, {3, 3}, {1, 1}, {2, 1}, {1, 1}},
    {1, 32, 48, {13, 7}, {3, 3}, {1, 1}, {2, 3}, {2, 3}}, {2, 24, 5, {3, 3}, {3, 3}, {1, 1}, {0, 0}, {1, 1}},
    {1, 18, 33, {1, 1}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},  {1, 16, 16, {23, 22}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
    {1, 17, 16, {7, 30}, {3, 3}, {1, 1}, {2, 8}, {2, 4}},
};

// Of groups, whose channels fill a vector, or not.
const Geometry grouped[] = {
    {2, 40, 60, {9, 7}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 2},
    {1, 64, 48, {14, 14}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 4},
    {3, 36, 51, {17}, {3}, {1}, {1}, {1}, 3},
    {1, 10, 40, {5, 4, 7}, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, 2},
};

// With slices: windows of one to four, with gaps, with padding that nothing but padding is behind, and slices that stay
// out of all results.
const Geometry volumes[] = {
    {1, 16, 16, {5, 8, 8}, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}},
    {2, 18, 34, {5, 5, 4}, {3, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}},
    {2, 17, 18, {3, 5, 4}, {1, 3, 3}, {1, 1, 1}, {0, 1, 0}, {1, 1, 1}},
    {2, 17, 18, {3, 5, 4}, {1, 3, 3}, {1, 1, 1}, {1, 0, 1}, {1, 1, 1}},
    {1, 24, 18, {6, 6, 5}, {2, 3, 3}, {1, 1, 1}, {3, 2, 1}, {2, 1, 1}},
    {1, 5, 20, {7, 3, 7}, {3, 3, 3}, {1, 1, 1}, {4, 3, 2}, {5, 2, 3}},
    {1, 33, 5, {9, 7, 4}, {4, 3, 3}, {1, 1, 1}, {1, 1, 1}, {2, 1, 1}},
    {3, 16, 70, {1, 3, 3}, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}},
    {1, 18, 20, {4, 5, 5}, {2, 3, 3}, {1, 1, 1}, {0, 0, 0}, {3, 1, 1}},
};

// Windows of one row: sequences, images and slices.
const Geometry sequences[] = {
    {2, 20, 40, {17}, {3}, {1}, {1}, {1}},
    {1, 16, 16, {8}, {3}, {1}, {0}, {1}},
    {3, 33, 17, {1}, {3}, {1}, {1}, {1}},
    {1, 5, 70, {29}, {3}, {1}, {5}, {5}},
    {1, 18, 33, {40}, {3}, {1}, {3}, {4}},
    {1, 140, 20, {75}, {3}, {1}, {2}, {1}},
    {2, 20, 18, {5, 7}, {1, 3}, {1, 1}, {0, 1}, {1, 1}},
    {1, 17, 33, {4, 6}, {1, 3}, {1, 1}, {1, 2}, {1, 2}},
    {1, 18, 17, {5, 3, 6}, {2, 1, 3}, {1, 1, 1}, {1, 0, 1}, {2, 1, 1}},
};
constexpr const char* flat_name = "winograd F(2, 3)";
// Whose dimensions of 3 are not the last ones: along time, along rows, and 3x3 of the first two.
const Geometry turned[] = {
    {2, 18, 20, {7, 4, 5}, {3, 1, 1}, {1, 1, 1}, {1, 0, 0}, {1, 1, 1}},
    {1, 5, 20, {5, 4, 3}, {1, 3, 1}, {1, 1, 1}, {1, 3, 0}, {1, 2, 1}},
    {1, 17, 20, {6, 5}, {3, 1}, {1, 1}, {2, 1}, {2, 1}},
    {2, 18, 6, {5, 4, 3}, {3, 3, 1}, {1, 1, 1}, {1, 2, 0}, {1, 1, 1}},
    {1, 18, 6, {5, 4, 6}, {3, 2, 3}, {1, 1, 1}, {1, 0, 2}, {1, 2, 1}},
};

class Winograd : public WinogradFixture {};

std::vector<Geometry> all() {
  std::vector<Geometry> result(std::begin(geometries), std::end(geometries));
  result.insert(result.end(), std::begin(grouped), std::end(grouped));
  result.insert(result.end(), std::begin(volumes), std::end(volumes));
  result.insert(result.end(), std::begin(sequences), std::end(sequences));
  result.insert(result.end(), std::begin(turned), std::end(turned));
  return result;
}

// Padding of a transposed convolution that takes away more than the window reaches would be a negative one.
bool hasWinograd(const Geometry& geometry, ConvolutionKind kind) {
  for (size_t d = 0; d < geometry.kernel.size(); ++d)
    if (kind == ConvolutionKind::transposed && geometry.padding[d] > geometry.dilation[d] * (geometry.kernel[d] - 1))
      return false;
  return true;
}

TEST_F(Winograd, AgreesWithTheDefinition) {
  for (const Geometry& geometry : all())
    for (ConvolutionKind kind : {ConvolutionKind::forward, ConvolutionKind::transposed})
      for (int threads : {1, 2, 7}) {
        setMaxThreads(threads);
        ConvolutionDesc desc = describe(kind, geometry, DType::f32, /*channels_last=*/threads < 7);
        desc.way = LibraryWay::winograd;
        desc.pack_weight = threads == 1;
        desc.bias = dense(DType::f32, {geometry.out});
        Trial trial(desc);
        trial.expectCorrect();
        const bool flat = std::ranges::count(geometry.kernel, 3) == 1;
        EXPECT_EQ(trial.implementation.starts_with(flat ? flat_name : name), hasWinograd(geometry, kind))
            << trial.implementation;
      }
}

TEST_F(Winograd, PostOpsInOnePass) {
  const TensorDesc channel = dense(DType::f32, {1, 40, 1, 1}), row = dense(DType::f32, {2, 1, 9, 1});
  for (PostOpKind kind : plan::EnumValuesPostOpKind()) {
    ConvolutionDesc desc = describeWinograd(geometries[1]);
    const bool binary = kind == PostOpKind::add || kind == PostOpKind::mul;
    for (const std::optional<TensorDesc>& operand : binary
                                                        ? std::vector<std::optional<TensorDesc>>{desc.out, channel, row}
                                                        : std::vector<std::optional<TensorDesc>>{std::nullopt}) {
      desc.post_ops = {{PostOpKind::mul, channel}, {kind, operand}, {PostOpKind::add, desc.out}};
      Trial trial(desc);
      trial.expectCorrect();
      const bool passes = kind == PostOpKind::tanh || kind == PostOpKind::gelu_erf || kind == PostOpKind::gelu_tanh;
      EXPECT_EQ(trial.implementation.find("then") != std::string::npos, passes) << trial.implementation;
    }
  }
}

TEST_F(Winograd, PostOpsOfGroups) {
  for (const Geometry& geometry : grouped) {
    ConvolutionDesc desc = describeWinograd(geometry);
    Dims each(desc.out.sizes.size(), 1);
    each[1] = desc.out.sizes[1];
    desc.post_ops = {{PostOpKind::mul, dense(DType::f32, each)},
                     {PostOpKind::add, channelsLast(DType::f32, desc.out.sizes)},
                     {PostOpKind::relu, {}}};
    Trial trial(desc);
    trial.expectCorrect();
    EXPECT_TRUE(trial.implementation.ends_with(")")) << trial.implementation;
  }
}

TEST_F(Winograd, PostOpsOfSlices) {
  for (const Geometry& geometry : {volumes[1], volumes[2], turned[0], turned[3]})
    for (bool of_channels : {true, false}) {
      ConvolutionDesc desc = describeWinograd(geometry);
      const TensorDesc operand =
          dense(DType::f32, of_channels ? Dims{2, geometry.out, 1, 1, 1} : Dims{2, 1, desc.out.sizes[2], 1, 1});
      desc.post_ops = {{PostOpKind::add, desc.out}, {PostOpKind::mul, operand}, {PostOpKind::relu, {}}};
      Trial trial(desc);
      trial.expectCorrect();
      EXPECT_EQ(trial.implementation, std::ranges::count(geometry.kernel, 3) == 1 ? flat_name : name);
    }
}

TEST_F(Winograd, PostOpsOfSequences) {
  for (const Dims& sizes : {Dims{2, 40, 1}, Dims{1, 40, 1}, Dims{2, 1, 17}}) {
    ConvolutionDesc desc = describeWinograd(sequences[0]);
    desc.bias = dense(DType::f32, {40});
    desc.post_ops = {{PostOpKind::silu, {}},
                     {PostOpKind::add, desc.out},
                     {PostOpKind::mul, dense(DType::f32, sizes)},
                     {PostOpKind::relu6, {}}};
    Trial trial(desc);
    trial.expectCorrect();
    EXPECT_EQ(trial.implementation, flat_name);
  }
}

// An operand with its own place for each channel and column cannot be read by vectors of channels.
TEST_F(Winograd, OtherPostOpsInPassesOfTheirOwn) {
  ConvolutionDesc desc = describeWinograd(geometries[1]);
  desc.post_ops = {{PostOpKind::add, dense(DType::f32, {1, 40, 1, 7})}, {PostOpKind::relu, {}}};
  Trial trial(desc);
  trial.expectCorrect();
  EXPECT_EQ(trial.implementation, std::string(name) + "; then add; then relu");
}

// What a sum of products with an infinity, a NaN or a number near the largest is, is not what differences of them give.
void expectTheDefinition(Trial& trial) {
  trial.run();
  const std::vector<double> expected = trial.reference();
  size_t at = 0;
  Dims index(trial.desc.out.sizes.size(), 0);
  do {
    const double wanted = expected[at++], made = trial.out.at(index);
    if (std::isnan(wanted))
      EXPECT_TRUE(std::isnan(made)) << index[1] << " " << index.back();
    else if (std::abs(wanted) > std::numeric_limits<float>::max())
      EXPECT_EQ(made, std::copysign(std::numeric_limits<float>::infinity(), wanted));
    else
      EXPECT_LE(std::abs(made - wanted), 1e-4 * std::max(1.0, std::abs(wanted))) << index[1] << " " << index.back();
  } while (next(index, trial.desc.out.sizes));
}

TEST_F(Winograd, SpecialNumbersOfTheInput) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (float special : {inf, -inf, nan, 2e38f})
    for (int64_t place : {0, 5, 6, 30, 62}) {
      ConvolutionDesc desc = describeWinograd({1, 20, 40, {9, 7}, {3, 3}, {1, 1}, {1, 1}, {1, 1}});
      desc.bias = dense(DType::f32, {40});
      Trial trial(desc);
      trial.input.wide[size_t(place * 20 + 3)] = special;
      trial.input.wide[size_t(place / 2 * 20 + 7)] = -special;
      expectTheDefinition(trial);
    }
}

TEST_F(Winograd, SpecialNumbersWithSlices) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (float special : {inf, -inf, nan, 2e38f})
    for (bool of_input : {true, false})
      for (size_t place : {0, 5, 40, 83}) {
        ConvolutionDesc desc = describeWinograd({1, 20, 18, {4, 3, 7}, {2, 3, 3}, {1, 1, 1}, {2, 1, 1}, {2, 1, 1}});
        desc.bias = dense(DType::f32, {18});
        Trial trial(desc);
        (of_input ? trial.input : trial.weight).wide[place * 20 + 3] = special;
        expectTheDefinition(trial);
      }
}

TEST_F(Winograd, SpecialNumbersOfSequences) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (float special : {inf, -inf, nan, 2e38f})
    for (bool of_input : {true, false})
      for (size_t place : {0, 5, 6, 16}) {
        ConvolutionDesc desc = describeWinograd({1, 20, 40, {17}, {3}, {1}, {2}, {2}});
        Trial trial(desc);
        (of_input ? trial.input : trial.weight).wide[place * 20 + 3] = special;
        expectTheDefinition(trial);
      }
}

TEST_F(Winograd, SpecialNumbersOfTheWeight) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (float special : {inf, -inf, nan, 3e38f})
    for (bool pack : {true, false})
      for (size_t place : {0, 1, 4, 179, 3005}) {
        ConvolutionDesc desc = describeWinograd({1, 20, 40, {9, 7}, {3, 3}, {1, 1}, {1, 1}, {1, 1}});
        desc.pack_weight = pack;
        Trial trial(desc);
        trial.weight.wide[place] = special;
        expectTheDefinition(trial);
      }
}

// One order of each element's sum, whatever the number of threads and however many images come with it.
TEST_F(Winograd, BitsDoNotDependOnThreads) {
  for (const Geometry& geometry : {Geometry{2, 40, 72, {15, 14}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
                                   Geometry{1, 40, 72, {7, 9, 10}, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}},
                                   Geometry{2, 150, 72, {133}, {3}, {1}, {1}, {1}}})
    expectBitsOfAnyThreads(describeWinograd(geometry));
}

TEST_F(Winograd, IsNearerToDoublePrecisionThanDirectSums) {
  double errors[2] = {};
  for (LibraryWay way : {LibraryWay::winograd, LibraryWay::direct}) {
    ConvolutionDesc desc = describeWinograd({1, 128, 64, {12, 12}, {3, 3}, {1, 1}, {1, 1}, {1, 1}});
    desc.way = way;
    Trial trial(desc);
    trial.run();
    const std::vector<double> expected = trial.reference();
    size_t at = 0;
    Dims index(4, 0);
    do
      errors[way == LibraryWay::direct] += std::pow(trial.out.at(index) - expected[at++], 2);
    while (next(index, desc.out.sizes));
  }
  EXPECT_LT(errors[0], errors[1]);
}

std::string automatic(const Geometry& geometry, DType dtype = DType::f32, bool pack = true, bool changes = false) {
  ConvolutionDesc desc = describe(ConvolutionKind::forward, geometry, dtype, true);
  desc.pack_weight = pack;
  desc.weight_changes = changes;
  auto convolution = Convolution::get(desc);
  EXPECT_TRUE(convolution.ok()) << convolution.status().toString();
  return convolution.ok() ? (*convolution)->implementation() : "";
}

TEST_F(Winograd, IsTakenWhereItPays) {
  setMaxThreads(1);
  const Geometry resnet = {1, 64, 64, {56, 56}, {3, 3}, {1, 1}, {1, 1}, {1, 1}};
  EXPECT_EQ(automatic(resnet), name);
  EXPECT_EQ(automatic({8, 256, 256, {14, 14}, {3, 3}, {1, 1}, {1, 1}, {1, 1}}, DType::f32, false), name);
  EXPECT_NE(automatic(resnet, DType::bf16), name);
  // Few places: the transformed weight takes longer to read than its products save. One row: half of a tile is unused.
  EXPECT_NE(automatic({1, 256, 256, {2, 2}, {3, 3}, {1, 1}, {1, 1}, {1, 1}}, DType::f32, false), name);
  EXPECT_NE(automatic({1, 64, 64, {1, 300}, {3, 3}, {1, 1}, {1, 1}, {1, 1}}), name);
  EXPECT_NE(automatic({1, 3, 64, {56, 56}, {3, 3}, {1, 1}, {1, 1}, {1, 1}}), name);
  EXPECT_NE(automatic({1, 64, 64, {56, 56}, {3, 3}, {2, 2}, {1, 1}, {1, 1}}), name);
  EXPECT_EQ(automatic({1, 128, 128, {28, 28}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 2}), name);
  EXPECT_NE(automatic({1, 128, 128, {28, 28}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 16}), name);
  // Windows of one row save less: fewer than 64 channels are not worth their transformation.
  EXPECT_EQ(automatic({1, 128, 128, {400}, {3}, {1}, {1}, {1}}), flat_name);
  EXPECT_EQ(automatic({1, 128, 128, {400}, {3}, {1}, {9}, {9}}), flat_name);
  EXPECT_NE(automatic({1, 32, 32, {400}, {3}, {1}, {1}, {1}}), flat_name);
  EXPECT_NE(automatic({1, 128, 128, {400}, {3}, {2}, {1}, {1}}), flat_name);
  EXPECT_NE(automatic({1, 128, 128, {400}, {5}, {1}, {2}, {1}}), flat_name);
  EXPECT_EQ(automatic({1, 128, 128, {8, 28, 28}, {3, 1, 1}, {1, 1, 1}, {1, 0, 0}, {1, 1, 1}}), flat_name);
  // Windows of several slices, with one step.
  EXPECT_EQ(automatic({1, 64, 64, {16, 28, 28}, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}}), name);
  EXPECT_EQ(automatic({1, 64, 64, {16, 28, 28}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}}), name);
  EXPECT_NE(automatic({1, 64, 64, {16, 28, 28}, {3, 3, 3}, {2, 1, 1}, {1, 1, 1}, {1, 1, 1}}), name);
  EXPECT_NE(automatic({1, 3, 64, {16, 28, 28}, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}}), name);
  ConvolutionDesc direct = describe(ConvolutionKind::forward, resnet, DType::f32, true);
  direct.way = LibraryWay::direct;
  EXPECT_NE((*Convolution::get(direct))->implementation(), name);
}

// A weight that an optimizer changes is packed as often as it is used: small images with wide channels would take
// longer.
TEST_F(Winograd, PackingCountsWhereTheWeightChanges) {
  setMaxThreads(1);
  for (const Dims& image : {Dims{6, 6}, Dims{28, 28}}) {
    const Geometry geometry = {1, 64, 64, image, {3, 3}, {1, 1}, {1, 1}, {1, 1}};
    EXPECT_EQ(automatic(geometry, DType::f32, true, false), name);
    EXPECT_EQ(automatic(geometry, DType::f32, true, true) == name, image[0] == 28);
    EXPECT_EQ(automatic(geometry, DType::f32, false, true) == name, image[0] == 28);
  }
}

TEST_F(Winograd, OnePackedWeightServesAllSizes) {
  auto get = [](const ConvolutionDesc& desc) { return *Convolution::get(desc); };
  const Geometry small = {1, 32, 32, {10, 10}, {3, 3}, {1, 1}, {1, 1}, {1, 1}};
  Geometry large = small;
  large.image = {40, 30};
  const auto first = get(describeWinograd(small)), second = get(describeWinograd(large));
  EXPECT_TRUE(first->packsLike(*second));
  EXPECT_FALSE(first->packsLike(*get(describeWinograd(small, ConvolutionKind::transposed))));
  ConvolutionDesc direct = describeWinograd(small);
  direct.way = LibraryWay::direct;
  EXPECT_FALSE(first->packsLike(*get(direct)));
}

}  // namespace
}  // namespace zefuse::primitives::testing
