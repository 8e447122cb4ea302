// The loops over the steps of an LSTM whose input is multiplied with it, in AMX's tiles: while the formula of one block
// of units and up to 32 rows goes on, the tiles multiply the next. Nothing of the gates is written farther away than
// the nearest cache, and both take about as long.
#pragma once

#include "runtime/onednn/amx_tiles.h"
#include "runtime/recurrence/levels.h"
#include "runtime/recurrence/steps.h"
#include "runtime/recurrence/tiles.h"

namespace zefuse::recurrence {

// The sums of a block's four gates for one or two groups of rows, two gates at a time: each tile of the weight is read
// once for both groups.
struct TileProduct {
  Factors of_input, of_state;
  int64_t second = 0;  // rows from the first group to the second; 0: there is one
  float* sums = nullptr;
  int64_t gates = 0, k = 0;  // where it is

  // Parts of it, all in all.
  int64_t parts() const { return 2 * (of_input.depth + of_state.depth) / tile_depth; }

  // The next `count` parts.
  [[gnu::target("amx-tile,amx-bf16"), gnu::always_inline]] inline void advance(int64_t count) {
    constexpr int64_t tile = onednn::tile_factors;
    const int64_t depth = of_input.depth + of_state.depth;
    for (; count > 0 && gates < 4; --count) {
      const bool input = k < of_input.depth;
      const Factors& factors = input ? of_input : of_state;
      const int64_t from = input ? k : k - of_input.depth, stride = factors.stride * int64_t(sizeof(__bf16));
      const __bf16* left = factors.left + from;
      const uint16_t* packed = factors.packed + (from / tile_depth * 4 + gates) * tile;
      if (k == 0) {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
      }
      _tile_loadd(4, left, stride);
      _tile_loadd(6, packed, 64);
      _tile_dpbf16ps(0, 4, 6);
      _tile_loadd(7, packed + tile, 64);
      _tile_dpbf16ps(1, 4, 7);
      if (second > 0) {
        _tile_loadd(5, left + second * factors.stride, stride);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
      }
      k += tile_depth;
      if (k < depth)
        continue;
      float* to = sums + gates * tile_sums;
      _tile_stored(0, to, 64);
      _tile_stored(1, to + tile_sums, 64);
      if (second > 0) {
        _tile_stored(2, to + 4 * tile_sums, 64);
        _tile_stored(3, to + 5 * tile_sums, 64);
      }
      gates += 2;
      k = 0;
    }
  }
};

[[ZEFUSE_TILE_LEVEL, gnu::noinline]] inline void runLayerInTiles(const Sequence& s, const Share& share) {
  // Groups of one size, as in runStepsInTiles.
  const int64_t count = share.last_row - share.first_row, groups = (count + tile_rows - 1) / tile_rows;
  const int64_t rows = (count + groups - 1) / groups, pairs = (groups + 1) / 2;
  const int64_t blocks = share.last_block - share.first_block, depth = s.tiles.depth;
  alignas(64) float sums[2][8 * tile_sums];
  onednn::configureTiles(rows, 0b111111);  // 0 to 3: sums, 4 and 5: left, 6 and 7: right
  auto begins = [&](int64_t group) { return std::min(share.first_row + group * rows, share.last_row - rows); };
  for (int64_t n = 0; n < s.steps; ++n) {
    const int64_t t = s.step(n);
    if (share.meeting && n > 0)
      share.meeting->wait(share.parts, n);
    auto product = [&](int64_t number) {  // blocks, and in each the pairs of groups
      const int64_t block = share.first_block + number / pairs, group = number % pairs * 2;
      const int64_t from = begins(group);
      TileProduct product;
      product.of_input = inputFactors(s, t, from, block);
      product.of_state = {s.tiles.at(n, from), depth, depth, s.tiles.packed + block * depth * 4 * tile_rows};
      product.second = group + 1 < groups ? begins(group + 1) - from : 0;
      product.sums = sums[number & 1];
      return product;
    };
    TileProduct next = product(0);
    next.advance(next.parts());
    for (int64_t number = 0; number < blocks * pairs; ++number) {
      const bool last = number + 1 == blocks * pairs;
      if (!last)
        next = product(number + 1);
      const int64_t block = share.first_block + number / pairs;
      for (int64_t group = number % pairs * 2, half = 0; half < 2 && group < groups; ++group, ++half) {
        const int64_t begin = share.first_row + group * rows, end = std::min(begin + rows, share.last_row);
        const float* of_group = sums[number & 1] + half * 4 * tile_sums;
        const int64_t each = (next.parts() + rows - 1) / rows;  // a formula of two rows of 2 * rows
        for (int64_t b = begin; b < end; b += 2) {
          if (!last)
            next.advance(each);
          tileOf<16, 2, true>(s, t, b, block, end - b, of_group + (b - begins(group)) * tile_rows);
        }
      }
      if (!last)
        next.advance(next.parts());
    }
  }
  onednn::releaseTiles();
}

}  // namespace zefuse::recurrence
