// f32 taken apart into three bf16, high + middle + low, which are all of its 24 bits: products of f32 in AMX's tiles of
// bf16. Of the nine products of the parts the six largest are added, what is left out is below 2^-24 of a product
// (Henry, Tang, Heinecke: Leveraging the bfloat16 Artificial Intelligence Datatype For Higher-Precision Computations,
// ARITH 2019). Tiles take subnormal numbers for zero, and the parts of an infinity or of a number beyond bf16's range
// cancel: rows and right sides with numbers beyond `most_split` are multiplied as they are. (The parts of a NaN are
// NaN, and so is what they are multiplied with.) Of a number below 2^-110 parts get lost; times `most_split` that is
// 2^-66 at most, and of a row multiplied as it is 2^-134 of its number.
#pragma once

#include "runtime/onednn/amx_tiles.h"

namespace zefuse::onednn {

constexpr int64_t split_parts = 3;
constexpr float most_split = 0x1p60f;
constexpr int64_t split_tile = split_parts * tile_factors;  // the parts of a tile's numbers, one tile behind another

}  // namespace zefuse::onednn
