// f32 taken apart into three bf16, high + middle + low, which are all of its 24 bits: products of f32 in AMX's tiles of
// bf16. Of the nine products of the parts the six largest are added, what is left out is below 2^-24 of a product
// (Henry, Tang, Heinecke: Leveraging the bfloat16 Artificial Intelligence Datatype For Higher-Precision Computations,
// ARITH 2019). Tiles take subnormal numbers for zero, and the parts of an infinity or of a number beyond bf16's range
// cancel: rows and right sides with numbers beyond `most_split` are multiplied as they are. (The parts of a NaN are
// NaN, and so is what they are multiplied with.) Of a number below 2^-110 parts get lost; times `most_split` that is
// 2^-66 at most, and of a row multiplied as it is 2^-134 of its number.
#pragma once

#include "runtime/primitives/simd/amx_tiles.h"

namespace zefuse::primitives {

constexpr int64_t split_parts = 3;
constexpr float most_split = 0x1p60f;
constexpr int64_t split_tile = split_parts * tile_factors;  // the parts of a tile's numbers, one tile behind another

// The parts of a vector's numbers, `step` numbers apart. Subnormal ones are zero, those that round to infinity have no
// others. It is inlined into what is compiled for a processor with tiles.
template <typename Floats> [[gnu::always_inline]] inline void storeSplit(__bf16* to, int64_t step, const Floats& x) {
  typedef __bf16 Narrow __attribute__((vector_size(sizeof(Floats) / 2), aligned(2)));
  Floats rest = x;
#pragma clang loop unroll(full)
  for (int part = 0; part < split_parts; ++part) {
    const Narrow rounded = __builtin_convertvector(rest, Narrow);
    *reinterpret_cast<Narrow*>(to + part * step) = rounded;
    rest -= __builtin_convertvector(rounded, Floats);
  }
}

}  // namespace zefuse::primitives
