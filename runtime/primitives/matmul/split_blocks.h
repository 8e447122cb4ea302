// Products of f32 by their parts of bf16 (splits.h) in blocks of 32 x 32 sums of AMX's tiles, and what takes factors
// apart and lays them out. For processors with tiles alone.
#pragma once

#include "runtime/primitives/matmul/splits.h"
#include "runtime/primitives/simd/tile_blocks.h"

namespace zefuse::primitives {

// Which numbers are beyond `most_split`.
ZEFUSE_TILES inline __mmask16 beyondSplit(__m512 x) {
  return _mm512_cmp_ps_mask(_mm512_abs_ps(x), _mm512_set1_ps(most_split), _CMP_GT_OQ);
}

// The next part of 16 numbers, in the upper half of each, and x what is left of them: as storeSplit.
ZEFUSE_TILES inline __m512i takeRounded(__m512& x) {
  const __m512i part = _mm512_slli_epi32(_mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(x)), 16);
  x = _mm512_sub_ps(x, _mm512_castsi512_ps(part));
  return part;
}

// The next part of 16 numbers, in the upper half of each, and x what is left of them. It is rounded by the bits, for
// subnormal numbers; where that would be an infinity it is cut off, so that the parts always add up to the number.
ZEFUSE_TILES inline __m512i takeExact(__m512& x) {
  const __m512i bits = _mm512_castps_si512(x), upper = _mm512_set1_epi32(int(0xffff0000u));
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  __m512i part = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
  const __mmask16 large = _mm512_cmp_ps_mask(_mm512_abs_ps(x), _mm512_set1_ps(0x1p127f), _CMP_NLT_UQ);
  if (large) {
    const __m512i quiet = _mm512_set1_epi32(0x7fc00000);
    const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    part = _mm512_mask_mov_epi32(part, large, _mm512_mask_mov_epi32(bits, nan, quiet));
  }
  part = _mm512_and_si512(part, upper);
  const __m512 rest = _mm512_sub_ps(x, _mm512_castsi512_ps(part));
  const __mmask16 finite = _mm512_cmp_ps_mask(rest, rest, _CMP_ORD_Q);  // infinity less itself is no number
  x = _mm512_maskz_mov_ps(finite, rest);
  return part;
}

// The number whose parts are in one half of each of 16 pairs, `tile_factors` apart.
ZEFUSE_TILES inline __m512 joinParts(const uint16_t* pairs, bool second) {
  __m512 sum = _mm512_setzero_ps();
  for (int64_t part = 0; part < split_parts; ++part) {
    const __m512i both = _mm512_loadu_si512(pairs + part * tile_factors);
    const __m512i number =
        second ? _mm512_and_si512(both, _mm512_set1_epi32(int(0xffff0000u))) : _mm512_slli_epi32(both, 16);
    sum = _mm512_add_ps(sum, _mm512_castsi512_ps(number));
  }
  return sum;
}

// A matrix of f32 where it lies; strides in elements.
struct MatrixView {
  const float* data;
  int64_t row, column;    // strides
  int64_t rows, columns;  // sizes

  MatrixView from(int64_t r, int64_t c) const {
    return {data + r * row + c * column, row, column, rows - r, columns - c};
  }
  MatrixView firstRows(int64_t count) const { return {data, row, column, count < rows ? count : rows, columns}; }
};

// 32 rows of a left side, or 32 columns of a right side: [depth / 32][2 tiles][3 parts].
constexpr int64_t split_step = 2 * split_tile;
constexpr int64_t splitBlock(int64_t depth) { return (depth + tile_depth - 1) / tile_depth * split_step; }

