// Products of f32 in registers: a strip of a few rows, packed, times a panel of two vectors of columns, or one, packed.
// All is inlined into a function that is compiled for a level of processors; with 8 lanes and 6 rows the 12 vectors of
// sums, two of the panel and one of the strip are AVX2's 16 registers.
#pragma once

#include <cstdint>
#include <type_traits>

#include "runtime/primitives/simd/vector_math.h"

namespace zefuse::primitives {

template <int lanes> constexpr int64_t panel_columns = 2 * lanes;

// What a product fetches ahead into the cache: nothing; a line for each four steps of its depth from `next` on, into
// the second level; all of its panels, some lines ahead, into the first.
enum class Ahead : uint8_t { none, quarter, all };

// Where a product's sums go.
struct PanelResult {
  float* out;
  int64_t row;        // stride
  const float* bias;  // a value for each column, or nullptr
  bool add;           // to what is there; then without bias
};

struct NoPostOps {};

// strip [depth, packed_rows], whose first rows these are, times `panels` panels [depth, `width` vectors], `panel_step`
// numbers apart. Sums are added to what is there, or to the bias, when they are complete: so many roundings fewer than
// one after the other; then `post_ops` follow in registers. Without packed_rows the strip is where it lies: rows
// `strip_row` apart.
template <int lanes, int rows, int panels, Ahead ahead, int width = 2, int packed_rows = rows,
          typename PostOps = NoPostOps>
[[gnu::always_inline]] inline void multiplyPanels(const float* strip, const float* panel, int64_t panel_step,
                                                  int64_t depth, const float* next, const PanelResult& to,
                                                  int64_t strip_row = 0, const PostOps& post_ops = {}) {
  using Vector = typename VectorOf<lanes>::Float;
  constexpr int vectors = width * panels;
  constexpr int64_t columns = width * lanes;
  Vector sums[rows][vectors];
#pragma clang loop unroll(full)
  for (int r = 0; r < rows; ++r) {
#pragma clang loop unroll(full)
    for (int v = 0; v < vectors; ++v)
      sums[r][v] = Vector{};
#pragma clang loop unroll(full)
    for (int p = 0; p < panels; ++p) {  // rows of the result lie on two lines, or more, where they are not aligned
      __builtin_prefetch(to.out + r * to.row + p * columns, 1);
      __builtin_prefetch(to.out + r * to.row + (p + 1) * columns - 1, 1);
    }
  }
  constexpr int64_t line = 16, unrolled = 4, distance = 32 * line;
  int64_t k = 0;
  auto step = [&](int64_t at) __attribute__((always_inline)) {
#pragma clang loop unroll(full)
    for (int p = 0; p < panels; ++p) {
      const float* right = panel + p * panel_step + at * columns;
      Vector numbers[width];
#pragma clang loop unroll(full)
      for (int v = 0; v < width; ++v)
        numbers[v] = *reinterpret_cast<const Vector*>(right + v * lanes);
#pragma clang loop unroll(full)
      for (int r = 0; r < rows; ++r) {
        const float x = packed_rows ? strip[at * packed_rows + r] : strip[r * strip_row + at];
#pragma clang loop unroll(full)
        for (int v = 0; v < width; ++v)
          sums[r][width * p + v] += numbers[v] * x;
      }
    }
  };
  for (; k + unrolled <= depth; k += unrolled) {
    if constexpr (ahead == Ahead::quarter)
      __builtin_prefetch(next + k / unrolled * line, 0, 2);
    if constexpr (ahead == Ahead::all)
#pragma clang loop unroll(full)
      for (int p = 0; p < panels; ++p)
#pragma clang loop unroll(full)
        for (int64_t i = 0; i < unrolled * columns / line; ++i)
          __builtin_prefetch(panel + p * panel_step + k * columns + i * line + distance);
#pragma clang loop unroll(full)
    for (int64_t i = 0; i < unrolled; ++i)
      step(k + i);
  }
  for (; k < depth; ++k)
    step(k);
#pragma clang loop unroll(full)
  for (int r = 0; r < rows; ++r)
#pragma clang loop unroll(full)
    for (int v = 0; v < vectors; ++v)
      if (to.add)
        sums[r][v] += *reinterpret_cast<const Vector*>(to.out + r * to.row + v * lanes);
      else if (to.bias)
        sums[r][v] += *reinterpret_cast<const Vector*>(to.bias + v * lanes);
  if constexpr (!std::is_same_v<PostOps, NoPostOps>)
    post_ops(sums);
#pragma clang loop unroll(full)
  for (int r = 0; r < rows; ++r)
#pragma clang loop unroll(full)
    for (int v = 0; v < vectors; ++v)
      *reinterpret_cast<Vector*>(to.out + r * to.row + v * lanes) = sums[r][v];
}

}  // namespace zefuse::primitives
