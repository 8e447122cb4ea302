// What an LSTM of f32 multiplies in AMX's tiles of bf16, by the parts of its numbers
// (runtime/primitives/matmul/splits.h).
#pragma once

#include <cstdint>

#include "runtime/primitives/matmul/splits.h"

namespace zefuse::recurrence {

using primitives::split_parts;

// Numbers of bf16 from a row to the next. A row is [depth / 32][3][32], `depth` of whole tiles, and behind it a line of
// a cache whose first number says whether the row must be multiplied as it is. An odd number of lines: the 16 rows of a
// tile do not share lines of the nearest cache.
constexpr int64_t splitRow(int64_t depth) {
  return ((depth / primitives::tile_depth * split_parts + 1) | 1) * primitives::tile_depth;
}

// The four gates of blocks of 16 units, each block [depth / 32][4][3] tiles, and a line as a row's behind them all.
constexpr int64_t splitBlock(int64_t depth) { return depth * 4 * split_parts * primitives::tile_rows; }
constexpr int64_t splitWeight(int64_t blocks, int64_t depth) {
  return blocks * splitBlock(depth) + primitives::tile_depth;
}

// weight: [4, units, depth]. packed: splitWeight numbers, the bits of bf16. Of a processor that has tiles.
void packSplits(const float* weight, int64_t units, int64_t depth, uint16_t* packed);

// An LSTM's weights and what its steps multiply with them. `depth`: of whole tiles.
struct Splits {
  const uint16_t *packed_input = nullptr, *packed_state = nullptr;
  int64_t input_depth = 0, state_depth = 0;
  __bf16* input = nullptr;  // [2, rows, splitRow]: of this step and of the next
  __bf16* state = nullptr;  // [2, rows, splitRow]: of the step before and of this one
  int64_t rows = 0;
  bool plain_weights = false;  // multiplied as they are

  __bf16* inputAt(int64_t n, int64_t b) const { return input + ((n & 1) * rows + b) * splitRow(input_depth); }
  __bf16* stateAt(int64_t n, int64_t b) const { return state + ((n & 1) * rows + b) * splitRow(state_depth); }
};

}  // namespace zefuse::recurrence
