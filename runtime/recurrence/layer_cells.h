// The cell's formula for a layer of f32 with the products of its input. It is simpler than that of steps.h, since there
// are no gates, no packed sequences and no projection.
#pragma once

#include <algorithm>

#include "runtime/recurrence/levels.h"
#include "runtime/recurrence/lstm_formula.h"

namespace zefuse::recurrence {

// Where unit or input `k`, a multiple of 16, is in a row.
constexpr int64_t placeInSplit(int64_t k) {
  return k / primitives::tile_depth * split_parts * primitives::tile_depth + k % primitives::tile_depth;
}

// x becomes itself with zeros behind the first `count`.
template <int lanes> [[gnu::always_inline]] inline void keepFirst(Vector<lanes>& x, int64_t count) {
  for (int64_t lane = std::max<int64_t>(count, 0); lane < lanes; ++lane)
    x[lane] = 0;
}

template <int lanes>
[[gnu::always_inline]] inline void addBias(LstmGates<lanes>& gates, const float* bias, int64_t hidden, int64_t count) {
  Vector<lanes> x;
  load<lanes>(x, bias, count);
  gates.i += x;
  load<lanes>(x, bias + hidden, count);
  gates.f += x;
  load<lanes>(x, bias + 2 * hidden, count);
  gates.g += x;
  load<lanes>(x, bias + 3 * hidden, count);
  gates.o += x;
}

// The formula of some rows from b on, from their sums; `n`: how many steps there were before. `splits`: the sums are of
// tiles, [4, 16, 16] and without the bias, and the hidden state is kept in parts for the next step; else they are
// [rows, 4, lanes].
template <int lanes, int rows, bool splits>
[[gnu::always_inline]] inline void layerCells(const Sequence& s, int64_t n, int64_t b, int64_t unit,
                                              const float* product) {
  const int64_t count = s.hidden - unit, H = s.hidden, t = s.step(n);
  const Tensor &activations = s.results[2], &cells = s.results[3], &last_cell = s.results[1];
  constexpr int64_t of_row = splits ? lanes : 4 * lanes, of_gate = splits ? primitives::tile_sums : lanes;
  LstmGates<lanes> gates[rows];
  Vector<lanes> cell[rows], hidden[rows];
#pragma clang loop unroll(full)
  for (int r = 0; r < rows; ++r, product += of_row) {
    load<lanes>(gates[r].i, product, lanes);
    load<lanes>(gates[r].f, product + of_gate, lanes);
    load<lanes>(gates[r].g, product + 2 * of_gate, lanes);
    load<lanes>(gates[r].o, product + 3 * of_gate, lanes);
    if constexpr (splits)
      addBias<lanes>(gates[r], s.operands[2].data + unit, H, count);
    const float* old = n == 0       ? s.operands[4].at(0, b + r)
                       : cells.data ? cells.at(s.step(n - 1), b + r)
                                    : s.cell_carry.at(0, b + r);
    load<lanes>(cell[r], old + unit, count);
  }
#pragma clang loop unroll(full)
  for (int r = 0; r < rows; ++r) {
    if (!activations.data) {
      lstmFormula<lanes, false>(gates[r], cell[r], hidden[r]);
      continue;
    }
    lstmFormula<lanes, true>(gates[r], cell[r], hidden[r]);
    float* row = activations.at(t, b + r) + unit;
    store<lanes>(row, gates[r].i, count);
    store<lanes>(row + H, gates[r].f, count);
    store<lanes>(row + 2 * H, gates[r].g, count);
    store<lanes>(row + 3 * H, gates[r].o, count);
  }
#pragma clang loop unroll(full)
  for (int r = 0; r < rows; ++r) {
    store<lanes>((cells.data ? cells.at(t, b + r) : s.cell_carry.at(0, b + r)) + unit, cell[r], count);
    store<lanes>(s.results[0].at(t, b + r) + unit, hidden[r], count);
    if constexpr (splits) {
      if (count < lanes)
        keepFirst<lanes>(hidden[r], count);
      primitives::storeSplit(s.splits.stateAt(n + 1, b + r) + placeInSplit(unit), primitives::tile_depth, hidden[r]);
    } else if (s.near_hidden.data) {
      store<lanes>(s.near_hidden.at(n & 1, b + r) + unit, hidden[r], count);
    }
    if (n + 1 < s.steps)
      continue;
    if (last_cell.data)
      store<lanes>(last_cell.at(0, b + r) + unit, cell[r], count);
    if (s.last_hidden.data)
      store<lanes>(s.last_hidden.at(0, b + r) + unit, hidden[r], count);
  }
}

}  // namespace zefuse::recurrence
