#include "runtime/primitives/convolution/panel_gradient.h"

#include <cmath>
#include <limits>

#include "runtime/primitives/core/team.h"
#include "tests/unit/primitives/convolution_trial.h"

namespace zefuse::primitives::testing {
namespace {

using plan::LibraryWay;

constexpr const char* panels_name = "panels";

class PanelGradient : public ::testing::Test {
protected:
  void SetUp() override {
    if (!panelGradientAvailable())
      GTEST_SKIP() << "this processor has no AVX2";
    threads_ = maxThreads();
  }
  void TearDown() override { setMaxThreads(threads_); }

  static ConvolutionDesc described(const Geometry& geometry, bool channels_last = true) {
    ConvolutionDesc desc = describe(ConvolutionKind::weights, geometry, DType::f32, channels_last);
    desc.way = LibraryWay::panels;
    return desc;
  }

private:
  int threads_ = 1;
};

// Channels that fill no vector, one, parts of panels; rows shorter and longer than what is summed at once, cut into
// chunks; taps that meet padding alone; steps, gaps, windows of one, whose axes are joined.
const Geometry panel_geometries[] = {
    {1, 16, 16, {40}, {3}, {1}, {1}, {1}},
    {2, 33, 50, {70}, {7}, {1}, {15}, {5}},
    {3, 5, 13, {1}, {5}, {1}, {2}, {1}},
    {1, 40, 70, {301}, {4}, {3}, {2}, {2}},
    {2, 20, 64, {64}, {1}, {1}, {0}, {1}},
    {2, 17, 3, {33}, {1}, {3}, {0}, {1}},
    {2, 18, 5, {9}, {1}, {2}, {2}, {1}},
    {1, 2, 1, {30000}, {3}, {1}, {4}, {4}},
    {1, 70, 51, {3}, {9}, {1}, {20}, {5}},
    {2, 20, 40, {9, 7}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
    {3, 33, 17, {11, 6}, {5, 2}, {2, 3}, {2, 0}, {1, 2}},
    {2, 24, 49, {8, 8}, {1, 1}, {1, 1}, {0, 0}, {1, 1}},
    {2, 24, 49, {9, 7}, {1, 1}, {2, 2}, {0, 0}, {1, 1}},
    {1, 20, 9, {2, 300}, {1, 3}, {1, 1}, {0, 1}, {1, 1}},
    {1, 20, 9, {30, 2}, {3, 1}, {1, 1}, {1, 0}, {1, 1}},
    {5, 3, 2, {60, 70}, {2, 2}, {1, 1}, {0, 0}, {1, 1}},
    {2, 18, 20, {5, 5, 4}, {3, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}},
    {2, 17, 18, {3, 5, 4}, {1, 3, 3}, {1, 2, 1}, {0, 1, 0}, {1, 1, 1}},
    {1, 24, 18, {6, 6, 5}, {2, 3, 1}, {2, 1, 1}, {3, 2, 0}, {2, 1, 1}},
    {1, 2, 3, {20, 33, 33}, {2, 2, 2}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}},
};

TEST_F(PanelGradient, AgreesWithTheDefinition) {
  for (const Geometry& geometry : panel_geometries)
    for (int threads : {1, 2, 7}) {
      setMaxThreads(threads);
      Trial trial(described(geometry, /*channels_last=*/threads < 7));
      trial.expectCorrect();
      EXPECT_TRUE(trial.implementation.starts_with(panels_name)) << trial.implementation;
    }
}

// The weight of channels last, and images with gaps between the places.
TEST_F(PanelGradient, OtherLayouts) {
  ConvolutionDesc desc = described(panel_geometries[9]);
  desc.out = channelsLast(DType::f32, desc.out.sizes);
  for (int64_t& stride : desc.input.strides)
    stride *= 2;
  Trial trial(desc);
  trial.expectCorrect();
  EXPECT_EQ(trial.implementation, std::string(panels_name) + "; copies the input; copies out");
}

TEST_F(PanelGradient, GroupsAndOtherTypesAreLeft) {
  const Geometry geometry = {1, 32, 32, {64}, {3}, {1}, {1}, {1}};
  Geometry grouped = geometry;
  grouped.groups = 2;
  ConvolutionDesc narrow = describe(ConvolutionKind::weights, geometry, DType::bf16, true);
  narrow.way = LibraryWay::panels;
  for (const ConvolutionDesc& desc : {described(grouped), narrow}) {
    Trial trial(desc);
    trial.expectCorrect();
    EXPECT_FALSE(trial.implementation.starts_with(panels_name)) << trial.implementation;
  }
}

TEST_F(PanelGradient, BitsDoNotDependOnThreads) {
  for (const Geometry& geometry : panel_geometries)
    expectBitsOfAnyThreads(described(geometry));
}

// What an infinity, a NaN or a large number meets is as the definition has it: padding is left out.
TEST_F(PanelGradient, SpecialNumbers) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (const Geometry& geometry :
       {Geometry{2, 20, 40, {9, 7}, {3, 3}, {1, 1}, {1, 1}, {1, 1}}, Geometry{1, 18, 14, {80}, {3}, {1}, {3}, {3}}})
    for (float special : {inf, -inf, nan, 2e38f})
      for (bool of_input : {true, false})
        for (int64_t place : {0, 5, 30, 62}) {
          Trial trial(described(geometry));
          (of_input ? trial.input : trial.weight).wide[size_t(place * (of_input ? 18 : 14) + 3)] = special;
          trial.run();
          const std::vector<double> expected = trial.reference();
          size_t at = 0;
          Dims index(trial.desc.out.sizes.size(), 0);
          do {
            const double wanted = expected[at++], made = trial.out.at(index);
            if (std::isnan(wanted))
              EXPECT_TRUE(std::isnan(made)) << index[0] << " " << index[1];
            else if (std::abs(wanted) > std::numeric_limits<float>::max())
              EXPECT_EQ(made, std::copysign(inf, wanted));
            else
              EXPECT_LE(std::abs(made - wanted), 1e-4 * std::max(1.0, std::abs(wanted))) << index[0] << " " << index[1];
          } while (next(index, trial.desc.out.sizes));
        }
}

// Sums of blocks of places, so that errors do not grow with their number.
TEST_F(PanelGradient, LargestErrorIsLikeThatOfDirectSums) {
  double errors[2] = {};
  for (LibraryWay way : {LibraryWay::panels, LibraryWay::direct}) {
    ConvolutionDesc desc = described({1, 8, 8, {6000}, {3}, {1}, {1}, {1}});
    desc.way = way;
    Trial trial(desc);
    trial.run();
    const std::vector<double> expected = trial.reference();
    double& worst = errors[way == LibraryWay::direct];
    size_t at = 0;
    Dims index(3, 0);
    do
      worst = std::max(worst, std::abs(trial.out.at(index) - expected[at++]));
    while (next(index, desc.out.sizes));
  }
  EXPECT_LE(errors[0], 2 * errors[1]);
}

TEST_F(PanelGradient, IsTakenWhereItPays) {
  setMaxThreads(1);
  auto automatic = [](const Geometry& geometry, DType dtype = DType::f32) {
    auto convolution = Convolution::get(describe(ConvolutionKind::weights, geometry, dtype, true));
    EXPECT_TRUE(convolution.ok()) << convolution.status().toString();
    return convolution.ok() ? (*convolution)->implementation() : "";
  };
  const Geometry dilated = {1, 64, 64, {4000}, {7}, {1}, {15}, {5}};
  EXPECT_EQ(automatic(dilated), panels_name);
  EXPECT_EQ(automatic({8, 128, 128, {56, 56}, {3, 3}, {2, 2}, {1, 1}, {1, 1}}), panels_name);
  EXPECT_NE(automatic(dilated, DType::bf16), panels_name);
  // Few places: most of the time goes into what becomes of the sums. Few channels fill no vector. A window of one.
  EXPECT_NE(automatic({1, 256, 256, {16}, {7}, {1}, {15}, {5}}), panels_name);
  EXPECT_NE(automatic({1, 2, 64, {4000}, {7}, {1}, {15}, {5}}), panels_name);
  EXPECT_NE(automatic({1, 64, 64, {4000}, {1}, {1}, {0}, {1}}), panels_name);
}

}  // namespace
}  // namespace zefuse::primitives::testing
