// How matrices of f32 are laid out for products in registers (panel_product.h). Everything is inlined into a function
// that is compiled for a level of processors.
#pragma once

#include <cstdint>

#include "runtime/primitives/simd/vector_math.h"

namespace zefuse::primitives {

using Eight = VectorOf<8>::Float;

// rows[i][j] and rows[j][i] change places.
[[gnu::always_inline]] inline void transpose8(Eight rows[8]) {
  Eight pairs[8], fours[8];
#pragma clang loop unroll(full)
  for (int i = 0; i < 8; i += 2) {
    pairs[i] = __builtin_shufflevector(rows[i], rows[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
    pairs[i + 1] = __builtin_shufflevector(rows[i], rows[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
  }
#pragma clang loop unroll(full)
  for (int i = 0; i < 8; i += 4)
#pragma clang loop unroll(full)
    for (int j = 0; j < 2; ++j) {
      fours[i + 2 * j] = __builtin_shufflevector(pairs[i + j], pairs[i + j + 2], 0, 1, 8, 9, 4, 5, 12, 13);
      fours[i + 2 * j + 1] = __builtin_shufflevector(pairs[i + j], pairs[i + j + 2], 2, 3, 10, 11, 6, 7, 14, 15);
    }
#pragma clang loop unroll(full)
  for (int i = 0; i < 4; ++i) {
    rows[i] = __builtin_shufflevector(fours[i], fours[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    rows[i + 4] = __builtin_shufflevector(fours[i], fours[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
  }
}

// Up to 8 lines as they lie: rows of a left side, or columns of a right one.
struct Lines {
  const float* data;
  int64_t line, step;  // strides: from line to line, and along them
  int64_t count, depth;
};

// to [depth, step]: of each step the lines' numbers side by side. Whole vectors are written: zeros, or anything, behind
// the lines that there are, and beyond the last step's end.
[[gnu::always_inline]] inline void interleaveLines(const Lines& lines, float* to, int64_t step) {
  int64_t k = 0;
  if (lines.step == 1) {
    for (; k + 8 <= lines.depth; k += 8) {
      Eight square[8];
#pragma clang loop unroll(full)
      for (int64_t i = 0; i < 8; ++i)
        square[i] = i < lines.count ? *reinterpret_cast<const Eight*>(lines.data + i * lines.line + k) : Eight{};
      transpose8(square);
#pragma clang loop unroll(full)
      for (int64_t i = 0; i < 8; ++i)
        *reinterpret_cast<Eight*>(to + (k + i) * step) = square[i];
    }
  } else if (lines.line == 1 && lines.count == 8) {
    for (; k < lines.depth; ++k)
      *reinterpret_cast<Eight*>(to + k * step) = *reinterpret_cast<const Eight*>(lines.data + k * lines.step);
  }
  for (; k < lines.depth; ++k) {
    Eight numbers{};
    for (int64_t i = 0; i < lines.count; ++i)
      numbers[i] = lines.data[i * lines.line + k * lines.step];
    *reinterpret_cast<Eight*>(to + k * step) = numbers;
  }
}

}  // namespace zefuse::primitives
