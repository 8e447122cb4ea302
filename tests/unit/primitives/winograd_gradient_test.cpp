#include "runtime/primitives/convolution/winograd_gradient.h"

#include <cmath>
#include <limits>

#include "runtime/primitives/core/team.h"
#include "tests/unit/primitives/convolution_trial.h"
#include "tests/unit/primitives/winograd_fixture.h"

namespace zefuse::primitives::testing {
namespace {

using plan::LibraryWay;

constexpr const char* gradient_name = "winograd F(3x3, 2x2)";

class WinogradGradient : public WinogradFixture {
protected:
  static ConvolutionDesc described(const Geometry& geometry, bool channels_last = true) {
    ConvolutionDesc desc = describe(ConvolutionKind::weights, geometry, DType::f32, channels_last);
    desc.way = LibraryWay::winograd;
    return desc;
  }
};

// Odd sizes, images of one place, with and without padding, gaps in the window; channels that fill no vector, one
// vector and panels' parts; one block of tiles, several, and with the last one not full.
const Geometry gradient_geometries[] = {
    {1, 16, 16, {8, 8}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},   {2, 20, 40, {9, 7}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
    {1, 33, 17, {11, 6}, {3, 3}, {1, 1}, {0, 0}, {1, 1}},  {3, 3, 70, {5, 4}, {3, 3}, {1, 1}, {2, 1}, {1, 1}},
    {1, 32, 50, {13, 7}, {3, 3}, {1, 1}, {2, 3}, {2, 3}},  {2, 24, 5, {3, 3}, {3, 3}, {1, 1}, {0, 0}, {1, 1}},
    {1, 18, 33, {1, 1}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},   {2, 16, 16, {23, 22}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
    {1, 17, 16, {7, 30}, {3, 3}, {1, 1}, {2, 8}, {2, 4}},  {3, 17, 52, {10, 11}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
    {1, 70, 20, {14, 14}, {3, 3}, {1, 1}, {1, 1}, {1, 1}}, {1, 70, 130, {4, 5}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
};

// With slices: windows of one to four, with gaps, and slices of the window and of the image that meet padding alone.
const Geometry gradient_volumes[] = {
    {1, 16, 16, {5, 8, 8}, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}},
    {2, 18, 20, {5, 5, 4}, {3, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}},
    {2, 17, 18, {3, 5, 4}, {1, 3, 3}, {1, 1, 1}, {0, 1, 0}, {1, 1, 1}},
    {2, 17, 18, {3, 5, 4}, {1, 3, 3}, {1, 1, 1}, {1, 0, 1}, {1, 1, 1}},
    {1, 24, 18, {6, 6, 5}, {2, 3, 3}, {1, 1, 1}, {3, 2, 1}, {2, 1, 1}},
    {1, 5, 20, {7, 3, 7}, {3, 3, 3}, {1, 1, 1}, {4, 3, 2}, {5, 2, 3}},
    {1, 33, 5, {9, 7, 4}, {4, 3, 3}, {1, 1, 1}, {1, 1, 1}, {2, 1, 1}},
    {3, 16, 70, {1, 3, 3}, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}},
    {2, 18, 6, {5, 4, 3}, {3, 3, 1}, {1, 1, 1}, {1, 2, 0}, {1, 1, 1}},
    {1, 5, 6, {9, 18, 18}, {2, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}},
};

TEST_F(WinogradGradient, AgreesWithTheDefinition) {
  std::vector<Geometry> geometries(std::begin(gradient_geometries), std::end(gradient_geometries));
  geometries.insert(geometries.end(), std::begin(gradient_volumes), std::end(gradient_volumes));
  for (const Geometry& geometry : geometries)
    for (int threads : {1, 2, 7}) {
      setMaxThreads(threads);
      Trial trial(described(geometry, /*channels_last=*/threads < 7));
      trial.expectCorrect();
      EXPECT_TRUE(trial.implementation.starts_with(gradient_name)) << trial.implementation;
    }
}

// The weight of channels last, and images with gaps between the places.
TEST_F(WinogradGradient, OtherLayouts) {
  ConvolutionDesc desc = described(gradient_geometries[1]);
  desc.out = channelsLast(DType::f32, desc.out.sizes);
  for (int64_t& stride : desc.input.strides)
    stride *= 2;
  Trial trial(desc);
  trial.expectCorrect();
  EXPECT_EQ(trial.implementation, std::string(gradient_name) + "; copies the input; copies out");
}

// Windows whose slices lie behind their rows are oneDNN's, as are those of one row.
TEST_F(WinogradGradient, OtherWindowsAreLeft) {
  for (const Geometry& geometry : {Geometry{1, 18, 6, {5, 4, 6}, {3, 2, 3}, {1, 1, 1}, {1, 0, 2}, {1, 2, 1}},
                                   Geometry{1, 18, 6, {5, 4, 6}, {3, 1, 1}, {1, 1, 1}, {1, 0, 0}, {1, 1, 1}},
                                   Geometry{1, 18, 6, {15}, {3}, {1}, {1}, {1}}}) {
    Trial trial(described(geometry));
    trial.expectCorrect();
    EXPECT_FALSE(trial.implementation.starts_with("winograd")) << trial.implementation;
  }
}

TEST_F(WinogradGradient, BitsDoNotDependOnThreads) {
  for (const Geometry& geometry :
       {gradient_geometries[7], gradient_geometries[11], gradient_geometries[9], gradient_volumes[1],
        // One slice's blocks are transformed at once; some slices of one block's.
        Geometry{1, 16, 16, {4, 30, 30}, {2, 3, 3}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}},
        Geometry{1, 200, 200, {7, 17, 17}, {2, 3, 3}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}}})
    expectBitsOfAnyThreads(described(geometry));
}

// What an infinity or a NaN meets is as the definition has it, beside padding, too. Errors are relative to the largest
// inputs of a tile: what shares one with a number near the largest is only told from an infinity.
TEST_F(WinogradGradient, SpecialNumbers) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (float special : {inf, -inf, nan, 2e38f})
    for (bool of_input : {true, false})
      for (int64_t place : {0, 5, 30, 62})
        for (int threads : {1, 16}) {
          setMaxThreads(threads);
          Trial trial(described({1, 20, 40, {9, 7}, {3, 3}, {1, 1}, {1, 1}, {1, 1}}));
          (of_input ? trial.input : trial.weight).wide[size_t(place * (of_input ? 20 : 40) + 3)] = special;
          trial.run();
          const std::vector<double> expected = trial.reference();
          size_t at = 0;
          Dims index(4, 0);
          do {
            const double wanted = expected[at++], made = trial.out.at(index);
            if (std::isnan(wanted))
              EXPECT_TRUE(std::isnan(made)) << index[0] << " " << index[1];
            else if (std::abs(wanted) > std::numeric_limits<float>::max())
              EXPECT_EQ(made, std::copysign(std::numeric_limits<float>::infinity(), wanted));
            else if (special != 2e38f || index[of_input] != 3)
              EXPECT_LE(std::abs(made - wanted), 1e-4 * std::max(1.0, std::abs(wanted))) << index[0] << " " << index[1];
          } while (next(index, trial.desc.out.sizes));
        }
}

TEST_F(WinogradGradient, SpecialNumbersWithSlices) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (float special : {inf, -inf, nan})
    for (bool of_input : {true, false})
      for (size_t place : {0, 5, 40}) {
        Trial trial(described({2, 20, 18, {4, 3, 7}, {2, 3, 3}, {1, 1, 1}, {2, 1, 1}, {3, 1, 1}}));
        (of_input ? trial.input : trial.weight).wide[place * (of_input ? 20 : 18) + 3] = special;
        trial.run();
        const std::vector<double> expected = trial.reference();
        size_t at = 0;
        Dims index(5, 0);
        do {
          const double wanted = expected[at++], made = trial.out.at(index);
          if (std::isnan(wanted))
            EXPECT_TRUE(std::isnan(made)) << index[0] << " " << index[1] << " " << index[2];
          else if (std::isinf(wanted))
            EXPECT_EQ(made, wanted);
          else
            EXPECT_LE(std::abs(made - wanted), 1e-4 * std::max(1.0, std::abs(wanted))) << index[0] << " " << index[1];
        } while (next(index, trial.desc.out.sizes));
      }
}

