#include "runtime/primitives/attention/tiled_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/primitives/core/scratch_parts.h"
#include "runtime/primitives/simd/row_softmax.h"
#include "runtime/primitives/simd/tile_blocks.h"

namespace zefuse::primitives {

namespace {

// Parts of the scratch memory.
struct Parts {
  int64_t rows, keys, depth, width;  // up to whole blocks
  int64_t score_row;                 // of scores, in floats: no multiple of a page, whose rows would share a few lines
  __bf16 *key, *value, *query;
  float *scores, *out;
  size_t bytes;

  Parts(const TiledAttention& a, void* scratch)
      : rows(toBlocks(a.rows)), keys(toBlocks(a.keys)), depth(toBlocks(a.depth)), width(toBlocks(a.width)),
        score_row(keys + 16) {
    ScratchParts take{scratch};
    take(key, keys * depth);
    take(value, keys * width);
    take(query, rows * depth);
    take(scores, rows * score_row);
    take(out, rows * width);
    bytes = take.bytes;
  }
};

// Writes exp(scale * (row[i] - max)) as bf16 over the row, and zeros from `count` to `padded`; returns scale * max and
// the sum. A NaN makes the sum NaN. Of nothing but -infinity all are zeros, as is the sum.
ZEFUSE_TILES RowSum exponentialsAsBf16(float* row, int64_t count, int64_t padded, float scale) {
  const __m512 factor = _mm512_set1_ps(scale * log2_e);
  auto* narrow = reinterpret_cast<__bf16*>(row);
  const __m512 nothing = _mm512_set1_ps(-std::numeric_limits<float>::infinity());
  const int64_t full = count / 16 * 16;
  const __mmask16 rest = __mmask16((1u << (count - full)) - 1);
  __m512 most = nothing;
  for (int64_t i = 0; i < full; i += 16)
    most = _mm512_max_ps(_mm512_mul_ps(_mm512_loadu_ps(row + i), factor), most);
  most = _mm512_mask_max_ps(most, rest, _mm512_mul_ps(_mm512_maskz_loadu_ps(rest, row + full), factor), most);
  const float largest = _mm512_reduce_max_ps(most);
  if (largest == -std::numeric_limits<float>::infinity()) {
    const bool numbers = std::none_of(row, row + count, [&](float x) { return std::isnan(x * scale); });
    std::fill_n(narrow, padded, __bf16(0));
    return {largest, numbers ? 0 : std::numeric_limits<float>::quiet_NaN()};
  }
  const __m512 maximum = _mm512_set1_ps(largest);

  __m512 sums = _mm512_setzero_ps();
  for (int64_t i = 0; i < full; i += 16) {  // what is written lies before what is still to be read
    const __m512 x = powerOfTwo(_mm512_fmsub_ps(_mm512_loadu_ps(row + i), factor, maximum));
    sums = _mm512_add_ps(sums, x);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(narrow + i), (__m256i)_mm512_cvtneps_pbh(x));
  }
  if (rest) {
    __m512 x = powerOfTwo(_mm512_fmsub_ps(_mm512_maskz_loadu_ps(rest, row + full), factor, maximum));
    x = _mm512_maskz_mov_ps(rest, x);
    sums = _mm512_add_ps(sums, x);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(narrow + full), (__m256i)_mm512_cvtneps_pbh(x));
  }
  std::fill(narrow + (rest ? full + 16 : full), narrow + padded, __bf16(0));
  return {largest / log2_e, _mm512_reduce_add_ps(sums)};
}

ZEFUSE_TILES void runBlock(const TiledAttention& a, const Parts& parts, const __bf16* query, int64_t query_row,
                           int64_t first, int64_t count, float scale, bool causal, __bf16* out, int64_t out_row,
                           float* log_sums, int64_t log_sums_row) {
  const int64_t rows = toBlocks(count), columns = causal ? std::min(a.keys, first + count) : a.keys;
  const int64_t padded = toBlocks(columns);
  for (int64_t row = 0; row < rows; ++row) {
    __bf16* to = parts.query + row * parts.depth;
    const int64_t there = row < count ? a.depth : 0;
    std::copy_n(query + row * query_row, there, to);
    std::fill(to + there, to + parts.depth, __bf16(0));
  }
  configureTiles(tile_rows, 0);
  multiplyBlocks<Sums::fresh>(parts.query, parts.depth, parts.key, parts.depth, rows, padded, parts.depth, parts.scores,
                              parts.score_row);
  float* sums = parts.out + rows * parts.width;  // behind the last row
  for (int64_t row = 0; row < count; ++row) {
    const int64_t seen = causal ? std::min(columns, first + row + 1) : columns;
    const RowSum sum = exponentialsAsBf16(parts.scores + row * parts.score_row, seen, padded, scale);
    sums[row] = sum.sum;
    if (log_sums)
      log_sums[row * log_sums_row] = sum.maximum + std::log(sum.sum);
  }
  multiplyBlocks<Sums::fresh>(reinterpret_cast<const __bf16*>(parts.scores), 2 * parts.score_row, parts.value,
                              parts.keys, rows, parts.width, padded, parts.out, parts.width);
  releaseTiles();
  for (int64_t row = 0; row < count; ++row) {
    const __m512 sum = _mm512_set1_ps(divisorOf(sums[row]));
    for (int64_t n = 0; n < a.width; n += 16) {
      const __mmask16 there = __mmask16((1u << std::min<int64_t>(16, a.width - n)) - 1);
      const __m512 x = _mm512_div_ps(_mm512_loadu_ps(parts.out + row * parts.width + n), sum);
      _mm256_mask_storeu_epi16(out + row * out_row + n, there, (__m256i)_mm512_cvtneps_pbh(x));
    }
  }
}

}  // namespace

bool TiledAttention::available() { return tilesAvailable(); }

size_t TiledAttention::scratchBytes() const {
  const Parts parts(*this, nullptr);
  return parts.bytes + size_t(parts.rows) * sizeof(float);  // and the rows' sums
}

void TiledAttention::pack(const __bf16* key, int64_t key_row, const __bf16* value, int64_t value_row,
                          void* scratch) const {
  const Parts parts(*this, scratch);
  packTransposed(key, key_row, keys, depth, parts.key);
  packRows(value, value_row, keys, width, parts.value);
}

void TiledAttention::run(const __bf16* query, int64_t query_row, int64_t first, int64_t count, float scale, bool causal,
                         __bf16* out, int64_t out_row, float* log_sums, int64_t log_sums_row, void* scratch) const {
  runBlock(*this, Parts(*this, scratch), query, query_row, first, count, scale, causal, out, out_row, log_sums,
           log_sums_row);
}

}  // namespace zefuse::primitives
