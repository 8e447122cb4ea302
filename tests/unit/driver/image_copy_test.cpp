// Copies of images, in every way that a command runs.
#include <algorithm>
#include <numeric>

#include "tests/unit/driver/image_helpers.h"

namespace zefuse::test {
namespace {

struct Case {
  ze_image_type_t type;
  std::array<uint32_t, 3> size;
  ze_image_region_t region;
};
constexpr Case kCases[] = {
    {ZE_IMAGE_TYPE_1D, {9, 1, 1}, {2, 0, 0, 5, 1, 1}}, {ZE_IMAGE_TYPE_1DARRAY, {6, 4, 1}, {1, 1, 0, 3, 2, 1}},
    {ZE_IMAGE_TYPE_2D, {7, 5, 1}, {3, 1, 0, 4, 3, 0}}, {ZE_IMAGE_TYPE_2DARRAY, {5, 4, 3}, {0, 2, 1, 2, 2, 2}},
    {ZE_IMAGE_TYPE_3D, {4, 5, 6}, {1, 1, 2, 3, 4, 3}}, {ZE_IMAGE_TYPE_BUFFER, {8, 1, 1}, {1, 0, 0, 7, 0, 0}},
};

// A region's bytes of tightly packed texels of 4 bytes.
std::vector<uint32_t> cut(const std::vector<uint32_t>& texels, const Case& each) {
  std::vector<uint32_t> out;
  const ze_image_region_t& region = each.region;
  for (uint32_t z = 0; z < std::max(region.depth, 1u); ++z)
    for (uint32_t y = 0; y < std::max(region.height, 1u); ++y)
      for (uint32_t x = 0; x < region.width; ++x)
        out.push_back(
            texels[((region.originZ + z) * each.size[1] + region.originY + y) * each.size[0] + region.originX + x]);
  return out;
}

class ImageCopies : public OnEveryList<ImageTest> {
protected:
  void barrier() { ZE_OK(zeCommandListAppendBarrier(list, nullptr, 0, nullptr)); }
};
INSTANTIATE_TEST_SUITE_P(Lists, ImageCopies,
                         ::testing::Values(ListKind::synchronous, ListKind::asynchronous, ListKind::default_mode,
                                           ListKind::regular),
                         [](const auto& info) { return nameOf(info.param); });

TEST_P(ImageCopies, MoveImagesAndTheirRegions) {
  for (const Case& each : kCases) {
    SCOPED_TRACE(each.type);
    const uint32_t count = each.size[0] * each.size[1] * each.size[2];
    const ze_image_desc_t desc =
        describe(each.type, ZE_IMAGE_FORMAT_LAYOUT_8_8_8_8, ZE_IMAGE_FORMAT_TYPE_UINT, each.size);
    ze_image_handle_t a = image(desc), b = image(desc);
    auto* given = allocate<uint32_t>(count);
    std::iota(given, given + count, 1000u);
    const std::vector<uint32_t> texels(given, given + count);
    auto* whole = allocate<uint32_t>(count);
    auto* part = allocate<uint32_t>(count);
    std::fill(part, part + count, 7u);

    ZE_OK(zeCommandListAppendImageCopyFromMemory(list, a, given, nullptr, nullptr, 0, nullptr));
    barrier();
    ZE_OK(zeCommandListAppendImageCopy(list, b, a, nullptr, 0, nullptr));
    barrier();
    ZE_OK(zeCommandListAppendImageCopyToMemory(list, whole, b, nullptr, nullptr, 0, nullptr));
    ZE_OK(zeCommandListAppendImageCopyToMemory(list, part, b, &each.region, nullptr, 0, nullptr));
    finish();
    EXPECT_EQ(texels, std::vector<uint32_t>(whole, whole + count));
    const std::vector<uint32_t> expected = cut(texels, each);
    EXPECT_EQ(expected, std::vector<uint32_t>(part, part + expected.size()));
    EXPECT_EQ(7u, part[count - 1]);

    // Fill the image with one value through the same list, reset where it was recorded; then only the region of it.
    std::fill(given, given + count, 3u);
    ZE_OK(zeCommandListAppendImageCopyFromMemory(list, b, given, nullptr, nullptr, 0, nullptr));
    barrier();
    ZE_OK(zeCommandListAppendImageCopyRegion(list, b, a, &each.region, &each.region, nullptr, 0, nullptr));
    barrier();
    ZE_OK(zeCommandListAppendImageCopyToMemory(list, whole, b, nullptr, nullptr, 0, nullptr));
    finish();
    std::vector<uint32_t> threes(whole, whole + count);
    EXPECT_EQ(expected, cut(threes, each));
    EXPECT_EQ(static_cast<long>(count - expected.size()), std::count(threes.begin(), threes.end(), 3u));

    ZE_OK(zeCommandListAppendImageCopyFromMemory(list, a, given, &each.region, nullptr, 0, nullptr));
    barrier();
    ZE_OK(zeCommandListAppendImageCopyToMemory(list, whole, a, nullptr, nullptr, 0, nullptr));
    finish();
    EXPECT_EQ(static_cast<long>(expected.size()), std::count(whole, whole + count, 3u));
    EXPECT_EQ(3u, cut(std::vector<uint32_t>(whole, whole + count), each)[0]);
  }
}

TEST_P(ImageCopies, FollowPitchesInMemory) {
  constexpr uint32_t kWidth = 3, kHeight = 2, kDepth = 2, kRow = 16, kSlice = 48;  // bytes of rows and slices
  ze_image_handle_t volume = image(
      describe(ZE_IMAGE_TYPE_3D, ZE_IMAGE_FORMAT_LAYOUT_32, ZE_IMAGE_FORMAT_TYPE_UINT, {kWidth, kHeight, kDepth}));
  auto* memory = allocate<uint32_t>(kSlice * kDepth / 4);
  std::iota(memory, memory + kSlice * kDepth / 4, 0u);
  auto* tight = allocate<uint32_t>(kWidth * kHeight * kDepth);
  auto* wide = allocate<uint32_t>(kSlice * kDepth / 4);
  std::fill(wide, wide + kSlice * kDepth / 4, 99u);
  ZE_OK(zeCommandListAppendImageCopyFromMemoryExt(list, volume, memory, nullptr, kRow, kSlice, nullptr, 0, nullptr));
  barrier();
  ZE_OK(zeCommandListAppendImageCopyToMemoryExt(list, tight, volume, nullptr, 0, 0, nullptr, 0, nullptr));
  ZE_OK(zeCommandListAppendImageCopyToMemoryExt(list, wide, volume, nullptr, kRow, kSlice, nullptr, 0, nullptr));
  finish();
  EXPECT_EQ((std::vector<uint32_t>{0, 1, 2, 4, 5, 6, 12, 13, 14, 16, 17, 18}),
            std::vector<uint32_t>(tight, tight + 12));
  EXPECT_EQ((std::vector<uint32_t>{0, 1, 2, 99, 4, 5, 6, 99, 99, 99, 99, 99, 12}),
            std::vector<uint32_t>(wide, wide + 13));
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_ARGUMENT,
            zeCommandListAppendImageCopyToMemoryExt(list, wide, volume, nullptr, 8, 0, nullptr, 0, nullptr));
}

TEST_P(ImageCopies, OfNothingSignalOnly) {
  const ze_image_desc_t desc =
      describe(ZE_IMAGE_TYPE_2D, ZE_IMAGE_FORMAT_LAYOUT_8_8_8_8, ZE_IMAGE_FORMAT_TYPE_UINT, {8, 4});
  ze_image_handle_t a = image(desc), b = image(desc);
  auto* memory = allocate<uint32_t>(1);
  memory[0] = 7;
  auto events = pool(3);
  ze_event_handle_t done[] = {event(events, 0), event(events, 1), event(events, 2)};
  const ze_image_region_t nothing = {0, 0, 0, 0, 0, 0};
  ZE_OK(zeCommandListAppendImageCopyToMemory(list, memory, a, &nothing, done[0], 0, nullptr));
  ZE_OK(zeCommandListAppendImageCopyFromMemory(list, a, memory, &nothing, done[1], 0, nullptr));
  ZE_OK(zeCommandListAppendImageCopyRegion(list, b, a, &nothing, &nothing, done[2], 0, nullptr));
  finish();
  for (ze_event_handle_t each : done)
    EXPECT_EQ(ZE_RESULT_SUCCESS, zeEventQueryStatus(each));
  EXPECT_EQ(7u, memory[0]);
}

TEST_P(ImageCopies, OfRegionsThatAreNotThereAreRefused) {
  const ze_image_desc_t desc =
      describe(ZE_IMAGE_TYPE_2D, ZE_IMAGE_FORMAT_LAYOUT_8_8_8_8, ZE_IMAGE_FORMAT_TYPE_UINT, {8, 4});
  ze_image_handle_t a = image(desc), b = image(desc);
  ze_image_handle_t bytes =
      image(describe(ZE_IMAGE_TYPE_2D, ZE_IMAGE_FORMAT_LAYOUT_8, ZE_IMAGE_FORMAT_TYPE_UINT, {8, 4}));
  auto* memory = allocate<uint32_t>(32);
  const ze_image_region_t right = {4, 0, 0, 4, 4, 1};
  for (const ze_image_region_t& region : {ze_image_region_t{5, 0, 0, 4, 4, 1},
                                          {0, 1, 0, 4, 4, 1},
                                          {0, 0, 1, 4, 4, 1},
                                          {0, 0, 0, 4, 4, 2},
                                          {UINT32_MAX, 0, 0, UINT32_MAX, 1, 1}}) {
    EXPECT_EQ(ZE_RESULT_ERROR_INVALID_ARGUMENT,
              zeCommandListAppendImageCopyToMemory(list, memory, a, &region, nullptr, 0, nullptr));
    EXPECT_EQ(ZE_RESULT_ERROR_INVALID_ARGUMENT,
              zeCommandListAppendImageCopyFromMemory(list, a, memory, &region, nullptr, 0, nullptr));
    EXPECT_EQ(ZE_RESULT_ERROR_INVALID_ARGUMENT,
              zeCommandListAppendImageCopyRegion(list, b, a, &right, &region, nullptr, 0, nullptr));
  }
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeCommandListAppendImageCopy(list, a, bytes, nullptr, 0, nullptr));
  const ze_image_region_t left = {0, 0, 0, 4, 4, 1}, middle = {2, 0, 0, 4, 4, 1};
  EXPECT_EQ(ZE_RESULT_ERROR_OVERLAPPING_REGIONS,
            zeCommandListAppendImageCopyRegion(list, a, a, &left, &middle, nullptr, 0, nullptr));
  EXPECT_EQ(ZE_RESULT_SUCCESS, zeCommandListAppendImageCopyRegion(list, a, a, &left, &right, nullptr, 0, nullptr));
  finish();
}

}  // namespace
}  // namespace zefuse::test
