// Placement of buffers in one block of memory by their lifetimes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace zefuse::executor {

constexpr size_t arena_alignment = 64;

struct ArenaBuffer {
  size_t bytes;
  uint32_t first_step, last_step;  // inclusive
};

struct ArenaLayout {
  std::vector<size_t> offsets;  // multiples of arena_alignment, one per buffer
  size_t bytes = 0;
};

// First fit, largest buffer first: buffers whose lifetimes meet never overlap. Deterministic. The
// sum of all sizes must be below 2^62.
ArenaLayout placeBuffers(std::span<const ArenaBuffer> buffers);

}  // namespace zefuse::executor
