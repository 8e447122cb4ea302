// AMX's tiles as our own loops use them. oneDNN configures them for each of its calls, and so do we.
#pragma once

#include <cstdint>
#include <immintrin.h>

#include "runtime/primitives/simd/cpu_isa.h"

namespace zefuse::primitives {

// A tile of sums is 16 x 16 f32, one of factors 16 rows of 32 bf16; of the right side two rows lie side by side:
// [16][16][2].
constexpr int64_t tile_rows = 16, tile_depth = 32, tile_sums = 16 * tile_rows, tile_factors = tile_depth * tile_rows;

// Whether this processor has tiles of bf16, and ONEDNN_MAX_CPU_ISA allows them. oneDNN asks the system to let us use
// them.
inline bool tilesAvailable() {
  static const bool there = hasIsa(dnnl_cpu_isa_avx512_core_amx);
  return there;
}

struct alignas(64) TileConfiguration {
  uint8_t palette = 1, start = 0, reserved[14] = {};
  uint16_t bytes_of_row[16] = {};
  uint8_t rows[16] = {};
};

// Of the calling thread. The tiles in `of_left`, a bit each, have this many rows, the others 16.
[[gnu::target("amx-tile"), gnu::noinline]] inline void configureTiles(int64_t rows, unsigned of_left) {
  TileConfiguration configuration;
  for (int tile = 0; tile < 8; ++tile) {
    configuration.bytes_of_row[tile] = 64;
    configuration.rows[tile] = uint8_t(of_left >> tile & 1 ? rows : tile_rows);
  }
  _tile_loadconfig(&configuration);
}

[[gnu::target("amx-tile"), gnu::noinline]] inline void releaseTiles() { _tile_release(); }

}  // namespace zefuse::primitives
