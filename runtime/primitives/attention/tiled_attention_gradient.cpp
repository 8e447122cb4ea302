#include "runtime/primitives/attention/tiled_attention_gradient.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "runtime/primitives/core/scratch_parts.h"
#include "runtime/primitives/simd/tile_blocks.h"

namespace zefuse::primitives {

namespace {

// Parts of the scratch memory. Scores stand transposed: keys by rows. Weights and the scores' gradient then are the
// left sides of two products as they are made, and the rows' sums lie along a vector.
struct Layout {
  int64_t rows, keys, depth, width;                // up to whole blocks
  __bf16 *key, *value;                             // left sides
  __bf16* key_transposed;                          // [depth, keys], left
  __bf16 *query, *gradient;                        // right sides, with the rows as their depth
  __bf16 *query_transposed, *gradient_transposed;  // right sides, with the rows as their columns
  __bf16 *weights, *of_scores;                     // [keys, rows], left
  __bf16* of_scores_right;                         // with the keys as their depth
  float *scores, *of_weights;                      // a block
  float *log_sums, *row_sums;                      // the first in powers of two
  float *of_key, *of_value, *of_query;             // [keys, depth], [keys, width], [depth, rows]
  size_t bytes;

  Layout(const TiledAttentionGradient& a, void* scratch)
      : rows(toBlocks(a.rows)), keys(toBlocks(a.keys)), depth(toBlocks(a.depth)), width(toBlocks(a.width)) {
    ScratchParts take{scratch};
    take(key, keys * depth);
    take(value, keys * width);
    take(key_transposed, depth * keys);
    take(query, rows * depth);
    take(gradient, rows * width);
    take(query_transposed, rows * depth);
    take(gradient_transposed, rows * width);
    take(weights, keys * rows);
    take(of_scores, keys * rows);
    take(of_scores_right, keys * rows);
    take(scores, tile_block * tile_block);
    take(of_weights, tile_block * tile_block);
    take(log_sums, rows);
    take(row_sums, rows);
    take(of_key, keys * depth);
    take(of_value, keys * width);
    take(of_query, depth * rows);
    bytes = take.bytes;
  }
};

void copyRows(const __bf16* from, int64_t from_row, int64_t count, int64_t width, __bf16* to) {
  for (int64_t row = 0; row < toBlocks(count); ++row, to += toBlocks(width)) {
    const int64_t there = row < count ? width : 0;
    std::copy_n(from + row * from_row, there, to);
    std::fill(to + there, to + toBlocks(width), __bf16(0));
  }
}

ZEFUSE_TILES void readRows(const TiledAttentionGradient& a, const Layout& layout,
                           const TiledAttentionGradient::Rows& rows) {
  packRows(rows.query, rows.query_row, rows.count, a.depth, layout.query);
  packRows(rows.gradient, rows.gradient_row, rows.count, a.width, layout.gradient);
  packTransposed(rows.query, rows.query_row, rows.count, a.depth, layout.query_transposed);
  packTransposed(rows.gradient, rows.gradient_row, rows.count, a.width, layout.gradient_transposed);
  for (int64_t row = 0; row < toBlocks(rows.count); ++row) {
    const float log_sum = row < rows.count ? rows.log_sums[row * rows.log_sums_row] : 0;
    layout.log_sums[row] = log_sum * log2_e;
    layout.row_sums[row] = row < rows.count ? rows.row_sums[row * rows.row_sums_row] : 0;
  }
}

// Which of 16 rows from `row` on see a key.
ZEFUSE_TILES inline __mmask16 seeing(int64_t row, int64_t key, int64_t first, bool causal) {
  const int64_t unseeing = causal ? std::clamp<int64_t>(key - first - row, 0, 16) : 0;
  return __mmask16(0xffffu << unseeing);
}

struct Pair {
  __m256i weights, of_scores;
};

// From 16 scores and their weights' gradient the weights, and the gradient of the scores times `scale`, of the rows in
// `there`; zeros elsewhere.
ZEFUSE_TILES inline Pair derivedPair(const float* scores, const float* of_weights, __m512 log_sums, __m512 row_sums,
                                     __mmask16 there, __m512 factor, __m512 scale) {
  const __m512 x = powerOfTwo(_mm512_fmsub_ps(_mm512_load_ps(scores), factor, log_sums));
  const __m512 weights = _mm512_maskz_mov_ps(there, x);
  const __m512 of_scores =
      _mm512_maskz_mul_ps(there, _mm512_mul_ps(x, scale), _mm512_sub_ps(_mm512_load_ps(of_weights), row_sums));
  return {(__m256i)_mm512_cvtneps_pbh(weights), (__m256i)_mm512_cvtneps_pbh(of_scores)};
}

struct Block {
  int64_t key, row;    // of its first score
  int64_t keys, rows;  // that are there, of all
  int64_t first;       // as Rows::first
  bool causal;
  float scale;
};

// Weights and the scores' gradient of 32 keys and 32 rows, from the products in layout.scores and layout.of_weights.
ZEFUSE_TILES void makeBlock(const Layout& layout, const Block& block) {
  const __m512 factor = _mm512_set1_ps(block.scale * log2_e), scale = _mm512_set1_ps(block.scale);
  for (int64_t half = 0; half < tile_block; half += 16) {
    const int64_t row = block.row + half;
    const __m512 log_sums = _mm512_load_ps(layout.log_sums + row), row_sums = _mm512_load_ps(layout.row_sums + row);
    const __mmask16 real =
        __mmask16((1u << std::clamp<int64_t>(block.rows - row, 0, 16)) - 1) &
        _mm512_cmp_ps_mask(log_sums, _mm512_set1_ps(-std::numeric_limits<float>::infinity()), _CMP_NEQ_UQ);
    for (int64_t i = 0; i < tile_block; i += 2) {
      Pair pairs[2];
      for (int64_t odd = 0; odd < 2; ++odd) {
        const int64_t key = block.key + i + odd, place = (i + odd) * tile_block + half;
        const __mmask16 there = key < block.keys ? real & seeing(row, key, block.first, block.causal) : 0;
        pairs[odd] =
            derivedPair(layout.scores + place, layout.of_weights + place, log_sums, row_sums, there, factor, scale);
        _mm256_store_si256(reinterpret_cast<__m256i*>(layout.weights + key * layout.rows + row), pairs[odd].weights);
        _mm256_store_si256(reinterpret_cast<__m256i*>(layout.of_scores + key * layout.rows + row),
                           pairs[odd].of_scores);
      }
      _mm512_store_si512(layout.of_scores_right + row * layout.keys + (block.key + i) * 16,
                         interleaved(pairs[0].of_scores, pairs[1].of_scores));
    }
  }
}

void clearBlock(const Layout& layout, const Block& block) {
  for (int64_t key = block.key; key < block.key + tile_block; ++key) {
    std::fill_n(layout.weights + key * layout.rows + block.row, tile_block, __bf16(0));
    std::fill_n(layout.of_scores + key * layout.rows + block.row, tile_block, __bf16(0));
  }
  for (int64_t row = block.row; row < block.row + tile_block; row += 16)
    std::fill_n(layout.of_scores_right + row * layout.keys + block.key * 16, tile_block * 16, __bf16(0));
}

// Adds the transpose of layout.of_query, or writes it.
ZEFUSE_TILES void writeQueries(const TiledAttentionGradient& a, const Layout& layout,
                               const TiledAttentionGradient::Rows& rows) {
  for (int64_t n = 0; n < a.depth; n += 16) {
    const auto there = __mmask16((1u << std::min<int64_t>(16, a.depth - n)) - 1);
    for (int64_t row = 0; row < rows.count; row += 16) {
      __m512i block[16];
      for (int64_t i = 0; i < 16; ++i)
        block[i] = _mm512_load_si512(layout.of_query + (n + i) * layout.rows + row);
      transpose16(block);
      for (int64_t i = 0; i < std::min<int64_t>(16, rows.count - row); ++i) {
        float* to = rows.of_query + (row + i) * a.depth + n;
        __m512 sum = _mm512_castsi512_ps(block[i]);
        if (rows.adds)
          sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(there, to));
        _mm512_mask_storeu_ps(to, there, sum);
      }
    }
  }
}

ZEFUSE_TILES void addRows(const TiledAttentionGradient& a, const Layout& layout,
                          const TiledAttentionGradient::Rows& rows, int64_t keys, float scale, bool causal,
                          bool with_key, bool with_value) {
  const int64_t padded_keys = toBlocks(keys), padded_rows = toBlocks(rows.count);
  readRows(a, layout, rows);
  configureTiles(tile_rows, 0);
  for (int64_t row = 0; row < padded_rows; row += tile_block)
    for (int64_t key = 0; key < padded_keys; key += tile_block) {
      const Block block{key, row, keys, rows.count, rows.first, causal, scale};
      if (causal && key > rows.first + row + tile_block - 1) {
        clearBlock(layout, block);
        continue;
      }
      multiplyBlock<Sums::fresh>(layout.key + key * layout.depth, layout.depth,
                                 layout.query_transposed + row * layout.depth, 16 * layout.depth, layout.depth,
                                 layout.scores, tile_block);
      multiplyBlock<Sums::fresh>(layout.value + key * layout.width, layout.width,
                                 layout.gradient_transposed + row * layout.width, 16 * layout.width, layout.width,
                                 layout.of_weights, tile_block);
      makeBlock(layout, block);
    }
  if (with_value)
    multiplyBlocks<Sums::added>(layout.weights, layout.rows, layout.gradient, padded_rows, padded_keys, layout.width,
                                padded_rows, layout.of_value, layout.width);
  if (with_key)
    multiplyBlocks<Sums::added>(layout.of_scores, layout.rows, layout.query, padded_rows, padded_keys, layout.depth,
                                padded_rows, layout.of_key, layout.depth);
  if (rows.of_query)
    multiplyBlocks<Sums::fresh>(layout.key_transposed, layout.keys, layout.of_scores_right, layout.keys, layout.depth,
                                padded_rows, padded_keys, layout.of_query, layout.rows);
  releaseTiles();
  if (rows.of_query)
    writeQueries(a, layout, rows);
}

ZEFUSE_TILES void narrow(const float* from, int64_t from_row, int64_t count, int64_t width, __bf16* to,
                         int64_t to_row) {
  for (int64_t row = 0; row < count; ++row)
    for (int64_t n = 0; n < width; n += 16) {
      const auto there = __mmask16((1u << std::min<int64_t>(16, width - n)) - 1);
      const __m512 x = _mm512_load_ps(from + row * from_row + n);
      _mm256_mask_storeu_epi16(to + row * to_row + n, there, (__m256i)_mm512_cvtneps_pbh(x));
    }
}

}  // namespace

