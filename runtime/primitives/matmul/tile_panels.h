// Matrices laid out in AMX's tiles for products of large ones (tiled_matmul.h), and the product of two such strips.
#pragma once

#include <algorithm>
#include <cstdint>
#include <immintrin.h>
#include <type_traits>

#include "runtime/primitives/simd/tile_blocks.h"

namespace zefuse::primitives {

// Numbers as bf16; f32 is rounded.
ZEFUSE_TILES inline __m256i load16(const __bf16* from, __mmask16 there) {
  return _mm256_maskz_loadu_epi16(there, from);
}
ZEFUSE_TILES inline __m256i load16(const float* from, __mmask16 there) {
  return (__m256i)_mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(there, from));
}
ZEFUSE_TILES inline __m512i load32(const __bf16* from, __mmask32 there) {
  return _mm512_maskz_loadu_epi16(there, from);
}
ZEFUSE_TILES inline __m512i load32(const float* from, __mmask32 there) {
  return (__m512i)_mm512_cvtne2ps_pbh(_mm512_maskz_loadu_ps(__mmask16(there >> 16), from + 16),
                                      _mm512_maskz_loadu_ps(__mmask16(there), from));
}

// 32 lines of 8 numbers of bf16 turned: 8 rows of 32. Loads put lines 0, 8, 16 and 24 into the quarters of a vector,
// which the shuffles then need not do.
ZEFUSE_TILES inline void packTurned8(const __bf16* from, int64_t stride, __bf16* to) {
  auto quarter = [&](int64_t line) { return reinterpret_cast<const __m128i*>(from + line * stride); };
  __m512i lines[8], pairs[8], fours[8];
  for (int64_t i = 0; i < 8; ++i) {
    __m512i all = _mm512_castsi128_si512(_mm_loadu_si128(quarter(i)));
    all = _mm512_mask_broadcast_i32x4(all, 0x00f0, _mm_loadu_si128(quarter(i + 8)));
    all = _mm512_mask_broadcast_i32x4(all, 0x0f00, _mm_loadu_si128(quarter(i + 16)));
    lines[i] = _mm512_mask_broadcast_i32x4(all, 0xf000, _mm_loadu_si128(quarter(i + 24)));
  }
  for (int i = 0; i < 8; i += 2) {
    pairs[i] = _mm512_unpacklo_epi16(lines[i], lines[i + 1]);
    pairs[i + 1] = _mm512_unpackhi_epi16(lines[i], lines[i + 1]);
  }
  for (int i = 0; i < 8; i += 4)
    for (int half = 0; half < 2; ++half) {
      fours[i + 2 * half] = _mm512_unpacklo_epi32(pairs[i + half], pairs[i + 2 + half]);
      fours[i + 2 * half + 1] = _mm512_unpackhi_epi32(pairs[i + half], pairs[i + 2 + half]);
    }
  for (int64_t i = 0; i < 4; ++i) {
    _mm512_storeu_si512(to + 2 * i * 32, _mm512_unpacklo_epi64(fours[i], fours[4 + i]));
    _mm512_storeu_si512(to + (2 * i + 1) * 32, _mm512_unpackhi_epi64(fours[i], fours[4 + i]));
  }
}

// 32 lines of 32 numbers of bf16 as two tiles of a right side.
ZEFUSE_TILES inline void packPairs32(const __bf16* from, int64_t stride, __bf16* to, __bf16* next) {
  const __m512i low = _mm512_set_epi64(11, 10, 3, 2, 9, 8, 1, 0), high = _mm512_set_epi64(15, 14, 7, 6, 13, 12, 5, 4);
  for (int64_t i = 0; i < 16; ++i, from += 2 * stride) {
    const __m512i even = _mm512_loadu_si512(from), odd = _mm512_loadu_si512(from + stride);
    const __m512i first = _mm512_unpacklo_epi16(even, odd), second = _mm512_unpackhi_epi16(even, odd);
    _mm512_storeu_si512(to + i * 32, _mm512_permutex2var_epi64(first, low, second));
    _mm512_storeu_si512(next + i * 32, _mm512_permutex2var_epi64(first, high, second));
  }
}

enum class Side : uint8_t { left, right };
// Whether neighbours in memory follow each other along the products' sums, or across: along the rows of a left side,
// the columns of a right one.
enum class Contiguous : uint8_t { along, across };

