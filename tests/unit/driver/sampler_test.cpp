// Samplers, against OpenCL C's formulas in double precision.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/unit/driver/image_helpers.h"

namespace zefuse::test {
namespace {

constexpr ze_sampler_address_mode_t kAddressings[] = {ZE_SAMPLER_ADDRESS_MODE_REPEAT, ZE_SAMPLER_ADDRESS_MODE_CLAMP,
                                                      ZE_SAMPLER_ADDRESS_MODE_CLAMP_TO_BORDER,
                                                      ZE_SAMPLER_ADDRESS_MODE_MIRROR};

struct Setting {
  ze_sampler_address_mode_t addressing;
  bool linear, normalized;
};

// The place of a coordinate among the texels of one dimension, before it is brought into the image.
double placeOf(const Setting& setting, double at, uint32_t size) {
  double s = setting.normalized ? at : at / size;
  if (setting.addressing == ZE_SAMPLER_ADDRESS_MODE_REPEAT)
    s -= std::floor(s);
  if (setting.addressing == ZE_SAMPLER_ADDRESS_MODE_MIRROR)
    s = std::fabs(s - 2 * std::nearbyint(0.5 * s));
  return s * size;
}

// The index of a texel; -1: the border.
int indexOf(const Setting& setting, int i, int size) {
  switch (setting.addressing) {
  case ZE_SAMPLER_ADDRESS_MODE_REPEAT: return (i + size) % size;
  case ZE_SAMPLER_ADDRESS_MODE_CLAMP_TO_BORDER: return i < 0 || i >= size ? -1 : i;
  default: return std::clamp(i, 0, size - 1);
  }
}

struct Picture {
  std::array<uint32_t, 3> size;
  int dimensions;
  bool arrayed;
  std::vector<float> texels;  // one channel

  double at(int x, int y, int z) const {
    return x < 0 || y < 0 || z < 0 ? 0 : texels[(uint32_t(z) * size[1] + uint32_t(y)) * size[0] + uint32_t(x)];
  }

