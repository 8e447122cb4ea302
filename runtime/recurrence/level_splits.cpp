#include "runtime/primitives/matmul/split_blocks.h"
#include "runtime/recurrence/layer_splits.h"
#include "runtime/recurrence/levels.h"

namespace zefuse::recurrence {

[[ZEFUSE_TILE_LEVEL]] void runSplits(const Sequence& sequence, const Share& share) {
  runLayerInSplits(sequence, share);
}

[[ZEFUSE_TILE_LEVEL]] void packSplits(const float* weight, int64_t units, int64_t depth, uint16_t* packed) {
  constexpr int64_t square = 16, pairs = square / 2 * tile_depth;
  __mmask16 beyond = 0;
  for (int64_t unit = 0; unit < units; unit += tile_rows)
    for (int64_t from = 0; from < depth; from += tile_depth)
      for (int64_t gate = 0; gate < 4; ++gate, packed += primitives::split_tile) {
        const primitives::MatrixView transposed{weight + (gate * units + unit) * depth, 1, depth, depth, units - unit};
        beyond |= primitives::splitSquare<true>(transposed.from(from, 0), packed);
        beyond |= primitives::splitSquare<true>(transposed.from(from + square, 0), packed + pairs);
      }
  std::fill_n(packed, tile_depth, uint16_t(0));
  packed[0] = uint16_t(beyond != 0);
}

}  // namespace zefuse::recurrence