// The view's first 16 rows of 16 numbers; zeros where it has none.
ZEFUSE_TILES inline void loadSquare(const MatrixView& view, __m512 to[16]) {
  if (view.column == 1) {
    const __mmask16 there = firstOf16(view.columns);
    for (int64_t i = 0; i < 16; ++i)
      to[i] = i < view.rows ? _mm512_maskz_loadu_ps(there, view.data + i * view.row) : _mm512_setzero_ps();
    return;
  }
  __m512i columns[16];
  if (view.row == 1) {
    const __mmask16 there = firstOf16(view.rows);
    for (int64_t j = 0; j < 16; ++j)
      columns[j] =
          j < view.columns ? _mm512_maskz_loadu_epi32(there, view.data + j * view.column) : _mm512_setzero_si512();
  } else {
    for (int64_t j = 0; j < 16; ++j) {
      alignas(64) float column[16] = {};
      for (int64_t i = 0; i < 16 && i < view.rows && j < view.columns; ++i)
        column[i] = view.data[i * view.row + j * view.column];
      columns[j] = _mm512_load_si512(column);
    }
  }
  transpose16(columns);
  for (int i = 0; i < 16; ++i)
    to[i] = _mm512_castsi512_ps(columns[i]);
}

// The view's first 32 rows as a left side. plain[i]: whether row i must be multiplied as it is.
ZEFUSE_TILES inline void splitLeft(const MatrixView& view, uint16_t* to, uint8_t plain[32]) {
  __mmask16 beyond[32] = {};
  for (int64_t k = 0; k < view.columns; k += tile_depth, to += split_step)
    for (int64_t half = 0; half < 2; ++half)
      for (int64_t column = 0; column < tile_depth; column += 16) {
        __m512 rows[16];
        loadSquare(view.from(half * 16, k + column), rows);
        for (int64_t i = 0; i < 16; ++i) {
          beyond[half * 16 + i] |= beyondSplit(rows[i]);
          storeSplit(reinterpret_cast<__bf16*>(to) + half * split_tile + i * tile_depth + column, tile_factors,
                     rows[i]);
        }
      }
  for (int64_t i = 0; i < 32; ++i)
    plain[i] = beyond[i] != 0;
}

// 16 x 16 numbers of a right side to their pairs in a tile; which are beyond `most_split`. With `exact` the parts add
// up to any number.
template <bool exact> ZEFUSE_TILES inline __mmask16 splitSquare(const MatrixView& view, uint16_t* pair) {
  __mmask16 beyond = 0;
  __m512 rows[16];
  loadSquare(view, rows);
#pragma clang loop unroll(full)
  for (int64_t i = 0; i < 16; i += 2, pair += tile_depth) {
    __m512 first = rows[i], second = rows[i + 1];
    beyond |= beyondSplit(first) | beyondSplit(second);
#pragma clang loop unroll(full)
    for (int64_t part = 0; part < split_parts; ++part) {
      const __m512i even = exact ? takeExact(first) : takeRounded(first);
      const __m512i odd = exact ? takeExact(second) : takeRounded(second);
      _mm512_storeu_si512(pair + part * tile_factors, _mm512_or_si512(_mm512_srli_epi32(even, 16), odd));
    }
  }
  return beyond;
}

// The view's first `blocks` times 32 columns as right sides, `to_next` numbers apart, side by side: so that what is
// near in memory is read at once. Whether one must be multiplied as it is.
template <bool exact>
ZEFUSE_TILES inline bool splitRight(const MatrixView& view, int64_t blocks, uint16_t* to, int64_t to_next) {
  __mmask16 beyond = 0;
  for (int64_t k = 0; k < view.rows; k += tile_depth, to += split_step)
    for (int64_t block = 0; block < blocks; ++block)
      for (int64_t half = 0; half < 2; ++half)
        for (int64_t row = 0; row < tile_depth; row += 16)
          beyond |= splitSquare<exact>(view.from(k + row, block * tile_block + half * 16),
                                       to + block * to_next + half * split_tile + row / 2 * tile_depth);
  return beyond != 0;
}

ZEFUSE_TILES inline void addSplitProduct() {
  _tile_dpbf16ps(0, 4, 6);
  _tile_dpbf16ps(1, 4, 7);
  _tile_dpbf16ps(2, 5, 6);
  _tile_dpbf16ps(3, 5, 7);
}

