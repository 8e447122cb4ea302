// The loops over the steps of a recurrent layer's derivative whose weight is multiplied as bf16, in AMX's tiles or in
// pairs: the gradients of a step's products, rounded to bf16, times the weight are what it adds to the hidden state's
// gradient of the step before.
#pragma once

#include "runtime/recurrence/layer_tiles.h"

namespace zefuse::recurrence {

// sums [2, 4, 16, 16] = rows of the gradients, and as many from `second` rows further, if that is not zero, @ a block
[[gnu::target("amx-tile,amx-bf16"), gnu::noinline]] inline void multiplyTwice(const Factors& gradients, int64_t second,
                                                                              float* sums) {
  TileProduct product;
  product.of_input = {};
  product.of_state = gradients;
  product.second = second;
  product.sums = sums;
  product.advance(product.parts());
}

template <bool amx>
[[gnu::always_inline]] inline void multiplyGradients(const Factors& gradients, int64_t rows, int64_t second,
                                                     float* sums) {
  if constexpr (amx)
    return multiplyTwice(gradients, second, sums);
  multiplyPairs<4>(gradients, rows, sums, false);
  if (second == 0)
    return;
  Factors others = gradients;
  others.left += second * gradients.stride;
  multiplyPairs<4>(others, rows, sums + 4 * tile_sums, false);
}

template <bool amx> [[gnu::always_inline]] inline void runGradientInTiles(const Sequence& s, const Share& share) {
  // Groups of one size, as in runStepsInTiles; each tile of the weight is read once for two of them.
  const int64_t count = share.last_row - share.first_row, groups = (count + tile_rows - 1) / tile_rows;
  const int64_t rows = (count + groups - 1) / groups, depth = s.tiles.depth;
  auto begins = [&](int64_t group) { return std::min(share.first_row + group * rows, share.last_row - rows); };
  alignas(64) float sums[8 * tile_sums];
  if constexpr (amx)
    primitives::configureTiles(rows, 0b111111);  // 0 to 3: sums, 4 and 5: left, 6 and 7: right
  for (int64_t n = 0; n < s.steps; ++n) {
    const int64_t t = s.step(n), last_row = std::min(share.last_row, s.rowsOf(t));
    if (share.meeting) {  // a product reads the units of all
      gradientOfCells<16, true>(s, share, t, share.first_row, last_row);
      share.meeting->wait(share.parts, n + 1);
    }
    for (int64_t group = 0; group < groups; group += 2) {
      const int64_t first = share.first_row + group * rows, end = std::min(first + 2 * rows, last_row);
      if (first >= last_row)
        break;
      if (!share.meeting)
        gradientOfCells<16, true>(s, share, t, first, end);
      const int64_t from = begins(group), second = first + rows < end ? begins(group + 1) - from : 0;
      for (int64_t block = share.first_block; block < share.last_block; ++block) {
        const __bf16* left = s.multiplies_gates ? s.narrow_gates.at(t, from) : s.tiles.at(n, from);
        const int64_t stride = s.multiplies_gates ? s.narrow_gates.row : depth;
        multiplyGradients<amx>({left, stride, depth, s.tiles.packed + block * depth * 4 * tile_rows}, rows, second,
                               sums);
        for (int64_t half = 0; half < 2; ++half) {
          const int64_t begin = first + half * rows, stop = std::min(begin + rows, end);
          const float* of_group = sums + half * 4 * tile_sums;
          for (int64_t b = begin; b < stop; b += 2)
            tileOf<16, 2, true>(s, t, b, block, stop - b, of_group + (b - begins(group + half)) * tile_rows);
        }
      }
    }
  }
  if constexpr (amx)
    primitives::releaseTiles();
}

}  // namespace zefuse::recurrence
