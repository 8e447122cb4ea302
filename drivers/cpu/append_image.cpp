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
  // A dimension that the image does not have may be 0 or 1.
  box = {{region->originX, region->originY, region->originZ},
         {region->width, std::max(region->height, 1u), std::max(region->depth, 1u)}};
  for (int d = 0; d < 3; ++d)
    if (box.size[d] == 0 || box.origin[d] + box.size[d] > size[d])
      return refuse(ZE_RESULT_ERROR_INVALID_ARGUMENT,
                    "%s: the region at (%u, %u, %u) of %u x %u x %u is not within the image of %u x %u x %u", call,
                    region->originX, region->originY, region->originZ, region->width, region->height, region->depth,
                    size[0], size[1], size[2]);
  return ZE_RESULT_SUCCESS;
}

std::byte* texelsAt(const Image& image, const Box& box) {
  const ImageView& view = image.view;
  return reinterpret_cast<std::byte*>(view.texels + box.origin[0] * view.texel_bytes + box.origin[1] * view.row_pitch +
                                      box.origin[2] * view.slice_pitch);
}

bool overlap(const Box& a, const Box& b) {
  for (int d = 0; d < 3; ++d)
    if (a.origin[d] + a.size[d] <= b.origin[d] || b.origin[d] + b.size[d] <= a.origin[d])
      return false;
  return true;
}

CopyRegionCommand regionOf(const ImageView& view, const Box& box) {
  CopyRegionCommand region;
  region.width = box.size[0] * view.texel_bytes;
  region.height = box.size[1];
  region.depth = box.size[2];
  return region;
}

// How memory holds the box's rows; a pitch of 0 is without gaps.
struct Pitches {
  size_t row, slice;
};
ze_result_t pitchesOf(const char* call, const CopyRegionCommand& region, uint32_t row_pitch, uint32_t slice_pitch,
                      Pitches& pitches) {
  pitches.row = row_pitch ? row_pitch : region.width;
  pitches.slice = slice_pitch ? slice_pitch : pitches.row * region.height;
  if (pitches.row < region.width || pitches.slice < pitches.row * (region.height - 1) + region.width)
    return refuse(ZE_RESULT_ERROR_INVALID_ARGUMENT, "%s: pitches of %u and %u bytes for %zu rows of %zu bytes", call,
                  row_pitch, slice_pitch, region.height, region.width);
  return ZE_RESULT_SUCCESS;
}

ze_result_t copyToMemory(CommandList& list, void* destination, Image& source, const ze_image_region_t* where,
                         uint32_t row_pitch, uint32_t slice_pitch, const EventHandles& events) {
  Box box;
  if (ze_result_t result = boxOf(events.call, source, where, box))
    return result;
  CopyRegionCommand region = regionOf(source.view, box);
  Pitches pitches;
  if (ze_result_t result = pitchesOf(events.call, region, row_pitch, slice_pitch, pitches))
    return result;
  region.destination = static_cast<std::byte*>(destination);
  region.destination_pitch = pitches.row;
  region.destination_slice_pitch = pitches.slice;
  region.source = texelsAt(source, box);
  region.source_pitch = source.view.row_pitch;
  region.source_slice_pitch = source.view.slice_pitch;
  return append(list, events, [&] { return CopyImageCommand{Ref<Image>(), Ref<Image>(&source), region}; });
}

ze_result_t copyFromMemory(CommandList& list, Image& destination, const void* source, const ze_image_region_t* where,
                           uint32_t row_pitch, uint32_t slice_pitch, const EventHandles& events) {
  Box box;
  if (ze_result_t result = boxOf(events.call, destination, where, box))
    return result;
  CopyRegionCommand region = regionOf(destination.view, box);
  Pitches pitches;
  if (ze_result_t result = pitchesOf(events.call, region, row_pitch, slice_pitch, pitches))
    return result;
  region.destination = texelsAt(destination, box);
  region.destination_pitch = destination.view.row_pitch;
  region.destination_slice_pitch = destination.view.slice_pitch;
  region.source = static_cast<const std::byte*>(source);
  region.source_pitch = pitches.row;
  region.source_slice_pitch = pitches.slice;
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
  CopyRegionCommand region = regionOf(source.view, from);
  region.destination = texelsAt(destination, to);
  region.destination_pitch = destination.view.row_pitch;
  region.destination_slice_pitch = destination.view.slice_pitch;
  region.source = texelsAt(source, from);
  region.source_pitch = source.view.row_pitch;
  region.source_slice_pitch = source.view.slice_pitch;
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
