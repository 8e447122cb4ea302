// The loops over the steps of a recurrent layer whose weight is multiplied in AMX's tiles: a block of units for up to
// 16 rows of the batch, 32 units of the hidden state at a time. The cell's formula is that of steps.h.
#pragma once

#include "runtime/onednn/amx_tiles.h"
#include "runtime/recurrence/steps.h"

namespace zefuse::recurrence {

using onednn::tile_depth, onednn::tile_rows, onednn::tile_sums;

// product [vectors, 16, 16] = left [rows, depth] @ a block of the packed weight
template <int vectors>
[[gnu::target("amx-tile,amx-bf16"), gnu::noinline]] void multiplyTiles(const __bf16* left, int64_t depth,
                                                                       const uint16_t* packed, float* product) {
  constexpr int64_t tile = onednn::tile_factors;
  const int64_t stride = depth * int64_t(sizeof(__bf16));
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  if constexpr (vectors > 3)
    _tile_zero(3);
  for (int64_t k = 0; k < depth; k += tile_depth, packed += vectors * tile) {
    _tile_loadd(4, left + k, stride);
    _tile_loadd(5, packed, 64);
    _tile_dpbf16ps(0, 4, 5);
    _tile_loadd(6, packed + tile, 64);
    _tile_dpbf16ps(1, 4, 6);
    _tile_loadd(7, packed + 2 * tile, 64);
    _tile_dpbf16ps(2, 4, 7);
    if constexpr (vectors > 3) {
      _tile_loadd(5, packed + 3 * tile, 64);
      _tile_dpbf16ps(3, 4, 5);
    }
  }
  _tile_stored(0, product, 64);
  _tile_stored(1, product + tile_sums, 64);
  _tile_stored(2, product + 2 * tile_sums, 64);
  if constexpr (vectors > 3)
    _tile_stored(3, product + 3 * tile_sums, 64);
}

[[gnu::always_inline]] inline void runStepsInTiles(const Sequence& s, const Share& share) {
  const int vectors = s.cell == plan::RecurrentCell::gru ? 3 : 4;
  const int64_t depth = s.tiles.depth, block_size = depth * vectors * tile_rows;
  // Groups of one size: the last one begins among rows of the one before, whose products are not used again.
  const int64_t count = share.last_row - share.first_row, groups = (count + tile_rows - 1) / tile_rows;
  const int64_t rows = (count + groups - 1) / groups;
  alignas(64) float product[4 * tile_sums];
  onednn::configureTiles(rows, 0b11111);  // 0 to 3: sums, 4: left, 5 to 7: right
  for (int64_t n = 0; n < s.steps; ++n) {
    const int64_t t = s.step(n);
    if (share.meeting && n > 0)
      share.meeting->wait(share.parts, n);
    for (int64_t block = share.first_block; block < share.last_block; ++block)
      for (int64_t group = 0; group < groups; ++group) {
        const int64_t begin = share.first_row + group * rows, end = std::min(begin + rows, share.last_row);
        const int64_t from = std::min(begin, share.last_row - rows);
        const uint16_t* packed = s.tiles.packed + block * block_size;
        if (vectors == 3)
          multiplyTiles<3>(s.tiles.at(n, from), depth, packed, product);
        else
          multiplyTiles<4>(s.tiles.at(n, from), depth, packed, product);
        for (int64_t b = begin; b < end; b += 2)
          tileOf<16, 2, true>(s, t, b, block, end - b, product + (b - from) * 16);
      }
  }
  onednn::releaseTiles();
}

}  // namespace zefuse::recurrence
