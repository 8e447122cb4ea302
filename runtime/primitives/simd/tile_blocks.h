// Products of bf16 in blocks of 32 x 32 sums of AMX's tiles, what lays their factors out, and the exponentials between
// them. For processors with tiles alone (amx_tiles.h, tilesAvailable).
#pragma once

#include <cstddef>
#include <cstdint>
#include <immintrin.h>

#include "runtime/primitives/simd/amx_tiles.h"

#define ZEFUSE_TILES [[gnu::target("arch=x86-64-v4,avx512bf16,amx-tile,amx-bf16")]]

namespace zefuse::primitives {

constexpr int64_t tile_block = 32;  // two tiles of sums high and wide: each factor is loaded once for two products

constexpr float log2_e = 1.44269504f;

// Which of 16 or 32 places the first `count` are, of which there may be none.
inline __mmask16 firstOf16(int64_t count) {
  return __mmask16(count >= 16 ? 0xffffu : count > 0 ? (1u << count) - 1 : 0);
}
inline __mmask32 firstOf32(int64_t count) { return count >= 32 ? ~0u : count > 0 ? (1u << count) - 1 : 0; }

inline int64_t toBlocks(int64_t count) { return (count + tile_block - 1) / tile_block * tile_block; }

enum class Sums : uint8_t { fresh, added };

// sums [32, 32] = left [32, depth] @ right, or are added to: tiles of `right` for its first 16 columns, then
// `right_step` behind for the others.
template <Sums sums_are>
ZEFUSE_TILES inline void multiplyBlock(const __bf16* left, int64_t left_row, const __bf16* right, int64_t right_step,
                                       int64_t depth, float* sums, int64_t sums_row) {
  const int64_t left_bytes = left_row * 2, sums_bytes = sums_row * 4;
  float* lower = sums + tile_rows * sums_row;
  if constexpr (sums_are == Sums::fresh) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  } else {
    _tile_loadd(0, sums, sums_bytes);
    _tile_loadd(1, sums + 16, sums_bytes);
    _tile_loadd(2, lower, sums_bytes);
    _tile_loadd(3, lower + 16, sums_bytes);
  }
  for (int64_t k = 0; k < depth; k += tile_depth, right += tile_factors) {
    _tile_loadd(4, left + k, left_bytes);
    _tile_loadd(6, right, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, right + right_step, 64);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, left + tile_rows * left_row + k, left_bytes);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, sums, sums_bytes);
  _tile_stored(1, sums + 16, sums_bytes);
  _tile_stored(2, lower, sums_bytes);
  _tile_stored(3, lower + 16, sums_bytes);
}

// sums [rows, columns] = left [rows, depth] @ right [depth, columns], or are added to; all in whole blocks, the right
// side in tiles, column by column of them.
template <Sums sums_are>
ZEFUSE_TILES inline void multiplyBlocks(const __bf16* left, int64_t left_row, const __bf16* right, int64_t right_depth,
                                        int64_t rows, int64_t columns, int64_t depth, float* sums, int64_t sums_row) {
  for (int64_t n = 0; n < columns; n += tile_block)
    for (int64_t row = 0; row < rows; row += tile_block)
      multiplyBlock<sums_are>(left + row * left_row, left_row, right + n * right_depth, 16 * right_depth, depth,
                              sums + row * sums_row + n, sums_row);
}

