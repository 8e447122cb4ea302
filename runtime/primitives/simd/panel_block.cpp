#include "runtime/primitives/simd/panel_block.h"

#include <algorithm>

#include "runtime/primitives/simd/cpu_isa.h"
#include "runtime/primitives/simd/panel_packing.h"
#include "runtime/primitives/simd/vector_memory.h"

namespace zefuse::primitives {

namespace {

constexpr int vectors = 2;  // of a panel
// 24 of 32 registers, 12 of 16, hold sums.
template <int lanes> constexpr int rows_of = lanes == 16 ? 12 : 6;
template <int lanes> constexpr int64_t columns_of = vectors * lanes;

// Eight lines at a time, of which the last ones may be zeros: there is room for them.
[[gnu::always_inline]] inline void transposeLines(const float* from, int64_t row, int64_t count, int64_t depth,
                                                  float* to) {
  for (int64_t line = 0; line < count; line += 8)
    interleaveLines({from + line * row, row, 1, std::min<int64_t>(8, count - line), depth}, to + line, block_line);
}

template <int lanes>
[[gnu::always_inline]] inline void panelsOfLines(const float* from, int64_t row, int64_t count, int64_t depth,
                                                 float* to) {
  constexpr int64_t columns = columns_of<lanes>;
  for (int64_t line = 0; line < count; line += 8)
    interleaveLines({from + line * row, row, 1, std::min<int64_t>(8, count - line), depth},
                    to + line / columns * depth * columns + line % columns, columns);
}

template <int lanes>
[[gnu::always_inline]] inline void panelsOfRows(const float* from, int64_t row, int64_t count, int64_t width,
                                                float* to) {
  constexpr int64_t columns = columns_of<lanes>;
  for (int64_t first = 0; first < width; first += columns)
    for (int64_t i = 0; i < count; ++i, to += columns)
#pragma clang loop unroll(full)
      for (int v = 0; v < vectors; ++v) {
        typename VectorOf<lanes>::Float numbers;
        load<lanes>(numbers, from + i * row + first + v * lanes, width - first - v * lanes);
        *reinterpret_cast<typename VectorOf<lanes>::Float*>(to + v * lanes) = numbers;
      }
}

// `columns`: of the result that there are, where its rows have no room for more.
template <int lanes, int rows, bool transposed>
[[gnu::always_inline]] inline void multiplyRows(int64_t k, const float* left, const float* panel, const BlockResult& to,
                                                float* out, int64_t columns) {
  using V = typename VectorOf<lanes>::Float;
  constexpr int64_t along = transposed ? block_line : 1, across = transposed ? 1 : block_line;
  V sums[rows][vectors];
#pragma clang loop unroll(full)
  for (int r = 0; r < rows; ++r)
#pragma clang loop unroll(full)
    for (int v = 0; v < vectors; ++v)
      sums[r][v] = V{};
#pragma clang loop unroll_count(4)
  for (int64_t i = 0; i < k; ++i) {
    V numbers[vectors];
#pragma clang loop unroll(full)
    for (int v = 0; v < vectors; ++v)
      numbers[v] = *reinterpret_cast<const V*>(panel + i * columns_of<lanes> + v * lanes);
#pragma clang loop unroll(full)
    for (int r = 0; r < rows; ++r) {
      const float x = left[i * along + r * across];
#pragma clang loop unroll(full)
      for (int v = 0; v < vectors; ++v)
        sums[r][v] += numbers[v] * x;
    }
  }
#pragma clang loop unroll(full)
  for (int r = 0; r < rows; ++r)
#pragma clang loop unroll(full)
    for (int v = 0; v < vectors; ++v) {
      float* place = out + r * to.row + v * lanes;
      const int64_t count = columns - v * lanes;
      sums[r][v] *= to.factor;
      if (to.add) {
        V before;
        load<lanes>(before, place, count);
        sums[r][v] += before;
      }
      store<lanes>(place, sums[r][v], count);
    }
}

template <int lanes, int rows, bool transposed>
[[gnu::always_inline]] inline void multiplySome(int64_t some, int64_t k, const float* left, const float* panel,
                                                const BlockResult& to, float* out, int64_t columns) {
  if (some == rows)
    multiplyRows<lanes, rows, transposed>(k, left, panel, to, out, columns);
  else if constexpr (rows > 1)
    multiplySome<lanes, rows - 1, transposed>(some, k, left, panel, to, out, columns);
}

template <int lanes, bool transposed>
[[gnu::always_inline]] inline void multiplyAll(int64_t m, int64_t n, int64_t k, const float* left, const float* panels,
                                               int64_t step, const BlockResult& to) {
  constexpr int64_t rows = rows_of<lanes>, columns = columns_of<lanes>;
  const int64_t groups = (m + rows - 1) / rows, group = (m + groups - 1) / groups;
  for (int64_t first = 0; first < n; first += columns, panels += step)
    for (int64_t row = 0; row < m; row += group)
      multiplySome<lanes, rows, transposed>(std::min(group, m - row), k, left + row * (transposed ? 1 : block_line),
                                            panels, to, to.data + row * to.row + first,
                                            to.whole ? columns : std::min(columns, n - first));
}

[[ZEFUSE_AVX512]] void transposeAvx512(const float* from, int64_t row, int64_t count, int64_t depth, float* to) {
  transposeLines(from, row, count, depth, to);
}
[[ZEFUSE_AVX512]] void packLinesAvx512(const float* from, int64_t row, int64_t count, int64_t depth, float* to) {
  panelsOfLines<16>(from, row, count, depth, to);
}
[[ZEFUSE_AVX512]] void packRowsAvx512(const float* from, int64_t row, int64_t count, int64_t width, float* to) {
  panelsOfRows<16>(from, row, count, width, to);
}
[[ZEFUSE_AVX512]] void multiplyAvx512(bool transposed, int64_t m, int64_t n, int64_t k, const float* left,
                                      const float* panels, int64_t step, const BlockResult& to) {
  transposed ? multiplyAll<16, true>(m, n, k, left, panels, step, to)
             : multiplyAll<16, false>(m, n, k, left, panels, step, to);
}

[[ZEFUSE_AVX2]] void transposeAvx2(const float* from, int64_t row, int64_t count, int64_t depth, float* to) {
  transposeLines(from, row, count, depth, to);
}
[[ZEFUSE_AVX2]] void packLinesAvx2(const float* from, int64_t row, int64_t count, int64_t depth, float* to) {
  panelsOfLines<8>(from, row, count, depth, to);
}
[[ZEFUSE_AVX2]] void packRowsAvx2(const float* from, int64_t row, int64_t count, int64_t width, float* to) {
  panelsOfRows<8>(from, row, count, width, to);
}
[[ZEFUSE_AVX2]] void multiplyAvx2(bool transposed, int64_t m, int64_t n, int64_t k, const float* left,
                                  const float* panels, int64_t step, const BlockResult& to) {
  transposed ? multiplyAll<8, true>(m, n, k, left, panels, step, to)
             : multiplyAll<8, false>(m, n, k, left, panels, step, to);
}

}  // namespace

const PanelBlockLevel* panelBlockLevel() {
  static constexpr PanelBlockLevel avx512 = {columns_of<16>, transposeAvx512, packLinesAvx512, packRowsAvx512,
                                             multiplyAvx512};
  static constexpr PanelBlockLevel avx2 = {columns_of<8>, transposeAvx2, packLinesAvx2, packRowsAvx2, multiplyAvx2};
  return hasIsa(dnnl_cpu_isa_avx512_core) ? &avx512 : hasIsa(dnnl_cpu_isa_avx2) ? &avx2 : nullptr;
}

}  // namespace zefuse::primitives
