// f32 taken apart into three bf16, high + middle + low, which are all of its 24 bits: products of f32 in AMX's tiles of
// bf16. Of the nine products of the parts the six largest are added, what is left out is below 2^-24 of a product
// (Henry, Tang, Heinecke: Leveraging the bfloat16 Artificial Intelligence Datatype For Higher-Precision Computations,
// ARITH 2019). Tiles take subnormal numbers for zero, and the parts of an infinity or of a number beyond bf16's range
// cancel: rows and right sides with numbers beyond `most_split` are multiplied as they are. (The parts of a NaN are
// NaN, and so is what they are multiplied with.) Of a number below 2^-110 parts get lost; times `most_split` that is
// 2^-66 at most, and of a row multiplied as it is 2^-134 of its number.
#pragma once

#include <cstdint>
#include <immintrin.h>

#include "runtime/onednn/tile_blocks.h"

namespace zefuse::onednn {

constexpr int64_t split_parts = 3;
constexpr float most_split = 0x1p60f;
constexpr int64_t split_tile = split_parts * tile_factors;  // the parts of a tile's numbers, one tile behind another

// Which numbers are beyond `most_split`.
ZEFUSE_TILES inline __mmask16 beyondSplit(__m512 x) {
  return _mm512_cmp_ps_mask(_mm512_abs_ps(x), _mm512_set1_ps(most_split), _CMP_GT_OQ);
}

// The parts of 16 numbers, `step` numbers apart. Subnormal ones are zero, those that round to infinity have no others.
ZEFUSE_TILES inline void storeSplit(uint16_t* to, int64_t step, __m512 x) {
  for (int64_t part = 0; part < split_parts; ++part) {
    const auto rounded = (__m256i)_mm512_cvtneps_pbh(x);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + part * step), rounded);
    x = _mm512_sub_ps(x, _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(rounded), 16)));
  }
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

}  // namespace zefuse::onednn