  double sample(const Setting& setting, const std::array<float, 4>& coordinates) const {
    int low[3] = {0, 0, 0}, high[3] = {0, 0, 0};
    double weight[3] = {0, 0, 0};
    for (int d = 0; d < dimensions; ++d) {
      double place = placeOf(setting, coordinates[d], size[d]) - (setting.linear ? 0.5 : 0);
      place = std::clamp(place, -1e6, 1e6);
      const int below = static_cast<int>(std::floor(place));
      low[d] = indexOf(setting, below, static_cast<int>(size[d]));
      high[d] = indexOf(setting, below + 1, static_cast<int>(size[d]));
      weight[d] = setting.linear ? place - below : 0;
    }
    if (arrayed)
      low[dimensions] = high[dimensions] =
          std::clamp(static_cast<int>(std::nearbyint(coordinates[dimensions])), 0, int(size[dimensions]) - 1);
    double sum = 0;
    for (int corner = 0; corner < 8; ++corner) {
      double w = 1;
      int index[3];
      for (int d = 0; d < 3; ++d) {
        const bool second = corner >> d & 1;
        w *= second ? weight[d] : 1 - weight[d];
        index[d] = second ? high[d] : low[d];
      }
      if (w != 0)
        sum += w * at(index[0], index[1], index[2]);
    }
    return sum;
  }
};

class Samplers : public ImageTest {
protected:
  // Every setting, at places all around the image, none of which lies on an edge between two texels.
  void check(ze_image_type_t type, const char* name, Picture picture) {
    const uint32_t count = picture.size[0] * picture.size[1] * picture.size[2];
    for (uint32_t i = 0; i < count; ++i)
      picture.texels.push_back(static_cast<float>((i * 37) % 101));
    ze_image_handle_t in = image(describe(type, ZE_IMAGE_FORMAT_LAYOUT_32, ZE_IMAGE_FORMAT_TYPE_FLOAT, picture.size));
    auto* memory = allocate<float>(count);
    std::copy(picture.texels.begin(), picture.texels.end(), memory);
    ze_command_list_handle_t list = immediateList(ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS);
    ZE_OK(zeCommandListAppendImageCopyFromMemory(list, in, memory, nullptr, nullptr, 0, nullptr));
    constexpr uint32_t kSide = 48;
    auto* places = allocate<std::array<float, 4>>(kSide * kSide);
    auto* out = allocate<std::array<float, 4>>(kSide * kSide);
    ze_kernel_handle_t sample = kernel(images(), name, 16);
    for (ze_sampler_address_mode_t addressing : kAddressings)
      for (bool linear : {false, true})
        for (bool normalized : {false, true}) {
          const Setting setting = {addressing, linear, normalized};
          SCOPED_TRACE(testing::Message()
                       << name << " addressing " << addressing << " linear " << linear << " normalized " << normalized);
          for (uint32_t i = 0; i < kSide * kSide; ++i) {
            const uint32_t steps[3] = {i % kSide, i / kSide, i * 7 % kSide};
            for (int d = 0; d < 3; ++d) {
              const uint32_t size = picture.size[d];
              const double place = size * (-1.5 + 4.0 * steps[d] / kSide) + 0.013;
              const bool layer = picture.arrayed && d == picture.dimensions;
              places[i][d] = static_cast<float>(layer || !normalized ? place : place / size);
            }
            places[i][3] = 0;
          }
          setImage(sample, 0, in);
          setSampler(
              sample, 1,
              sampler(addressing, linear ? ZE_SAMPLER_FILTER_MODE_LINEAR : ZE_SAMPLER_FILTER_MODE_NEAREST, normalized));
          setPointer(sample, 2, places);
          setPointer(sample, 3, out);
          const ze_group_count_t groups = {kSide / 16, kSide, 1};
          ZE_OK(zeCommandListAppendLaunchKernel(list, sample, &groups, nullptr, 0, nullptr));
          for (uint32_t i = 0; i < kSide * kSide; ++i)
            ASSERT_NEAR(picture.sample(setting, places[i]), out[i][0], linear ? 2e-3 : 0)
                << places[i][0] << ", " << places[i][1] << ", " << places[i][2];
        }
  }
};

TEST_F(Samplers, FilterOneDimension) { check(ZE_IMAGE_TYPE_1D, "sample1", {{11, 1, 1}, 1, false, {}}); }
TEST_F(Samplers, FilterTwoDimensions) { check(ZE_IMAGE_TYPE_2D, "sample2", {{9, 5, 1}, 2, false, {}}); }
TEST_F(Samplers, FilterThreeDimensions) { check(ZE_IMAGE_TYPE_3D, "sample3", {{5, 4, 3}, 3, false, {}}); }
TEST_F(Samplers, TakeALayerOfLines) { check(ZE_IMAGE_TYPE_1DARRAY, "sample1a", {{9, 4, 1}, 1, true, {}}); }
TEST_F(Samplers, TakeALayerOfPlanes) { check(ZE_IMAGE_TYPE_2DARRAY, "sample2a", {{6, 5, 3}, 2, true, {}}); }

TEST_F(Samplers, TheBorderIsOpaqueWhereTheImageHasNoAlpha) {
  const Swizzle no_alpha = {ZE_IMAGE_FORMAT_SWIZZLE_R, ZE_IMAGE_FORMAT_SWIZZLE_0, ZE_IMAGE_FORMAT_SWIZZLE_0,
                            ZE_IMAGE_FORMAT_SWIZZLE_1};
  for (const Swizzle& swizzle : {kPlain, no_alpha}) {
    ze_image_handle_t in =
        image(describe(ZE_IMAGE_TYPE_2D, ZE_IMAGE_FORMAT_LAYOUT_32, ZE_IMAGE_FORMAT_TYPE_FLOAT, {2, 2}, swizzle));
    ze_kernel_handle_t sample = kernel(images(), "sample2");
    auto* place = allocate<std::array<float, 4>>(1);
    auto* out = allocate<std::array<float, 4>>(1);
    *place = {-5, 0, 0, 0};
    setImage(sample, 0, in);
    setSampler(sample, 1, sampler(ZE_SAMPLER_ADDRESS_MODE_CLAMP_TO_BORDER, ZE_SAMPLER_FILTER_MODE_NEAREST, false));
    setPointer(sample, 2, place);
    setPointer(sample, 3, out);
    const ze_group_count_t groups = {1, 1, 1};
    ZE_OK(zeCommandListAppendLaunchKernel(immediateList(ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS), sample, &groups, nullptr, 0,
                                          nullptr));
    EXPECT_EQ((std::array<float, 4>{0, 0, 0, swizzle == kPlain ? 0.0f : 1.0f}), *out);
  }
}

TEST_F(Samplers, NoCoordinateLeavesTheImage) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  ze_image_handle_t in =
      image(describe(ZE_IMAGE_TYPE_3D, ZE_IMAGE_FORMAT_LAYOUT_32, ZE_IMAGE_FORMAT_TYPE_FLOAT, {2, 2, 2}));
  ze_kernel_handle_t sample = kernel(images(), "sample3");
  const float extremes[] = {
      std::numeric_limits<float>::quiet_NaN(), kInfinity, -kInfinity, 3e38f, -3e38f, 2147483648.0f};
  auto* places = allocate<std::array<float, 4>>(std::size(extremes));
  auto* out = allocate<std::array<float, 4>>(std::size(extremes));
  for (size_t i = 0; i < std::size(extremes); ++i)
    places[i] = {extremes[i], extremes[(i + 1) % std::size(extremes)], extremes[i], 0};
  ze_command_list_handle_t list = immediateList(ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS);
  for (int addressing = ZE_SAMPLER_ADDRESS_MODE_NONE; addressing <= ZE_SAMPLER_ADDRESS_MODE_MIRROR; ++addressing)
    for (bool linear : {false, true})
      for (bool normalized : {false, true}) {
        setImage(sample, 0, in);
        setSampler(sample, 1,
                   sampler(static_cast<ze_sampler_address_mode_t>(addressing),
                           linear ? ZE_SAMPLER_FILTER_MODE_LINEAR : ZE_SAMPLER_FILTER_MODE_NEAREST, normalized));
        setPointer(sample, 2, places);
        setPointer(sample, 3, out);
        const ze_group_count_t groups = {std::size(extremes), 1, 1};
        ZE_OK(zeCommandListAppendLaunchKernel(list, sample, &groups, nullptr, 0, nullptr));
        if (!linear)  // linear: a NaN may come of weights
          for (size_t i = 0; i < std::size(extremes); ++i)
            EXPECT_EQ(0, out[i][0]);
      }
}

TEST_F(Samplers, IntegersTakeTheNearestTexel) {
  ze_image_handle_t in =
      image(describe(ZE_IMAGE_TYPE_2D, ZE_IMAGE_FORMAT_LAYOUT_16, ZE_IMAGE_FORMAT_TYPE_UINT, {4, 1}));
  auto* texels = allocate<uint16_t>(4);
  for (uint16_t i = 0; i < 4; ++i)
    texels[i] = static_cast<uint16_t>(60000 + i);
  ze_command_list_handle_t list = immediateList(ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS);
  ZE_OK(zeCommandListAppendImageCopyFromMemory(list, in, texels, nullptr, nullptr, 0, nullptr));
  ze_kernel_handle_t sample = kernel(images(), "sample_u");
  auto* place = allocate<std::array<float, 4>>(1);
  auto* out = allocate<std::array<uint32_t, 4>>(1);
  *place = {0.6f, 0.5f, 0, 0};
  setImage(sample, 0, in);
  setSampler(sample, 1, sampler(ZE_SAMPLER_ADDRESS_MODE_CLAMP, ZE_SAMPLER_FILTER_MODE_LINEAR, true));
  setPointer(sample, 2, place);
  setPointer(sample, 3, out);
  const ze_group_count_t groups = {1, 1, 1};
  ZE_OK(zeCommandListAppendLaunchKernel(list, sample, &groups, nullptr, 0, nullptr));
  EXPECT_EQ((std::array<uint32_t, 4>{60002, 0, 0, 1}), *out);
}

TEST_F(Samplers, AProgramMayHaveItsOwn) {
  ze_image_handle_t in =
      image(describe(ZE_IMAGE_TYPE_2D, ZE_IMAGE_FORMAT_LAYOUT_8, ZE_IMAGE_FORMAT_TYPE_UNORM, {2, 2}));
  auto* texels = allocate<uint8_t>(4);
  std::fill(texels, texels + 4, uint8_t{255});
  ze_command_list_handle_t list = immediateList(ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS);
  ZE_OK(zeCommandListAppendImageCopyFromMemory(list, in, texels, nullptr, nullptr, 0, nullptr));
  ze_kernel_handle_t read = kernel(images(), "constant_samplers");
  auto* out = allocate<std::array<float, 4>>(2 * 4 * 4);
  setImage(read, 0, in);
  setPointer(read, 1, out);
  const ze_group_count_t groups = {4, 4, 1};
  ZE_OK(zeCommandListAppendLaunchKernel(list, read, &groups, nullptr, 0, nullptr));
  for (uint32_t y = 0; y < 4; ++y)
    for (uint32_t x = 0; x < 4; ++x) {
      const bool inside = x >= 1 && x <= 2 && y >= 1 && y <= 2;  // the coordinates begin at -1
      EXPECT_EQ(inside ? 1.0f : 0.0f, out[2 * (4 * y + x)][0]) << x << ", " << y;
      EXPECT_EQ(1.0f, out[2 * (4 * y + x) + 1][0]) << x << ", " << y;
    }
}

}  // namespace
}  // namespace zefuse::test