size_t TiledAttentionGradient::scratchBytes() const { return Layout(*this, nullptr).bytes; }

void TiledAttentionGradient::begin(const __bf16* key, int64_t key_row, const __bf16* value, int64_t value_row,
                                   int64_t count, void* scratch) const {
  const Layout layout(*this, scratch);
  copyRows(key, key_row, count, depth, layout.key);
  copyRows(value, value_row, count, width, layout.value);
  for (int64_t i = 0; i < layout.depth; ++i)
    for (int64_t k = 0; k < toBlocks(count); ++k)
      // As bits: with sanitizers clang converts there and back by way of f32, by a function that libgcc 12 has not.
      std::memcpy(layout.key_transposed + i * layout.keys + k, layout.key + k * layout.depth + i, sizeof(__bf16));
  std::fill_n(layout.of_key, toBlocks(count) * layout.depth, 0.f);
  std::fill_n(layout.of_value, toBlocks(count) * layout.width, 0.f);
}

void TiledAttentionGradient::add(const Rows& rows, int64_t count_of_keys, float scale, bool causal, bool with_key,
                                 bool with_value, void* scratch) const {
  addRows(*this, Layout(*this, scratch), rows, count_of_keys, scale, causal, with_key, with_value);
}

void TiledAttentionGradient::end(__bf16* of_key, int64_t key_row, __bf16* of_value, int64_t value_row, int64_t count,
                                 void* scratch) const {
  const Layout layout(*this, scratch);
  if (of_key)
    narrow(layout.of_key, layout.depth, count, depth, of_key, key_row);
  if (of_value)
    narrow(layout.of_value, layout.width, count, width, of_value, value_row);
}

}  // namespace zefuse::primitives
