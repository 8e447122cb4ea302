#include "tests/unit/driver/image_helpers.h"

#include <algorithm>

namespace zefuse::test {

void ImageTest::SetUp() {
  ZeTest::SetUp();
  if (imageProperties().maxImageDims2D == 0)
    GTEST_SKIP() << "this device has no images";
}

void ImageTest::TearDown() {
  for (auto image : images_)
    EXPECT_EQ(ZE_RESULT_SUCCESS, zeImageDestroy(image));
  for (auto sampler : samplers_)
    EXPECT_EQ(ZE_RESULT_SUCCESS, zeSamplerDestroy(sampler));
  ZeTest::TearDown();
}

ze_image_handle_t ImageTest::image(const ze_image_desc_t& desc) {
  ze_image_handle_t image = nullptr;
  EXPECT_EQ(ZE_RESULT_SUCCESS, zeImageCreate(context, device, &desc, &image));
  if (image)
    images_.push_back(image);
  return image;
}

ze_sampler_handle_t ImageTest::sampler(ze_sampler_address_mode_t addressing, ze_sampler_filter_mode_t filter,
                                       bool normalized) {
  const ze_sampler_desc_t desc = {ZE_STRUCTURE_TYPE_SAMPLER_DESC, nullptr, addressing, filter,
                                  static_cast<ze_bool_t>(normalized)};
  ze_sampler_handle_t sampler = nullptr;
  EXPECT_EQ(ZE_RESULT_SUCCESS, zeSamplerCreate(context, device, &desc, &sampler));
  if (sampler)
    samplers_.push_back(sampler);
  return sampler;
}

void ImageTest::forget(ze_image_handle_t image) { std::erase(images_, image); }

ze_device_image_properties_t ImageTest::imageProperties() {
  ze_device_image_properties_t properties = {};
  properties.stype = ZE_STRUCTURE_TYPE_DEVICE_IMAGE_PROPERTIES;
  EXPECT_EQ(ZE_RESULT_SUCCESS, zeDeviceGetImageProperties(device, &properties));
  return properties;
}

ze_image_desc_t describe(ze_image_type_t type, ze_image_format_layout_t layout, ze_image_format_type_t format,
                         std::array<uint32_t, 3> size, Swizzle swizzle) {
  ze_image_desc_t desc = {};
  desc.stype = ZE_STRUCTURE_TYPE_IMAGE_DESC;
  desc.flags = ZE_IMAGE_FLAG_KERNEL_WRITE;
  desc.type = type;
  desc.format = {layout, format, swizzle[0], swizzle[1], swizzle[2], swizzle[3]};
  desc.width = type == ZE_IMAGE_TYPE_BUFFER ? 4 * size[0] : size[0];
  desc.height = type == ZE_IMAGE_TYPE_1DARRAY ? 1 : std::max(size[1], 1u);
  desc.depth = type == ZE_IMAGE_TYPE_3D ? size[2] : 1;
  desc.arraylevels = type == ZE_IMAGE_TYPE_1DARRAY ? size[1] : type == ZE_IMAGE_TYPE_2DARRAY ? size[2] : 0;
  return desc;
}

void setImage(ze_kernel_handle_t kernel, uint32_t index, ze_image_handle_t image) {
  EXPECT_EQ(ZE_RESULT_SUCCESS, zeKernelSetArgumentValue(kernel, index, sizeof image, image ? &image : nullptr));
}

void setSampler(ze_kernel_handle_t kernel, uint32_t index, ze_sampler_handle_t sampler) {
  EXPECT_EQ(ZE_RESULT_SUCCESS, zeKernelSetArgumentValue(kernel, index, sizeof sampler, &sampler));
}

}  // namespace zefuse::test
