// The loops over the steps of a recurrent layer whose weight is multiplied as bf16: a block of units for up to 16 rows
// of the batch, in AMX's tiles, or in pairs by AVX-512's instructions. The cell's formula is that of steps.h.
#pragma once

#include "runtime/primitives/simd/amx_tiles.h"
#include "runtime/recurrence/levels.h"
#include "runtime/recurrence/steps.h"

namespace zefuse::recurrence {

using primitives::tile_depth, primitives::tile_rows, primitives::tile_sums;

// Rows of bf16, `stride` apart, and the block of a packed weight that they are multiplied with.
struct Factors {
  const __bf16* left;
  int64_t stride, depth;
  const uint16_t* packed;
};

// sums += left @ packed
template <int vectors>
[[gnu::target("amx-tile,amx-bf16"), gnu::always_inline]] inline void addTiles(const Factors& factors) {
  constexpr int64_t tile = primitives::tile_factors;
  const int64_t stride = factors.stride * int64_t(sizeof(__bf16));
  const uint16_t* packed = factors.packed;
  for (int64_t k = 0; k < factors.depth; k += tile_depth, packed += vectors * tile) {
    _tile_loadd(4, factors.left + k, stride);
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
}

// product [vectors, 16, 16] = of the input, if there is one, and of the state: left [rows, depth] @ packed
template <int vectors>
[[gnu::target("amx-tile,amx-bf16"), gnu::noinline]] void multiplyTiles(const Factors& of_input, const Factors& of_state,
                                                                       float* product) {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  if constexpr (vectors > 3)
    _tile_zero(3);
  addTiles<vectors>(of_input);
  addTiles<vectors>(of_state);
  _tile_stored(0, product, 64);
  _tile_stored(1, product + tile_sums, 64);
  _tile_stored(2, product + 2 * tile_sums, 64);
  if constexpr (vectors > 3)
    _tile_stored(3, product + 3 * tile_sums, 64);
}

// product [vectors, 16, 16] += `rows` rows of left @ some of a block of the packed weight; `first`: = instead of +=.
// Fetches what lies `ahead` numbers behind it, if that is not zero.
template <int vectors, int rows, bool fetches>
[[ZEFUSE_PAIRS, gnu::always_inline]] inline void multiplyPairs(const __bf16* left, int64_t stride, int64_t depth,
                                                               const uint16_t* packed, float* product, bool first,
                                                               int64_t ahead) {
  constexpr int64_t vector = 2 * tile_rows;
  __m512 sums[rows][vectors];
#pragma clang loop unroll(full)
  for (int r = 0; r < rows; ++r)
#pragma clang loop unroll(full)
    for (int v = 0; v < vectors; ++v)
      sums[r][v] = first ? _mm512_setzero_ps() : _mm512_loadu_ps(product + v * tile_sums + r * tile_rows);
  for (int64_t k = 0; k < depth; k += 2, packed += vectors * vector) {
    __m512bh x[rows];
#pragma clang loop unroll(full)
    for (int r = 0; r < rows; ++r) {
      int32_t both;
      __builtin_memcpy(&both, left + r * stride + k, sizeof(both));
      x[r] = (__m512bh)_mm512_set1_epi32(both);
    }
#pragma clang loop unroll(full)
    for (int v = 0; v < vectors; ++v) {
      const auto right = (__m512bh)_mm512_loadu_si512(packed + v * vector);
      if constexpr (fetches)
        __builtin_prefetch(packed + v * vector + ahead);
#pragma clang loop unroll(full)
      for (int r = 0; r < rows; ++r)
        sums[r][v] = _mm512_dpbf16_ps(sums[r][v], x[r], right);
    }
  }
#pragma clang loop unroll(full)
  for (int r = 0; r < rows; ++r)
#pragma clang loop unroll(full)
    for (int v = 0; v < vectors; ++v)
      _mm512_storeu_ps(product + v * tile_sums + r * tile_rows, sums[r][v]);
}

template <int vectors, int rows>
[[ZEFUSE_PAIRS, gnu::always_inline]] inline void multiplyPairsOf(int64_t wanted, int64_t ahead, const __bf16* left,
                                                                 int64_t stride, int64_t depth, const uint16_t* packed,
                                                                 float* product, bool first) {
  if constexpr (rows > 1) {
    if (wanted < rows)
      return multiplyPairsOf<vectors, rows - 1>(wanted, ahead, left, stride, depth, packed, product, first);
  }
  if (ahead)
    multiplyPairs<vectors, rows, true>(left, stride, depth, packed, product, first, ahead);
  else
    multiplyPairs<vectors, rows, false>(left, stride, depth, packed, product, first, 0);
}

// product [vectors, 16, 16] = left [rows, depth] @ packed, `adds`: += it. Rows whose sums do not fit into the registers
// at once go by pieces of the weight, as in `units`; fewer read it but once, in a stream.
template <int vectors>
[[ZEFUSE_PAIRS, gnu::noinline]] void multiplyPairs(const Factors& factors, int64_t rows, float* product, bool adds) {
  constexpr int64_t most = 6, stream = 2048;
  const auto [left, stride, depth, weight] = factors;
  const uint16_t* packed = weight;
  const int64_t parts = (rows + most - 1) / most, piece = parts > 1 ? 4 * tile_depth : 8 * tile_depth;
  for (int64_t k = 0; k < depth; k += piece, packed += piece * vectors * tile_rows) {
    const int64_t count = std::min(piece, depth - k), next = parts > 1 ? count * vectors * tile_rows : stream;
    for (int64_t part = 0; part < parts; ++part) {
      const int64_t from = rows * part / parts, to = rows * (part + 1) / parts;
      multiplyPairsOf<vectors, most>(to - from, part + 1 == parts ? next : 0, left + from * stride + k, stride, count,
                                     packed, product + from * tile_rows, k == 0 && !adds);
    }
  }
}

// A layer's input at a step; nothing where there are gates instead.
[[gnu::always_inline]] inline Factors inputFactors(const Sequence& s, int64_t t, int64_t b, int64_t block) {
  const Tiles& tiles = s.tiles;
  if (!tiles.input)
    return {};
  return {tiles.input + t * tiles.input_step + b * tiles.input_row, tiles.input_row, tiles.input_depth,
          tiles.packed_input + block * tiles.input_depth * 4 * tile_rows};
}

template <bool amx> [[gnu::always_inline]] inline void runStepsInTiles(const Sequence& s, const Share& share) {
  const int vectors = s.cell == plan::RecurrentCell::gru ? 3 : 4;
  const int64_t depth = s.tiles.depth, block_size = depth * vectors * tile_rows;
  // Groups of one size, which tiles are configured for: the last one begins among rows of the one before, whose
  // products are not used again. So are not those of a packed sequence's rows that a step does not have.
  const int64_t count = share.last_row - share.first_row, groups = (count + tile_rows - 1) / tile_rows;
  const int64_t rows = (count + groups - 1) / groups;
  alignas(64) float product[4 * tile_sums];
  auto multiply = [&](auto of, const Factors& of_input, const Factors& of_state, int64_t wanted) {
    if constexpr (amx) {
      multiplyTiles<of>(of_input, of_state, product);
    } else {
      if (of_input.depth > 0)
        multiplyPairs<of>(of_input, wanted, product, false);
      multiplyPairs<of>(of_state, wanted, product, of_input.depth > 0);
    }
  };
  int64_t met = 0;
  if constexpr (amx)
    primitives::configureTiles(rows, 0b11111);  // 0 to 3: sums, 4: left, 5 to 7: right
  for (int64_t n = 0; n < s.steps; ++n) {
    const int64_t t = s.step(n);
    if (share.meeting && n > 0)
      share.meeting->wait(share.parts, ++met);
    const int64_t last_row = std::min(share.last_row, s.rowsOf(t));
    for (int64_t block = share.first_block; block < share.last_block; ++block)
      for (int64_t begin = share.first_row; begin < last_row; begin += rows) {
        const int64_t end = std::min(begin + rows, last_row),
                      from = amx ? std::min(begin, share.last_row - rows) : begin;
        const Factors of_input = inputFactors(s, t, from, block),
                      of_state{s.tiles.at(n, from), depth, depth, s.tiles.packed + block * block_size};
        if (vectors == 3) {
          fetchAhead<16, 3>(s, t, begin, end, block, 0, 1);
          multiply(std::integral_constant<int, 3>(), of_input, of_state, end - from);
        } else {
          fetchAhead<16, 4>(s, t, begin, end, block, 0, 1);
          multiply(std::integral_constant<int, 4>(), of_input, of_state, end - from);
        }
        for (int64_t b = begin; b < end; b += 2)
          tileOf<16, 2, true>(s, t, b, block, end - b, product + (b - from) * 16);
      }
    if (!s.projected)
      continue;
    if (share.meeting)
      share.meeting->wait(share.parts, ++met);
    const int64_t width = s.tiles.unprojected_depth;
    for (int64_t block = share.first_output; block < share.last_output; ++block)
      for (int64_t begin = share.first_row; begin < last_row; begin += rows) {
        const int64_t end = std::min(begin + rows, last_row),
                      from = amx ? std::min(begin, share.last_row - rows) : begin;
        multiply(std::integral_constant<int, 4>(), {},
                 {s.tiles.unprojected + from * width, width, width, s.tiles.projection + block * width * 4 * tile_rows},
                 end - from);
        for (int64_t b = begin; b < end; ++b)
          storeProjected<16, true>(s, t, b, block, product + (b - from) * 16);
      }
  }
  if constexpr (amx)
    primitives::releaseTiles();
}

}  // namespace zefuse::recurrence
