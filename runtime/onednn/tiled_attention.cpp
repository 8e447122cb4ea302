#include "runtime/onednn/tiled_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/onednn/amx_tiles.h"
#include "runtime/onednn/row_softmax.h"

#define ZEFUSE_TILES [[gnu::target("arch=x86-64-v4,avx512bf16,amx-tile,amx-bf16")]]

namespace zefuse::onednn {

namespace {

constexpr int64_t block = 32;  // two tiles of sums high and wide, for which each factor is loaded once for two products

constexpr float log2_e = 1.44269504f;

int64_t toBlocks(int64_t count) { return (count + block - 1) / block * block; }

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
    auto* next = static_cast<std::byte*>(scratch);
    auto take = [&]<typename T>(T*& part, int64_t count) {
      part = reinterpret_cast<T*>(next);
      next += size_t(count) * sizeof(T);
    };
    take(key, keys * depth);
    take(value, keys * width);
    take(query, rows * depth);
    take(scores, rows * score_row);
    take(out, rows * width);
    bytes = size_t(next - static_cast<std::byte*>(scratch));
  }
};

// sums [32, 32] = left [32, depth] @ right: tiles of `right` for its first 16 columns, then `right_step` behind for the
// others.
ZEFUSE_TILES void multiply(const __bf16* left, int64_t left_row, const __bf16* right, int64_t right_step, int64_t depth,
                           float* sums, int64_t sums_row) {
  const int64_t left_bytes = left_row * 2, sums_bytes = sums_row * 4;
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
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
  _tile_stored(2, sums + tile_rows * sums_row, sums_bytes);
  _tile_stored(3, sums + tile_rows * sums_row + 16, sums_bytes);
}

// 2^x, relative error below 5e-5: the weights are rounded to bf16. x at most 0 but for NaN, which stays.
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

// Writes exp(scale * (row[i] - max)) as bf16 over the row, and zeros from `count` to `padded`; returns scale * max and
// the sum. A NaN makes the sum NaN.
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

// Two rows of a right side side by side; null: zeros.
ZEFUSE_TILES inline void interleave(const __bf16* even, const __bf16* odd, __mmask16 columns, __bf16* to) {
  const __m256i low = even ? _mm256_maskz_loadu_epi16(columns, even) : _mm256_setzero_si256();
  const __m256i high = odd ? _mm256_maskz_loadu_epi16(columns, odd) : _mm256_setzero_si256();
  _mm512_storeu_si512(to,
                      _mm512_or_si512(_mm512_cvtepu16_epi32(low), _mm512_slli_epi32(_mm512_cvtepu16_epi32(high), 16)));
}

ZEFUSE_TILES void packHead(const TiledAttention& a, const Parts& parts, const __bf16* key, int64_t key_row,
                           const __bf16* value, int64_t value_row) {
  // Keys: their transpose is the right side, so pairs of neighbours in a row are a column's.
  __bf16* to = parts.key;
  for (int64_t n = 0; n < parts.keys; n += 16)
    for (int64_t k = 0; k < parts.depth; k += tile_depth, to += tile_factors)
      for (int64_t column = 0; column < 16; ++column) {
        const __bf16* from = key + (n + column) * key_row + k;
        const int64_t left = n + column < a.keys ? std::clamp<int64_t>(a.depth - k, 0, tile_depth) : 0;
        const __mmask32 there = left < 32 ? (1u << left) - 1 : ~0u;
        alignas(64) uint32_t pairs[16];
        _mm512_store_si512(pairs, left ? _mm512_maskz_loadu_epi16(there, from) : _mm512_setzero_si512());
        for (int64_t pair = 0; pair < 16; ++pair)
          reinterpret_cast<uint32_t*>(to)[pair * 16 + column] = pairs[pair];
      }
  to = parts.value;
  for (int64_t n = 0; n < parts.width; n += 16) {
    const int64_t left = std::clamp<int64_t>(a.width - n, 0, 16);
    const __mmask16 columns = __mmask16((1u << left) - 1);
    for (int64_t k = 0; k < parts.keys; k += 2, to += 32) {
      auto row = [&](int64_t number) { return number < a.keys ? value + number * value_row + n : nullptr; };
      interleave(row(k), row(k + 1), columns, to);
    }
  }
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
  for (int64_t n = 0; n < padded; n += block)
    for (int64_t row = 0; row < rows; row += block)
      multiply(parts.query + row * parts.depth, parts.depth, parts.key + n * parts.depth, 16 * parts.depth, parts.depth,
               parts.scores + row * parts.score_row + n, parts.score_row);
  float* sums = parts.out + rows * parts.width;  // behind the last row
  for (int64_t row = 0; row < count; ++row) {
    const int64_t seen = causal ? std::min(columns, first + row + 1) : columns;
    const RowSum sum = exponentialsAsBf16(parts.scores + row * parts.score_row, seen, padded, scale);
    sums[row] = sum.sum;
    if (log_sums)
      log_sums[row * log_sums_row] = sum.maximum + std::log(sum.sum);
  }
  for (int64_t n = 0; n < parts.width; n += block)
    for (int64_t row = 0; row < rows; row += block)
      multiply(reinterpret_cast<const __bf16*>(parts.scores + row * parts.score_row), 2 * parts.score_row,
               parts.value + n * parts.keys, 16 * parts.keys, padded, parts.out + row * parts.width + n, parts.width);
  releaseTiles();
  for (int64_t row = 0; row < count; ++row) {
    const __m512 sum = _mm512_set1_ps(sums[row]);
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
  packHead(*this, Parts(*this, scratch), key, key_row, value, value_row);
}

void TiledAttention::run(const __bf16* query, int64_t query_row, int64_t first, int64_t count, float scale, bool causal,
                         __bf16* out, int64_t out_row, float* log_sums, int64_t log_sums_row, void* scratch) const {
  runBlock(*this, Parts(*this, scratch), query, query_row, first, count, scale, causal, out, out_row, log_sums,
           log_sums_row);
}

}  // namespace zefuse::onednn
