// Placement of buffers in one block of memory by their lifetimes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/base/buffer_alignment.h"

namespace zefuse::executor {

constexpr size_t arena_alignment = buffer_alignment;

struct ArenaBuffer {
  size_t bytes;
  uint32_t first_step, last_step;  // inclusive
};

struct ArenaLayout {
  std::vector<size_t> offsets;  // multiples of arena_alignment, one per buffer
  size_t bytes = 0;
};

// First fit, largest buffer first: buffers whose lifetimes meet never overlap. An empty one starts where the block
// does: its address is passed on, and behind the last buffer it would lie in no allocation. Deterministic. The sum of
// all sizes must be below 2^62. Above `first_fit_most` buffers, more than any model's, best fit in the order of time:
// it packs less well, and takes n log n where first fit takes n^2.
constexpr size_t first_fit_most = 1 << 14;
ArenaLayout placeBuffers(std::span<const ArenaBuffer> buffers);

}  // namespace zefuse::executor
