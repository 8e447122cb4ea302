// Helpers of the tests of images. They skip where the device has none.
#pragma once

#include <array>
#include <vector>

#include "tests/unit/driver/ze_test.h"

namespace zefuse::test {

class ImageTest : public ZeTest {
protected:
  void SetUp() override;
  void TearDown() override;

public:
  // What is created here is destroyed at the test's end, unless forgotten.
  ze_image_handle_t image(const ze_image_desc_t& desc);
  ze_sampler_handle_t sampler(ze_sampler_address_mode_t addressing, ze_sampler_filter_mode_t filter, bool normalized);
  void forget(ze_image_handle_t image);
  ze_module_handle_t images() { return module("images.spv"); }
  ze_device_image_properties_t imageProperties();

  using ZeTest::allocate;
  using ZeTest::immediateList;
  using ZeTest::kernel;

private:
  std::vector<ze_image_handle_t> images_;
  std::vector<ze_sampler_handle_t> samplers_;
};

using Swizzle = std::array<ze_image_format_swizzle_t, 4>;
constexpr Swizzle kPlain = {ZE_IMAGE_FORMAT_SWIZZLE_R, ZE_IMAGE_FORMAT_SWIZZLE_G, ZE_IMAGE_FORMAT_SWIZZLE_B,
                            ZE_IMAGE_FORMAT_SWIZZLE_A};

// Of `size` the layers of an array are the last; a buffer's is in texels of 4 bytes.
ze_image_desc_t describe(ze_image_type_t type, ze_image_format_layout_t layout, ze_image_format_type_t format,
                         std::array<uint32_t, 3> size, Swizzle swizzle = kPlain);
void setImage(ze_kernel_handle_t kernel, uint32_t index, ze_image_handle_t image);
void setSampler(ze_kernel_handle_t kernel, uint32_t index, ze_sampler_handle_t sampler);

// Texels of one value through an image: written by one kernel, read by another.
template <typename T> class Through {
public:
  Through(ImageTest& test, ze_module_handle_t program, const char* write, const char* read,
          ze_image_format_layout_t layout, ze_image_format_type_t format, Swizzle swizzle = kPlain)
      : image_(test.image(describe(ZE_IMAGE_TYPE_2D, layout, format, {kWidth, kHeight, 1}, swizzle))),
        list_(test.immediateList(ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS)), write_(test.kernel(program, write)),
        read_(test.kernel(program, read)), memory_(test.allocate<T>(4 * kTexels)) {}

  std::array<T, 4> run(std::array<T, 4> value) {
    for (uint32_t i = 0; i < 4 * kTexels; ++i)
      memory_[i] = value[i % 4];
    const ze_group_count_t groups = {kWidth, kHeight, 1};
    for (ze_kernel_handle_t kernel : {write_, read_}) {
      setImage(kernel, 0, image_);
      setPointer(kernel, 1, memory_);
      EXPECT_EQ(ZE_RESULT_SUCCESS, zeCommandListAppendLaunchKernel(list_, kernel, &groups, nullptr, 0, nullptr));
    }
    std::array<T, 4> last;
    std::copy(memory_ + 4 * (kTexels - 1), memory_ + 4 * kTexels, last.begin());
    return last;
  }

  // The first of what the image holds.
  std::vector<uint8_t> bytes(size_t count) {
    EXPECT_EQ(ZE_RESULT_SUCCESS,
              zeCommandListAppendImageCopyToMemory(list_, memory_, image_, nullptr, nullptr, 0, nullptr));
    const auto* first = reinterpret_cast<const uint8_t*>(memory_);
    return {first, first + count};
  }

private:
  static constexpr uint32_t kWidth = 3, kHeight = 2, kTexels = kWidth * kHeight;
  ze_image_handle_t image_;
  ze_command_list_handle_t list_;
  ze_kernel_handle_t write_, read_;
  T* memory_;
};

}  // namespace zefuse::test
