// The loops over the steps of a recurrent layer, once for each level of processors: Level::run. Each is a source file
// of its own, since they take tens of seconds to compile; those of layers with projections are one for three levels.
#pragma once

#include "runtime/primitives/simd/vector_memory.h"
#include "runtime/recurrence/sequence.h"

// Beside ZEFUSE_AVX512 and ZEFUSE_AVX2.
#define ZEFUSE_PAIRS gnu::target("arch=x86-64-v4,avx512bf16"), clang::min_vector_width(512)
#define ZEFUSE_TILE_LEVEL gnu::target("arch=x86-64-v4,avx512bf16,amx-tile,amx-bf16"), clang::min_vector_width(512)

namespace zefuse::recurrence {

void runAvx512(const Sequence& sequence, const Share& share);
void runAvx2(const Sequence& sequence, const Share& share);
void runSse2(const Sequence& sequence, const Share& share);
void runPairs(const Sequence& sequence, const Share& share);
void runTiles(const Sequence& sequence, const Share& share);
void runSplits(const Sequence& sequence, const Share& share);

// What the first three call where there is a projection.
void runProjectedAvx512(const Sequence& sequence, const Share& share);
void runProjectedAvx2(const Sequence& sequence, const Share& share);
void runProjectedSse2(const Sequence& sequence, const Share& share);

}  // namespace zefuse::recurrence
