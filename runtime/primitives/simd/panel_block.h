// Products of f32 of one block, of one thread, whose sizes are small and whose operands are laid out before: a left
// side in lines of `block_line` numbers, as it lies or transposed, and a right side in panels. Rows of the result go by
// a few at a time, by a panel of two vectors, all of whose sums are in registers.
#pragma once

#include <cstdint>

namespace zefuse::primitives {

// Rows or columns of a left side. Two blocks of so many rows and columns, with what they are made of, fit a
// second-level cache of 1 MiB.
constexpr int64_t most_of_block = 256;
// No multiple of 4 KiB lies between lines that are near each other: they would share lines of the cache.
constexpr int64_t block_line = most_of_block + 16;

struct BlockResult {
  float* data;
  int64_t row;  // stride
  float factor;
  bool add;    // to what is there
  bool whole;  // rows have room for the last panel's whole vectors
};

struct PanelBlockLevel {
  int64_t columns;  // of a panel
  // Lines from memory as the columns of a left side: to [depth][block_line].
  void (*transpose)(const float* from, int64_t row, int64_t count, int64_t depth, float* to);
  // Lines as the columns of panels: to [panel][depth][columns].
  void (*packLines)(const float* from, int64_t row, int64_t count, int64_t depth, float* to);
  // Lines as the rows of panels: to [panel][count][columns].
  void (*packRows)(const float* from, int64_t row, int64_t count, int64_t width, float* to);
  // [m, n] = left [m, k] times panels [k, n], `step` numbers apart. `transposed`: the left side lies as
  // [k][block_line].
  void (*multiply)(bool transposed, int64_t m, int64_t n, int64_t k, const float* left, const float* panels,
                   int64_t step, const BlockResult& to);

  int64_t padded(int64_t count) const { return (count + columns - 1) / columns * columns; }
};

// nullptr without AVX2.
const PanelBlockLevel* panelBlockLevel();

}  // namespace zefuse::primitives
