// Appending copies of images: to images, to memory and from memory. Bytes move as they are: a format is for kernels.
#include <algorithm>

#include "drivers/cpu/append.h"
#include "drivers/cpu/image.h"

namespace zefuse::cpu {
namespace {

// A region of an image, in texels: what the application gave, or all of it.
struct Box {
  uint64_t origin[3], size[3];
};

ze_result_t boxOf(const char* call, const Image& image, const ze_image_region_t* region, Box& box) {
  const uint32_t* size = image.view.size;
  if (!region) {
    box = {{0, 0, 0}, {size[0], size[1], size[2]}};
    return ZE_RESULT_SUCCESS;
  }
  // A dimension that the image does not have may be 0 or 1. A width of 0 copies nothing, and waits and signals.
  box = {{region->originX, region->originY, region->originZ},
         {region->width, std::max(region->height, 1u), std::max(region->depth, 1u)}};
  for (int d = 0; d < 3; ++d)
    if (box.origin[d] + box.size[d] > size[d])
      return refuse(ZE_RESULT_ERROR_INVALID_ARGUMENT,
                    "%s: the region at (%u, %u, %u) of %u x %u x %u is not within the image of %u x %u x %u", call,
                    region->originX, region->originY, region->originZ, region->width, region->height, region->depth,
                    size[0], size[1], size[2]);
  return ZE_RESULT_SUCCESS;
}

// Where the rows of a box are, in an image or in memory.
struct Side {
  std::byte* first;
  size_t row_pitch, slice_pitch;
};

Side sideOf(const Image& image, const Box& box) {
  const ImageView& view = image.view;
  return {reinterpret_cast<std::byte*>(view.texels + box.origin[0] * view.texel_bytes + box.origin[1] * view.row_pitch +
                                       box.origin[2] * view.slice_pitch),
          view.row_pitch, view.slice_pitch};
}

// Of memory that holds the image's box; a pitch of 0 is without gaps.
ze_result_t sideOf(const char* call, const void* memory, const Image& image, const Box& box, uint32_t row_pitch,
                   uint32_t slice_pitch, Side& side) {
  const size_t width = box.size[0] * image.view.texel_bytes, height = box.size[1];
  const size_t row = row_pitch ? row_pitch : width, slice = slice_pitch ? slice_pitch : row * height;
  if (row < width || slice < row * (height - 1) + width)
    return refuse(ZE_RESULT_ERROR_INVALID_ARGUMENT, "%s: pitches of %u and %u bytes for %zu rows of %zu bytes", call,
                  row_pitch, slice_pitch, height, width);
  side = {static_cast<std::byte*>(const_cast<void*>(memory)), row, slice};
  return ZE_RESULT_SUCCESS;
}

bool overlap(const Box& a, const Box& b) {
  for (int d = 0; d < 3; ++d)
    if (a.origin[d] + a.size[d] <= b.origin[d] || b.origin[d] + b.size[d] <= a.origin[d])
      return false;
  return true;
}

CopyRegionCommand copyOf(const Image& image, const Box& box, const Side& destination, const Side& source) {
  CopyRegionCommand region;
  region.width = box.size[0] * image.view.texel_bytes;
  region.height = box.size[1];
  region.depth = box.size[2];
  region.destination = destination.first;
  region.destination_pitch = destination.row_pitch;
  region.destination_slice_pitch = destination.slice_pitch;
  region.source = source.first;
  region.source_pitch = source.row_pitch;
  region.source_slice_pitch = source.slice_pitch;
  return region;
}

ze_result_t copyToMemory(CommandList& list, void* destination, Image& source, const ze_image_region_t* where,
                         uint32_t row_pitch, uint32_t slice_pitch, const EventHandles& events) {
  Box box;
  if (ze_result_t result = boxOf(events.call, source, where, box))
    return result;
  Side memory{};
  if (ze_result_t result = sideOf(events.call, destination, source, box, row_pitch, slice_pitch, memory))
    return result;
  const CopyRegionCommand region = copyOf(source, box, memory, sideOf(source, box));
  return append(list, events, [&] { return CopyImageCommand{Ref<Image>(), Ref<Image>(&source), region}; });
}

ze_result_t copyFromMemory(CommandList& list, Image& destination, const void* source, const ze_image_region_t* where,
                           uint32_t row_pitch, uint32_t slice_pitch, const EventHandles& events) {
  Box box;
  if (ze_result_t result = boxOf(events.call, destination, where, box))
    return result;
  Side memory{};
  if (ze_result_t result = sideOf(events.call, source, destination, box, row_pitch, slice_pitch, memory))
    return result;
  const CopyRegionCommand region = copyOf(destination, box, sideOf(destination, box), memory);
  return append(list, events, [&] { return CopyImageCommand{Ref<Image>(&destination), Ref<Image>(), region}; });
}

ze_result_t copyImage(CommandList& list, Image& destination, Image& source, const ze_image_region_t* destination_region,
                      const ze_image_region_t* source_region, const EventHandles& events) {
  Box to, from;
  if (ze_result_t result = boxOf(events.call, destination, destination_region, to))
    return result;
  if (ze_result_t result = boxOf(events.call, source, source_region, from))
    return result;
  if (!std::equal(to.size, to.size + 3, from.size) || destination.view.texel_bytes != source.view.texel_bytes)
    return refuse(ZE_RESULT_ERROR_INVALID_ARGUMENT,
                  "%s: %llu x %llu x %llu texels of %u bytes to %llu x %llu x %llu of %u bytes", events.call,
                  static_cast<unsigned long long>(from.size[0]), static_cast<unsigned long long>(from.size[1]),
                  static_cast<unsigned long long>(from.size[2]), source.view.texel_bytes,
                  static_cast<unsigned long long>(to.size[0]), static_cast<unsigned long long>(to.size[1]),
                  static_cast<unsigned long long>(to.size[2]), destination.view.texel_bytes);
  if (&destination == &source && overlap(to, from))
    return refuse(ZE_RESULT_ERROR_OVERLAPPING_REGIONS, "%s: the regions overlap", events.call);
  const CopyRegionCommand region = copyOf(source, from, sideOf(destination, to), sideOf(source, from));
  return append(list, events, [&] { return CopyImageCommand{Ref<Image>(&destination), Ref<Image>(&source), region}; });
}

}  // namespace

ze_result_t commandListAppendImageCopy(ze_command_list_handle_t hCommandList, ze_image_handle_t hDstImage,
                                       ze_image_handle_t hSrcImage, ze_event_handle_t hSignalEvent,
                                       uint32_t numWaitEvents, ze_event_handle_t* phWaitEvents) {
  ZEFUSE_OBJECT(CommandList, list, hCommandList);
  ZEFUSE_OBJECT(Image, destination, hDstImage);
  ZEFUSE_OBJECT(Image, source, hSrcImage);
  return copyImage(*list, *destination, *source, nullptr, nullptr,
                   {"zeCommandListAppendImageCopy", hSignalEvent, numWaitEvents, phWaitEvents});
}

ze_result_t commandListAppendImageCopyRegion(ze_command_list_handle_t hCommandList, ze_image_handle_t hDstImage,
                                             ze_image_handle_t hSrcImage, const ze_image_region_t* pDstRegion,
                                             const ze_image_region_t* pSrcRegion, ze_event_handle_t hSignalEvent,
                                             uint32_t numWaitEvents, ze_event_handle_t* phWaitEvents) {
  ZEFUSE_OBJECT(CommandList, list, hCommandList);
  ZEFUSE_OBJECT(Image, destination, hDstImage);
  ZEFUSE_OBJECT(Image, source, hSrcImage);
  return copyImage(*list, *destination, *source, pDstRegion, pSrcRegion,
                   {"zeCommandListAppendImageCopyRegion", hSignalEvent, numWaitEvents, phWaitEvents});
}

ze_result_t commandListAppendImageCopyToMemory(ze_command_list_handle_t hCommandList, void* dstptr,
                                               ze_image_handle_t hSrcImage, const ze_image_region_t* pSrcRegion,
                                               ze_event_handle_t hSignalEvent, uint32_t numWaitEvents,
                                               ze_event_handle_t* phWaitEvents) {
  ZEFUSE_OBJECT(CommandList, list, hCommandList);
  ZEFUSE_OBJECT(Image, source, hSrcImage);
  ZEFUSE_NOT_NULL(dstptr);
  return copyToMemory(*list, dstptr, *source, pSrcRegion, 0, 0,
                      {"zeCommandListAppendImageCopyToMemory", hSignalEvent, numWaitEvents, phWaitEvents});
}

ze_result_t commandListAppendImageCopyToMemoryExt(ze_command_list_handle_t hCommandList, void* dstptr,
                                                  ze_image_handle_t hSrcImage, const ze_image_region_t* pSrcRegion,
                                                  uint32_t destRowPitch, uint32_t destSlicePitch,
                                                  ze_event_handle_t hSignalEvent, uint32_t numWaitEvents,
                                                  ze_event_handle_t* phWaitEvents) {
  ZEFUSE_OBJECT(CommandList, list, hCommandList);
  ZEFUSE_OBJECT(Image, source, hSrcImage);
  ZEFUSE_NOT_NULL(dstptr);
  return copyToMemory(*list, dstptr, *source, pSrcRegion, destRowPitch, destSlicePitch,
                      {"zeCommandListAppendImageCopyToMemoryExt", hSignalEvent, numWaitEvents, phWaitEvents});
}

ze_result_t commandListAppendImageCopyFromMemory(ze_command_list_handle_t hCommandList, ze_image_handle_t hDstImage,
                                                 const void* srcptr, const ze_image_region_t* pDstRegion,
                                                 ze_event_handle_t hSignalEvent, uint32_t numWaitEvents,
                                                 ze_event_handle_t* phWaitEvents) {
  ZEFUSE_OBJECT(CommandList, list, hCommandList);
  ZEFUSE_OBJECT(Image, destination, hDstImage);
  ZEFUSE_NOT_NULL(srcptr);
  return copyFromMemory(*list, *destination, srcptr, pDstRegion, 0, 0,
                        {"zeCommandListAppendImageCopyFromMemory", hSignalEvent, numWaitEvents, phWaitEvents});
}

ze_result_t commandListAppendImageCopyFromMemoryExt(ze_command_list_handle_t hCommandList, ze_image_handle_t hDstImage,
                                                    const void* srcptr, const ze_image_region_t* pDstRegion,
                                                    uint32_t srcRowPitch, uint32_t srcSlicePitch,
                                                    ze_event_handle_t hSignalEvent, uint32_t numWaitEvents,
                                                    ze_event_handle_t* phWaitEvents) {
  ZEFUSE_OBJECT(CommandList, list, hCommandList);
  ZEFUSE_OBJECT(Image, destination, hDstImage);
  ZEFUSE_NOT_NULL(srcptr);
  return copyFromMemory(*list, *destination, srcptr, pDstRegion, srcRowPitch, srcSlicePitch,
                        {"zeCommandListAppendImageCopyFromMemoryExt", hSignalEvent, numWaitEvents, phWaitEvents});
}

}  // namespace zefuse::cpu
