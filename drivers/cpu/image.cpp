#include "drivers/cpu/image.h"

#include <algorithm>
#include <cstdlib>

#include "drivers/cpu/device.h"
#include "drivers/cpu/image_format.h"
#include "drivers/cpu/memory.h"

namespace zefuse::cpu {

const ImageView kNoImage = {
    nullptr,      0,     0, {0, 0, 0}, 4, 1, 4, TexelPacking::channels, TexelKind::unorm, {0, 1, 2, 3},
    {0, 1, 2, 3}, false, 5, 2};

void FreeTexels::operator()(unsigned char* texels) const { std::free(texels); }

Image::Image(Context& context, const Device& device, ze_image_type_t type, uint64_t bytes,
             std::unique_ptr<unsigned char[], FreeTexels> texels, const ImageView& view)
    : context(&context), device(device), type(type), bytes(bytes), id(AllocationTable::instance().nextId()),
      texels(std::move(texels)), view(view) {}

namespace {

// Sizes of the view, in texels; refuses what is out of the limits.
ze_result_t measure(const char* call, const ze_image_desc_t& desc, ImageView& view) {
  uint64_t size[3] = {desc.width, 1, 1}, limit[3] = {kMaxImageSize, kMaxImageSize, kMaxImageLayers};
  switch (desc.type) {
  case ZE_IMAGE_TYPE_BUFFER:  // in bytes
    size[0] = desc.width / view.texel_bytes;
    limit[0] = kMaxImageBufferBytes / view.texel_bytes;
    break;
  case ZE_IMAGE_TYPE_1D: break;
  case ZE_IMAGE_TYPE_1DARRAY:
    size[1] = desc.arraylevels;
    limit[1] = kMaxImageLayers;
    break;
  case ZE_IMAGE_TYPE_2D: size[1] = desc.height; break;
  case ZE_IMAGE_TYPE_2DARRAY:
    size[1] = desc.height;
    size[2] = desc.arraylevels;
    break;
  default:
    size[1] = desc.height;
    size[2] = desc.depth;
    std::fill(std::begin(limit), std::end(limit), kMaxImageSize3D);
  }
  for (int d = 0; d < 3; ++d) {
    if (size[d] == 0 || size[d] > limit[d])
      return refuse(ZE_RESULT_ERROR_UNSUPPORTED_SIZE,
                    "%s: %llu texels or layers in dimension %d; 1 to %llu are possible", call,
                    static_cast<unsigned long long>(size[d]), d, static_cast<unsigned long long>(limit[d]));
    view.size[d] = static_cast<uint32_t>(size[d]);
  }
  view.row_pitch = uint64_t{view.size[0]} * view.texel_bytes;
  view.slice_pitch = view.row_pitch * view.size[1];  // below 2^14 * 16 * 2^14
  return ZE_RESULT_SUCCESS;
}

// What both calls with a descriptor check before its format.
ze_result_t checkDesc(const char* call, const ze_image_desc_t& desc) {
  if (static_cast<uint32_t>(desc.type) > ZE_IMAGE_TYPE_BUFFER ||
      (desc.flags & ~static_cast<uint32_t>(ZE_IMAGE_FLAG_KERNEL_WRITE | ZE_IMAGE_FLAG_BIAS_UNCACHED)) != 0)
    return refuse(ZE_RESULT_ERROR_INVALID_ENUMERATION, "%s: image type %d, flags 0x%x", call,
                  static_cast<int>(desc.type), desc.flags);
  return ZE_RESULT_SUCCESS;
}

}  // namespace

ze_result_t imageGetProperties(ze_device_handle_t hDevice, const ze_image_desc_t* desc,
                               ze_image_properties_t* pImageProperties) {
  ZEFUSE_CHECK(Device, hDevice);
  ZEFUSE_NOT_NULL(desc);
  ZEFUSE_NOT_NULL(pImageProperties);
  if (ze_result_t result = checkDesc("zeImageGetProperties", *desc))
    return result;
  ImageView view = {};
  pImageProperties->samplerFilterFlags = 0;  // no such image
  if (describeFormat(desc->format, view))
    pImageProperties->samplerFilterFlags =
        ZE_IMAGE_SAMPLER_FILTER_FLAG_POINT | (canFilter(view) ? ZE_IMAGE_SAMPLER_FILTER_FLAG_LINEAR : 0);
  return ZE_RESULT_SUCCESS;
}

ze_result_t imageCreate(ze_context_handle_t hContext, ze_device_handle_t hDevice, const ze_image_desc_t* desc,
                        ze_image_handle_t* phImage) {
  ZEFUSE_OBJECT(Context, context, hContext);
  ZEFUSE_OBJECT(Device, device, hDevice);
  ZEFUSE_NOT_NULL(desc);
  ZEFUSE_NOT_NULL(phImage);
  *phImage = nullptr;
  const char* call = "zeImageCreate";
  if (ze_result_t result = checkInContext(call, *context, *device))
    return result;
  if (ze_result_t result = checkDesc(call, *desc))
    return result;
  if (sharesOutside(desc->pNext))
    return refuse(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE, "%s: no export or import of descriptors", call);
  if (desc->miplevels > 1)
    return refuse(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE, "%s: %u mip levels; images have one", call, desc->miplevels);
  ImageView view = {};
  if (!describeFormat(desc->format, view))
    return refuse(ZE_RESULT_ERROR_UNSUPPORTED_IMAGE_FORMAT,
                  "%s: layout %d of type %d; there are 8, 16 and 32-bit channels, 10_10_10_2, 11_11_10 (float), 5_6_5, "
                  "5_5_5_1 and 4_4_4_4 (unorm)",
                  call, static_cast<int>(desc->format.layout), static_cast<int>(desc->format.type));
  if (ze_result_t result = measure(call, *desc, view))
    return result;
  const uint64_t bytes = view.slice_pitch * view.size[2];
  return guarded(__func__, [&]() -> ze_result_t {
    std::unique_ptr<unsigned char[], FreeTexels> texels;
    if (bytes <= device->memory_bytes)
      texels.reset(static_cast<unsigned char*>(std::calloc(bytes, 1)));
    if (!texels)
      return refuse(ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY, "%s: no memory left for %llu bytes", call,
                    static_cast<unsigned long long>(bytes));
    view.texels = texels.get();
    *phImage = toHandle<ze_image_handle_t>(new Image(*context, *device, desc->type, bytes, std::move(texels), view));
    return ZE_RESULT_SUCCESS;
  });
}

ze_result_t imageDestroy(ze_image_handle_t hImage) {
  ZEFUSE_OBJECT(Image, image, hImage);
  image->destroy();
  return ZE_RESULT_SUCCESS;
}

ze_result_t imageGetAllocPropertiesExt(ze_context_handle_t hContext, ze_image_handle_t hImage,
                                       ze_image_allocation_ext_properties_t* pImageAllocProperties) {
  ZEFUSE_CHECK(Context, hContext);
  ZEFUSE_OBJECT(Image, image, hImage);
  ZEFUSE_NOT_NULL(pImageAllocProperties);
  pImageAllocProperties->id = image->id;
  return ZE_RESULT_SUCCESS;
}

ze_result_t imageGetMemoryPropertiesExp(ze_image_handle_t hImage, ze_image_memory_properties_exp_t* pMemoryProperties) {
  ZEFUSE_OBJECT(Image, image, hImage);
  ZEFUSE_NOT_NULL(pMemoryProperties);
  pMemoryProperties->size = image->bytes;
  pMemoryProperties->rowPitch = image->view.row_pitch;
  pMemoryProperties->slicePitch = image->view.slice_pitch;
  return ZE_RESULT_SUCCESS;
}

// As memory: always resident.
ze_result_t contextMakeImageResident(ze_context_handle_t hContext, ze_device_handle_t hDevice,
                                     ze_image_handle_t hImage) {
  ZEFUSE_CHECK(Context, hContext);
  ZEFUSE_CHECK(Device, hDevice);
  ZEFUSE_CHECK(Image, hImage);
  return ZE_RESULT_SUCCESS;
}

ze_result_t contextEvictImage(ze_context_handle_t hContext, ze_device_handle_t hDevice, ze_image_handle_t hImage) {
  return contextMakeImageResident(hContext, hDevice, hImage);
}

}  // namespace zefuse::cpu
