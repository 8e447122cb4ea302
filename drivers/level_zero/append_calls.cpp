#include "drivers/level_zero/append_calls.h"

namespace zefuse::level_zero {
namespace {

struct Side {
  size_t pitch, slice_pitch, origin;
};

Side sideOf(const ze_copy_region_t& region, uint32_t pitch, uint32_t slice_pitch) {
  Side side;
  side.pitch = pitch ? pitch : region.width;
  side.slice_pitch = slice_pitch ? slice_pitch : side.pitch * region.height;
  side.origin = region.originX + region.originY * side.pitch + region.originZ * side.slice_pitch;
  return side;
}

}  // namespace

ze_result_t makeCopyRegion(const char* call, void* destination, const ze_copy_region_t& destination_region,
                           uint32_t destination_pitch, uint32_t destination_slice_pitch, const void* source,
                           const ze_copy_region_t& source_region, uint32_t source_pitch, uint32_t source_slice_pitch,
                           CopyRegionCommand& out) {
  const ze_copy_region_t &to = destination_region, &from = source_region;
  if (to.width != from.width || to.height != from.height || to.depth != from.depth)
    return refuse(ZE_RESULT_ERROR_INVALID_SIZE, "%s: regions of %u x %u x %u and %u x %u x %u", call, to.width,
                  to.height, to.depth, from.width, from.height, from.depth);
  const Side destination_side = sideOf(to, destination_pitch, destination_slice_pitch);
  const Side source_side = sideOf(from, source_pitch, source_slice_pitch);
  out.width = from.width;
  out.height = from.height;
  out.depth = std::max(from.depth, 1u);
  out.destination_pitch = destination_side.pitch;
  out.destination_slice_pitch = destination_side.slice_pitch;
  out.source_pitch = source_side.pitch;
  out.source_slice_pitch = source_side.slice_pitch;
  out.destination = static_cast<std::byte*>(destination) + destination_side.origin;
  out.source = static_cast<const std::byte*>(source) + source_side.origin;
  return ZE_RESULT_SUCCESS;
}

}  // namespace zefuse::level_zero
