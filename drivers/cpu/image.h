// Images: texels in memory of the driver's own, rows without gaps, and the view of them that kernels get.
#pragma once

#include <level_zero/ze_api.h>

#include <cstddef>
#include <memory>

#include "drivers/cpu/codegen/image/image_view.h"
#include "drivers/cpu/context.h"
#include "drivers/cpu/level_zero.h"

namespace zefuse::cpu {

struct Device;

// Limits of zeDeviceGetImageProperties.
constexpr uint32_t kMaxImageSize = 16384;   // of one and two dimensions
constexpr uint32_t kMaxImageSize3D = 2048;  // in each of three
constexpr uint32_t kMaxImageLayers = 2048;
constexpr uint64_t kMaxImageBufferBytes = uint64_t{1} << 30;
constexpr uint32_t kMaxImageArguments = 128;  // and samplers

struct FreeTexels {
  void operator()(unsigned char* texels) const;
};

// Unchanged after its creation, but for the texels. A kernel's arguments and recorded commands hold it.
struct Image : Object<Image> {
  static constexpr uint32_t kMagic = magicOf("ZIMG");
  const Ref<Context> context;
  const Device& device;
  const ze_image_type_t type;
  const uint64_t bytes;
  const uint64_t id;  // as of an allocation
  const std::unique_ptr<unsigned char[], FreeTexels> texels;
  const ImageView view;

  Image(Context& context, const Device& device, ze_image_type_t type, uint64_t bytes,
        std::unique_ptr<unsigned char[], FreeTexels> texels, const ImageView& view);
};

// What an image argument that was set to null names: no texels.
extern const ImageView kNoImage;

decltype(::zeImageGetProperties) imageGetProperties;
decltype(::zeImageCreate) imageCreate;
decltype(::zeImageDestroy) imageDestroy;
decltype(::zeImageGetAllocPropertiesExt) imageGetAllocPropertiesExt;
decltype(::zeImageGetMemoryPropertiesExp) imageGetMemoryPropertiesExp;
decltype(::zeContextMakeImageResident) contextMakeImageResident;
decltype(::zeContextEvictImage) contextEvictImage;

// append_image.cpp
decltype(::zeCommandListAppendImageCopy) commandListAppendImageCopy;
decltype(::zeCommandListAppendImageCopyRegion) commandListAppendImageCopyRegion;
decltype(::zeCommandListAppendImageCopyToMemory) commandListAppendImageCopyToMemory;
decltype(::zeCommandListAppendImageCopyFromMemory) commandListAppendImageCopyFromMemory;
decltype(::zeCommandListAppendImageCopyToMemoryExt) commandListAppendImageCopyToMemoryExt;
decltype(::zeCommandListAppendImageCopyFromMemoryExt) commandListAppendImageCopyFromMemoryExt;

}  // namespace zefuse::cpu
