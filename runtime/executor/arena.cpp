#include "runtime/executor/arena.h"

#include <algorithm>
#include <numeric>

namespace zefuse::executor {

ArenaLayout placeBuffers(std::span<const ArenaBuffer> buffers) {
  auto aligned = [](size_t bytes) { return (bytes + arena_alignment - 1) / arena_alignment * arena_alignment; };
  std::vector<size_t> order(buffers.size());
  std::iota(order.begin(), order.end(), size_t(0));
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return buffers[a].bytes != buffers[b].bytes ? buffers[a].bytes > buffers[b].bytes : a < b;
  });

  ArenaLayout layout;
  layout.offsets.assign(buffers.size(), 0);
  std::vector<size_t> placed;  // by offset
  for (size_t index : order) {
    const ArenaBuffer& buffer = buffers[index];
    size_t offset = 0;
    for (size_t other : placed) {
      const ArenaBuffer& neighbour = buffers[other];
      if (neighbour.last_step < buffer.first_step || buffer.last_step < neighbour.first_step)
        continue;
      if (layout.offsets[other] >= offset + aligned(buffer.bytes))
        break;
      offset = std::max(offset, layout.offsets[other] + aligned(neighbour.bytes));
    }
    layout.offsets[index] = offset;
    layout.bytes = std::max(layout.bytes, offset + aligned(buffer.bytes));
    placed.insert(std::upper_bound(placed.begin(), placed.end(), offset,
                                   [&](size_t value, size_t at) { return value < layout.offsets[at]; }),
                  index);
  }
  return layout;
}

}  // namespace zefuse::executor