// 2^x, relative error below 5e-5: what is made of it is rounded to bf16. x at most 0 or little above, but for NaN,
// which stays.
ZEFUSE_TILES inline __m512 powerOfTwo(__m512 x) {
  x = _mm512_max_ps(_mm512_set1_ps(-127.f), x);
  const __m512 whole = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m512 r = _mm512_sub_ps(x, whole);
  __m512 p = _mm512_set1_ps(9.61812911e-3f);
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(5.55041087e-2f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(2.40226507e-1f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(6.93147182e-1f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.f));
  return _mm512_scalef_ps(p, whole);
}

// 16 columns of two rows of a right side, side by side.
ZEFUSE_TILES inline __m512i interleaved(__m256i even, __m256i odd) {
  return _mm512_or_si512(_mm512_cvtepu16_epi32(even), _mm512_slli_epi32(_mm512_cvtepu16_epi32(odd), 16));
}

// Rows [count, width] of bf16, so many elements apart, as a right side of whole blocks whose depth are the rows.
ZEFUSE_TILES inline void packRows(const __bf16* from, int64_t from_row, int64_t count, int64_t width, __bf16* to) {
  const int64_t depth = toBlocks(count), columns = toBlocks(width);
  for (int64_t n = 0; n < columns; n += 16) {
    const __mmask16 there = firstOf16(width - n);
    for (int64_t k = 0; k < depth; k += 2, to += 32) {
      const __bf16* even = from + k * from_row + n;
      const __m256i low = k < count ? _mm256_maskz_loadu_epi16(there, even) : _mm256_setzero_si256();
      const __m256i high = k + 1 < count ? _mm256_maskz_loadu_epi16(there, even + from_row) : _mm256_setzero_si256();
      _mm512_storeu_si512(to, interleaved(low, high));
    }
  }
}

// rows[i][j] and rows[j][i] change places; 32 bits each.
ZEFUSE_TILES inline void transpose16(__m512i rows[16]) {
  __m512i pairs[16];
  for (int i = 0; i < 16; i += 2) {
    pairs[i] = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
    pairs[i + 1] = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
  }
  __m512i fours[16];  // fours[4 * i + j]: of rows 4 i to 4 i + 3 column j of each quarter
  for (int i = 0; i < 16; i += 4) {
    fours[i] = _mm512_unpacklo_epi64(pairs[i], pairs[i + 2]);
    fours[i + 1] = _mm512_unpackhi_epi64(pairs[i], pairs[i + 2]);
    fours[i + 2] = _mm512_unpacklo_epi64(pairs[i + 1], pairs[i + 3]);
    fours[i + 3] = _mm512_unpackhi_epi64(pairs[i + 1], pairs[i + 3]);
  }
  for (int j = 0; j < 4; ++j) {
    const __m512i even_low = _mm512_shuffle_i32x4(fours[j], fours[4 + j], 0x88);
    const __m512i odd_low = _mm512_shuffle_i32x4(fours[j], fours[4 + j], 0xdd);
    const __m512i even_high = _mm512_shuffle_i32x4(fours[8 + j], fours[12 + j], 0x88);
    const __m512i odd_high = _mm512_shuffle_i32x4(fours[8 + j], fours[12 + j], 0xdd);
    rows[j] = _mm512_shuffle_i32x4(even_low, even_high, 0x88);
    rows[4 + j] = _mm512_shuffle_i32x4(odd_low, odd_high, 0x88);
    rows[8 + j] = _mm512_shuffle_i32x4(even_low, even_high, 0xdd);
    rows[12 + j] = _mm512_shuffle_i32x4(odd_low, odd_high, 0xdd);
  }
}

// Rows [count, depth] of bf16 as a right side of whole blocks whose columns are the rows: their transpose.
ZEFUSE_TILES inline void packTransposed(const __bf16* from, int64_t from_row, int64_t count, int64_t depth,
                                        __bf16* to) {
  for (int64_t n = 0; n < toBlocks(count); n += 16)
    for (int64_t k = 0; k < depth; k += tile_depth, to += tile_factors) {
      const __mmask32 there = firstOf32(depth - k);
      __m512i pairs[16];
      for (int64_t i = 0; i < 16; ++i)
        pairs[i] =
            n + i < count ? _mm512_maskz_loadu_epi16(there, from + (n + i) * from_row + k) : _mm512_setzero_si512();
      transpose16(pairs);
      for (int64_t i = 0; i < 16; ++i)
        _mm512_storeu_si512(to + i * 32, pairs[i]);
    }
}

}  // namespace zefuse::primitives