// A matrix of `count` rows of a left side, or columns of a right one, that are `depth` long, in strips of 16; a strip
// is one tile after the other, and what is missing in the last ones is zero. `stride`: elements between the lines that
// are contiguous. A tile of a left side holds 16 rows of 32 numbers, of a right side 16 pairs of lines of 16 columns,
// so that one is the other with 32-bit pairs turned.
template <Side side, Contiguous contiguous, typename T>
ZEFUSE_TILES inline void packPanel(const T* from, int64_t stride, int64_t count, int64_t depth, __bf16* to) {
  constexpr bool along = contiguous == Contiguous::along, turned = along == (side == Side::right);
  const int64_t strips = (count + 15) / 16, tiles = (depth + tile_depth - 1) / tile_depth;
  // In memory's order, as far as the tiles allow.
  for (int64_t outer = 0; outer < (along ? strips : tiles); ++outer)
    for (int64_t inner = 0; inner < (along ? tiles : strips); ++inner) {
      const int64_t strip = along ? outer : inner, tile = along ? inner : outer;
      const int64_t first = strip * 16, k = tile * tile_depth;
      __bf16* target = to + (strip * tiles + tile) * tile_factors;
      if constexpr (!along && std::is_same_v<T, __bf16>) {
        const T* corner = from + k * stride + first;
        if (side == Side::left && k + tile_depth <= depth && first + 16 <= count) {
          packTurned8(corner, stride, target);
          packTurned8(corner + 8, stride, target + 8 * tile_depth);
          continue;
        }
        if (side == Side::right && k + tile_depth <= depth && first + 32 <= count) {
          packPairs32(corner, stride, target, target + tiles * tile_factors);
          ++inner;
          continue;
        }
      }
      __m512i rows[16];
      if constexpr (along) {
        const __mmask32 there = firstOf32(depth - k);
        for (int64_t i = 0; i < 16; ++i)
          rows[i] = first + i < count ? load32(from + (first + i) * stride + k, there) : _mm512_setzero_si512();
      } else {
        const __mmask16 there = firstOf16(count - first);
        for (int64_t i = 0; i < 16; ++i) {
          const int64_t even = k + 2 * i, odd = even + 1;
          rows[i] = interleaved(even < depth ? load16(from + even * stride + first, there) : _mm256_setzero_si256(),
                                odd < depth ? load16(from + odd * stride + first, there) : _mm256_setzero_si256());
        }
      }
      if constexpr (turned)
        transpose16(rows);
      for (int64_t i = 0; i < 16; ++i)
        _mm512_storeu_si512(target + i * 32, rows[i]);
    }
}

// after = before + left @ right of `high` strips by `wide` strips of so many tiles each; before may be null: zeros.
template <int high, int wide>
ZEFUSE_TILES inline void multiplyStrips(const __bf16* left, const __bf16* right, int64_t tiles, const float* before,
                                        int64_t before_row, float* after, int64_t after_row) {
  const int64_t strip = tiles * tile_factors, from_bytes = before_row * 4, to_bytes = after_row * 4;
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  if (before) {
    _tile_loadd(0, before, from_bytes);
    if constexpr (wide > 1)
      _tile_loadd(1, before + 16, from_bytes);
    if constexpr (high > 1)
      _tile_loadd(2, before + tile_rows * before_row, from_bytes);
    if constexpr (high > 1 && wide > 1)
      _tile_loadd(3, before + tile_rows * before_row + 16, from_bytes);
  }
  for (int64_t tile = 0; tile < tiles; ++tile, left += tile_factors, right += tile_factors) {
    _tile_loadd(4, left, 64);
    _tile_loadd(6, right, 64);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (wide > 1) {
      _tile_loadd(7, right + strip, 64);
      _tile_dpbf16ps(1, 4, 7);
    }
    if constexpr (high > 1) {
      _tile_loadd(5, left + strip, 64);
      _tile_dpbf16ps(2, 5, 6);
    }
    if constexpr (high > 1 && wide > 1)
      _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, after, to_bytes);
  if constexpr (wide > 1)
    _tile_stored(1, after + 16, to_bytes);
  if constexpr (high > 1)
    _tile_stored(2, after + tile_rows * after_row, to_bytes);
  if constexpr (high > 1 && wide > 1)
    _tile_stored(3, after + tile_rows * after_row + 16, to_bytes);
}

}  // namespace zefuse::primitives
