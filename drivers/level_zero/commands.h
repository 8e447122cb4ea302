// Commands that are the same in every driver: what a list records of an append, with addresses and sizes worked out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "drivers/level_zero/handle.h"

namespace zefuse::level_zero {

inline constexpr size_t kMaxFillPatternBytes = 128;

struct CopyCommand {
  void* destination;
  const void* source;
  size_t bytes;
};

// `pattern` is repeated; a shorter rest at the end gets the pattern's beginning.
struct FillCommand {
  void* destination;
  size_t bytes;
  size_t pattern_bytes;
  std::byte pattern[kMaxFillPatternBytes];
};

struct CopyRegionCommand {
  std::byte* destination;  // at the region's origin
  const std::byte* source;
  size_t width, height, depth;
  size_t destination_pitch, destination_slice_pitch, source_pitch, source_slice_pitch;

  // From the origin to the end of the last row; 0: nothing is copied.
  size_t destinationBytes() const { return bytesOf(destination_pitch, destination_slice_pitch); }
  size_t sourceBytes() const { return bytesOf(source_pitch, source_slice_pitch); }

private:
  size_t bytesOf(size_t pitch, size_t slice_pitch) const {
    return width == 0 || height == 0 ? 0 : (depth - 1) * slice_pitch + (height - 1) * pitch + width;
  }
};

struct BarrierCommand {};  // waits and signals only

struct WriteTimestampCommand {
  uint64_t* destination;
};

template <typename Event> struct ResetEvent {
  Ref<Event> event;
};

template <typename Event> struct QueryTimestamps {
  std::vector<Ref<Event>> events;
  std::byte* destination;
  std::vector<size_t> offsets;  // of each event's ze_kernel_timestamp_result_t
};

}  // namespace zefuse::level_zero