// Sums of blocks of tiles, so that errors do not grow with an image's size.
TEST_F(WinogradGradient, LargestErrorIsLikeThatOfDirectSums) {
  double errors[2] = {};
  for (LibraryWay way : {LibraryWay::winograd, LibraryWay::direct}) {
    ConvolutionDesc desc = described({2, 24, 24, {28, 28}, {3, 3}, {1, 1}, {1, 1}, {1, 1}});
    desc.way = way;
    Trial trial(desc);
    trial.run();
    const std::vector<double> expected = trial.reference();
    double& worst = errors[way == LibraryWay::direct];
    size_t at = 0;
    Dims index(4, 0);
    do
      worst = std::max(worst, std::abs(trial.out.at(index) - expected[at++]));
    while (next(index, desc.out.sizes));
  }
  EXPECT_LE(errors[0], 2 * errors[1]);
}

TEST_F(WinogradGradient, IsTakenWhereItPays) {
  setMaxThreads(1);
  auto automatic = [](const Geometry& geometry, DType dtype = DType::f32) {
    auto convolution = Convolution::get(describe(ConvolutionKind::weights, geometry, dtype, true));
    EXPECT_TRUE(convolution.ok()) << convolution.status().toString();
    return convolution.ok() ? (*convolution)->implementation() : "";
  };
  const Geometry resnet = {1, 64, 64, {56, 56}, {3, 3}, {1, 1}, {1, 1}, {1, 1}};
  EXPECT_EQ(automatic(resnet), gradient_name);
  EXPECT_EQ(automatic({8, 512, 512, {7, 7}, {3, 3}, {1, 1}, {1, 1}, {1, 1}}), gradient_name);
  EXPECT_NE(automatic(resnet, DType::bf16), gradient_name);
  // Few tiles: what becomes of the sums takes longer than their products save. One row: half of a tile is unused.
  EXPECT_NE(automatic({1, 64, 64, {4, 4}, {3, 3}, {1, 1}, {1, 1}, {1, 1}}), gradient_name);
  EXPECT_NE(automatic({1, 64, 64, {1, 300}, {3, 3}, {1, 1}, {1, 1}, {1, 1}}), gradient_name);
  EXPECT_NE(automatic({1, 3, 64, {56, 56}, {3, 3}, {1, 1}, {1, 1}, {1, 1}}), gradient_name);
  EXPECT_NE(automatic({1, 64, 64, {56, 56}, {3, 3}, {2, 2}, {1, 1}, {1, 1}}), gradient_name);
  EXPECT_NE(automatic({1, 64, 64, {56, 56}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 2}), gradient_name);
  EXPECT_EQ(automatic({1, 64, 64, {8, 28, 28}, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}}), gradient_name);
  EXPECT_EQ(automatic({1, 64, 64, {8, 28, 28}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}}), gradient_name);
  EXPECT_NE(automatic({1, 64, 64, {8, 28, 28}, {3, 3, 3}, {2, 1, 1}, {1, 1, 1}, {1, 1, 1}}), gradient_name);
}

}  // namespace
}  // namespace zefuse::primitives::testing