// sums [32, 32] = initial (zeros if it is null) + left @ right, over so many steps of 32 numbers; rows in bytes.
ZEFUSE_TILES inline void multiplySplitBlock(const uint16_t* left, const uint16_t* right, int64_t steps,
                                            const float* initial, int64_t initial_row, float* sums, int64_t sums_row) {
  auto lower = [](auto* rows, int64_t row) { return rows + tile_rows * row / int64_t(sizeof(float)); };
  if (initial) {
    _tile_loadd(0, initial, initial_row);
    _tile_loadd(1, initial + 16, initial_row);
    _tile_loadd(2, lower(initial, initial_row), initial_row);
    _tile_loadd(3, lower(initial, initial_row) + 16, initial_row);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  // Of the six products each has one factor of the one before.
  constexpr int64_t middle = tile_factors, low = 2 * tile_factors;
  for (int64_t step = 0; step < steps; ++step, left += split_step, right += split_step) {
    _tile_loadd(4, left + middle, 64);
    _tile_loadd(5, left + split_tile + middle, 64);
    _tile_loadd(6, right + middle, 64);
    _tile_loadd(7, right + split_tile + middle, 64);
    addSplitProduct();
    _tile_loadd(6, right, 64);
    _tile_loadd(7, right + split_tile, 64);
    addSplitProduct();
    _tile_loadd(4, left + low, 64);
    _tile_loadd(5, left + split_tile + low, 64);
    addSplitProduct();
    _tile_loadd(4, left, 64);
    _tile_loadd(5, left + split_tile, 64);
    addSplitProduct();
    _tile_loadd(6, right + middle, 64);
    _tile_loadd(7, right + split_tile + middle, 64);
    addSplitProduct();
    _tile_loadd(6, right + low, 64);
    _tile_loadd(7, right + split_tile + low, 64);
    addSplitProduct();
  }
  _tile_stored(0, sums, sums_row);
  _tile_stored(1, sums + 16, sums_row);
  _tile_stored(2, lower(sums, sums_row), sums_row);
  _tile_stored(3, lower(sums, sums_row) + 16, sums_row);
}

// The right side of a row that is multiplied as it is: taken apart, or as it lies. 16 numbers of each 16 rows from `k`
// on, behind the first `column` ones of a block.
struct SplitColumns {
  const uint16_t* block;
  ZEFUSE_TILES void load(int64_t k, int64_t column, __m512 rows[16]) const {
    for (int64_t i = 0; i < 16; ++i) {
      const int64_t at = k + i;
      rows[i] =
          joinParts(block + at / tile_depth * split_step + column / 16 * split_tile + at % tile_depth / 2 * tile_depth,
                    at % 2 != 0);
    }
  }
};
struct PlainColumns {
  MatrixView block;
  ZEFUSE_TILES void load(int64_t k, int64_t column, __m512 rows[16]) const { loadSquare(block.from(k, column), rows); }
};

// 32 columns of a row: out[0, columns) = bias (none if it is null) + x @ right.
template <typename Columns>
ZEFUSE_TILES inline void multiplyPlainRow(const MatrixView& x, const Columns& right, const float* bias, float* out,
                                          int64_t columns) {
  for (int64_t column = 0; column < columns && column < tile_block; column += 16) {
    const __mmask16 there = firstOf16(columns - column);
    __m512 sum = bias ? _mm512_maskz_loadu_ps(there, bias + column) : _mm512_setzero_ps();
    for (int64_t k = 0; k < x.columns; k += 16) {
      __m512 rows[16];
      right.load(k, column, rows);
      for (int64_t i = 0; i < 16 && k + i < x.columns; ++i)
        sum = _mm512_fmadd_ps(_mm512_set1_ps(x.data[(k + i) * x.column]), rows[i], sum);
    }
    _mm512_mask_storeu_ps(out + column, there, sum);
  }
}

}  // namespace zefuse::primitives
