// The loops over the steps of an LSTM whose input is multiplied with it, in AMX's tiles.
#pragma once

#include "runtime/primitives/simd/amx_tiles.h"
#include "runtime/recurrence/levels.h"
#include "runtime/recurrence/steps.h"
#include "runtime/recurrence/tile_pipeline.h"
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
    constexpr int64_t tile = primitives::tile_factors;
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

// A step, as runBlocks() asks for it.
struct TileStep {
  const Sequence& s;
  int64_t n, t;

  TileProduct product(const BlockOfGroups& of, float* sums) const {
    const int64_t depth = s.tiles.depth;
    TileProduct product;
    product.of_input = inputFactors(s, t, of.from, of.block);
    product.of_state = {s.tiles.at(n, of.from), depth, depth, s.tiles.packed + of.block * depth * 4 * tile_rows};
    product.second = of.second;
    product.sums = sums;
    return product;
  }
  [[ZEFUSE_TILE_LEVEL, gnu::always_inline]] void formula(int64_t b, int64_t count, int64_t block,
                                                         const float* sums) const {
    tileOf<16, 2, true>(s, t, b, block, count, sums);
  }
};

[[ZEFUSE_TILE_LEVEL, gnu::noinline]] inline void runLayerInTiles(const Sequence& s, const Share& share) {
  const RowGroups groups(share);
  primitives::configureTiles(groups.rows, 0b111111);  // 0 to 3: sums, 4 and 5: left, 6 and 7: right
  for (int64_t n = 0; n < s.steps; ++n) {
    if (share.meeting && n > 0)
      share.meeting->wait(share.parts, n);
    runBlocks(TileStep{s, n, s.step(n)}, groups, share);
  }
  primitives::releaseTiles();
}

}  // namespace zefuse::recurrence
