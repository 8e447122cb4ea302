// The loops over the steps of a recurrent layer, for one width of vectors. Everything is inlined into a function that
// is compiled for a level of processors (levels.h).
//
// A block of hidden units goes through a whole product, from the packed weight, with the sums of `rows` rows of the
// batch in registers; the cell's formula follows while its sums are near. Formulas: torch.nn.LSTM, GRU and RNN's
// documentation.
#pragma once

#include <algorithm>

#include "runtime/primitives/simd/amx_tiles.h"
#include "runtime/primitives/simd/vector_math.h"
#include "runtime/recurrence/lstm_formula.h"
#include "runtime/recurrence/sequence.h"
#include "runtime/recurrence/vectors.h"

namespace zefuse::recurrence {

// product [rows, vectors, lanes] = initial + left @ some of a block of the packed weight, [depth, vectors, lanes].
// initial: as product, but with rows `initial_row` apart. `ahead`: fetches what the next call reads, behind it in
// memory.
template <int lanes, int rows, int vectors, bool ahead>
[[gnu::always_inline]] inline void multiply(float* product, const float* initial, int64_t initial_row,
                                            const float* left, int64_t stride, const float* packed, int64_t depth) {
  Vector<lanes> sums[rows][vectors];
#pragma clang loop unroll(full)
  for (int r = 0; r < rows; ++r)
#pragma clang loop unroll(full)
    for (int v = 0; v < vectors; ++v)
      sums[r][v] = *reinterpret_cast<const Vector<lanes>*>(initial + r * initial_row + v * lanes);
  for (int64_t k = 0; k < depth; ++k, packed += vectors * lanes) {
    float x[rows];
#pragma clang loop unroll(full)
    for (int r = 0; r < rows; ++r)
      x[r] = left[r * stride + k];
#pragma clang loop unroll(full)
    for (int v = 0; v < vectors; ++v) {
      // One vector of the weight at a time: the compiler would load all first, for which it has not the registers, and
      // then move and spill sums in each turn.
      asm volatile("" ::: "memory");
      const Vector<lanes> right = *reinterpret_cast<const Vector<lanes>*>(packed + v * lanes);
      if constexpr (ahead)
        if (v * lanes % 16 == 0)  // a line of the cache
          __builtin_prefetch(packed + depth * vectors * lanes + v * lanes);
#pragma clang loop unroll(full)
      for (int r = 0; r < rows; ++r)
        sums[r][v] += right * x[r];
    }
  }
#pragma clang loop unroll(full)
  for (int r = 0; r < rows; ++r)
#pragma clang loop unroll(full)
    for (int v = 0; v < vectors; ++v)
      *reinterpret_cast<Vector<lanes>*>(product + (r * vectors + v) * lanes) = sums[r][v];
}

// sums += what multiply or, with `tiled`, multiplyTiles left for `rows` rows
template <int lanes, int rows, int vectors, bool tiled>
[[gnu::always_inline]] inline void addProduct(Vector<lanes> (&sums)[rows][vectors], const float* product) {
  constexpr int64_t of_row = tiled ? lanes : vectors * lanes, of_vector = tiled ? primitives::tile_sums : lanes;
#pragma clang loop unroll(full)
  for (int r = 0; r < rows; ++r)
#pragma clang loop unroll(full)
    for (int v = 0; v < vectors; ++v)
      sums[r][v] += *reinterpret_cast<const Vector<lanes>*>(product + v * of_vector + r * of_row);
}

// The hidden state for the next step's product.
template <int lanes>
[[gnu::always_inline]] inline void storeRounded(const Sequence& s, int64_t t, int64_t b, int64_t unit,
                                                const Vector<lanes>& x, int64_t count) {
  const int64_t number = s.reverse ? s.steps - 1 - t : t;
  storeRounded<lanes>(s.tiles.at(number + 1, b) + unit, x, count);
}

// The gradients of a step's products, at a place among a row's, for its own product in tiles.
template <int lanes, bool tiled>
[[gnu::always_inline]] inline void keepRounded(const Sequence& s, int64_t t, int64_t b, int64_t place,
                                               const Vector<lanes>& x, int64_t count) {
  if constexpr (tiled)
    if (!s.multiplies_gates)
      storeRounded<lanes>(s.tiles.at(s.step(t), b) + place, x, count);  // the t-th step is the step(t)-th computed
}

// The hidden state that row b has before a step.
[[gnu::always_inline]] inline const float* hiddenBefore(const Beside& before, const Tensor& output,
                                                        const Tensor& initial, int64_t b) {
  return b < before.rows ? output.at(before.place, b) : initial.at(0, b);
}

// Where packed sequences' hidden state goes beside the output.
template <int lanes>
[[gnu::always_inline]] inline void handOn(const Sequence& s, const Beside& after, int64_t b, int64_t unit,
                                          const Vector<lanes>& x, int64_t count) {
  if (b >= after.rows && s.last_hidden.data)
    store<lanes>(s.last_hidden.at(0, b) + unit, x, count);
  else if (b < after.rows && s.hidden_before.data)
    store<lanes>(s.hidden_before.at(after.place, b) + unit, x, count);
}

//===-- forward ------------------------------------------------------------------------------===//

// Operands: gates, weight, bias, hidden, cell. Results: output, last cell, activations (i, f, g, o), cells.
template <int lanes, int rows, bool tiled>
[[gnu::always_inline]] inline void lstmTile(const Sequence& s, int64_t t, int64_t b, int64_t block,
                                            const float* product) {
  const int64_t unit = block * lanes, count = s.hidden - unit, H = s.hidden;
  const Tensor &gates = s.operands[0], &output = s.results[0], &activations = s.results[2], &cells = s.results[3];
  const float* bias = s.operands[2].data;
  const int64_t place = s.place(t);
  const Beside before = s.before(t), after = s.after(t);
  Vector<lanes> sums[rows][4], x;
#pragma clang loop unroll(full)
  for (int r = 0; r < rows; ++r)
#pragma clang loop unroll(full)
    for (int g = 0; g < 4; ++g) {
      load<lanes>(sums[r][g], bias + g * H + unit, count);
      if (!gates.data)
        continue;  // the product has them
      load<lanes>(x, gates.at(place, b + r) + g * H + unit, count);
      sums[r][g] += x;
    }
  addProduct<lanes, rows, 4, tiled>(sums, product);

#pragma clang loop unroll(full)
  for (int r = 0; r < rows; ++r) {
    const float* old = b + r >= before.rows ? s.operands[4].at(0, b + r)
                       : cells.data         ? cells.at(before.place, b + r)
                                            : s.cell_carry.at(0, b + r);
    Vector<lanes> cell;
    load<lanes>(cell, old + unit, count);
    LstmGates<lanes> of_row{sums[r][0], sums[r][1], sums[r][2], sums[r][3]};
    if (activations.data) {
      lstmFormula<lanes, true>(of_row, cell, x);
      float* row = activations.at(place, b + r) + unit;
      store<lanes>(row, of_row.i, count);
      store<lanes>(row + H, of_row.f, count);
      store<lanes>(row + 2 * H, of_row.g, count);
      store<lanes>(row + 3 * H, of_row.o, count);
    } else if (tiled && s.narrow_activations.data) {
      lstmFormula<lanes, true>(of_row, cell, x);
      _Float16* row = s.narrow_activations.at(place, b + r) + unit;
      storeNarrow<lanes, tiled>(row, of_row.i, count);
      storeNarrow<lanes, tiled>(row + H, of_row.f, count);
      storeNarrow<lanes, tiled>(row + 2 * H, of_row.g, count);
      storeNarrow<lanes, tiled>(row + 3 * H, of_row.o, count);
    } else {
      lstmFormula<lanes, false>(of_row, cell, x);
    }
    store<lanes>((cells.data ? cells.at(place, b + r) : s.cell_carry.at(0, b + r)) + unit, cell, count);
    if (s.projected && tiled) {
      storeRounded<lanes>(s.tiles.unprojected + (b + r) * s.tiles.unprojected_depth + unit, x, count);
    } else if (s.projected) {
      store<lanes>(s.unprojected.at(0, b + r) + unit, x, count);
    } else {
      if (output.data)
        store<lanes>(output.at(place, b + r) + unit, x, count);
      if constexpr (tiled) {
        storeRounded<lanes>(s, t, b + r, unit, x, count);
        if (s.tiles.output)
          storeRounded<lanes>(s.tiles.output + place * s.tiles.output_step + (b + r) * s.tiles.output_row + unit, x,
                              count);
      }
      handOn<lanes>(s, after, b + r, unit, x, count);
    }
    if (b + r >= after.rows && s.results[1].data)
      store<lanes>(s.results[1].at(0, b + r) + unit, cell, count);
  }
}

// Operands: gates, weight, bias, hidden. Results: output, activations (r, z, n, and the product behind n).
template <int lanes, int rows, bool tiled>
[[gnu::always_inline]] inline void gruTile(const Sequence& s, int64_t t, int64_t b, int64_t block,
                                           const float* product) {
  const int64_t unit = block * lanes, count = s.hidden - unit, H = s.hidden;
  const Tensor &gates = s.operands[0], &output = s.results[0], &activations = s.results[1];
  const float* bias = s.operands[2].data;
  const int64_t place = s.place(t);
  const Beside before = s.before(t), after = s.after(t);
  Vector<lanes> sums[rows][3], x;
#pragma clang loop unroll(full)
  for (int r = 0; r < rows; ++r)
#pragma clang loop unroll(full)
    for (int g = 0; g < 3; ++g) {
      load<lanes>(sums[r][g], bias + g * H + unit, count);
      if (g == 2)
        continue;  // the reset gate comes between the two
      load<lanes>(x, gates.at(place, b + r) + g * H + unit, count);
      sums[r][g] += x;
    }
  addProduct<lanes, rows, 3, tiled>(sums, product);

#pragma clang loop unroll(full)
  for (int r = 0; r < rows; ++r) {
    primitives::sigmoid<lanes>(sums[r][0]);
    primitives::sigmoid<lanes>(sums[r][1]);
    Vector<lanes> candidate;
    load<lanes>(candidate, gates.at(place, b + r) + 2 * H + unit, count);
    candidate += sums[r][0] * sums[r][2];
    primitives::hyperbolicTangent<lanes>(candidate);
    load<lanes>(x, hiddenBefore(before, output, s.operands[3], b + r) + unit, count);
    x = (x - candidate) * sums[r][1] + candidate;
    store<lanes>(output.at(place, b + r) + unit, x, count);
    if constexpr (tiled)
      storeRounded<lanes>(s, t, b + r, unit, x, count);
    handOn<lanes>(s, after, b + r, unit, x, count);
    if (activations.data) {
      float* row = activations.at(place, b + r) + unit;
      store<lanes>(row, sums[r][0], count);
      store<lanes>(row + H, sums[r][1], count);
      store<lanes>(row + 2 * H, candidate, count);
      store<lanes>(row + 3 * H, sums[r][2], count);
    }
  }
}

// Operands: gates, weight, bias, hidden. Result: output.
template <int lanes, int rows, bool tiled>
[[gnu::always_inline]] inline void plainTile(const Sequence& s, int64_t t, int64_t b, int64_t block,
                                             const float* product) {
  const int64_t H = s.hidden;
  const Tensor &gates = s.operands[0], &output = s.results[0];
  const float* bias = s.operands[2].data;
  const int64_t place = s.place(t);
  const Beside after = s.after(t);
  Vector<lanes> sums[rows][4], x;
#pragma clang loop unroll(full)
  for (int v = 0; v < 4; ++v) {
    const int64_t unit = (block * 4 + v) * lanes, count = H - unit;
    load<lanes>(x, bias + unit, count);
#pragma clang loop unroll(full)
    for (int r = 0; r < rows; ++r) {
      load<lanes>(sums[r][v], gates.at(place, b + r) + unit, count);
      sums[r][v] += x;
    }
  }
  addProduct<lanes, rows, 4, tiled>(sums, product);

  const Vector<lanes> zero = {};
#pragma clang loop unroll(full)
  for (int r = 0; r < rows; ++r)
#pragma clang loop unroll(full)
    for (int v = 0; v < 4; ++v) {
      const int64_t unit = (block * 4 + v) * lanes, count = H - unit;
      if (s.cell == plan::RecurrentCell::tanh)
        primitives::hyperbolicTangent<lanes>(sums[r][v]);
      else
        sums[r][v] = sums[r][v] < 0.f ? zero : sums[r][v];  // NaN stays
      store<lanes>(output.at(place, b + r) + unit, sums[r][v], count);
      handOn<lanes>(s, after, b + r, unit, sums[r][v], count);
      if constexpr (tiled)
        storeRounded<lanes>(s, t, b + r, unit, sums[r][v], count);
    }
}

//===-- derivative ---------------------------------------------------------------------------===//

// Adds the gradients of a step's gates to those of the steps before, for the bias.
template <int lanes>
[[gnu::always_inline]] inline void addToBias(const Sequence& s, int64_t b, int64_t place, const Vector<lanes>& x,
                                             int64_t count) {
  if (!s.bias_sums.data)
    return;
  float* to = s.bias_sums.at(0, b / s.rows_of_sum) + place;
  Vector<lanes> sum;
  load<lanes>(sum, to, count);
  store<lanes>(to, sum + x, count);
}

// Operands: gradients of output and last cell, weight, cell, cells, activations, projection. Results: gradients of
// gates, hidden, cell, output with what later steps add. `projected`: what the gradient of the latter gives for these
// units.
template <int lanes, bool tiled = false>
[[gnu::always_inline]] inline void lstmGradient(const Sequence& s, int64_t t, int64_t b, int64_t unit,
                                                const float* projected = nullptr) {
  const int64_t count = s.hidden - unit, H = s.hidden, place = s.place(t);
  const Beside before = s.before(t);
  const Tensor &cells = s.operands[4], &activations = s.operands[5], &gradient = s.results[0];
  Vector<lanes> dh, carried = {}, dc, c, old, i, f, g, o;
  if (tiled && s.narrow_gradient.data)
    loadNarrow<lanes, tiled>(dh, s.narrow_gradient.at(place, b) + unit, count);
  else
    load<lanes>(dh, projected ? projected : s.operands[0].at(place, b) + unit, count);
  if (!projected)
    load<lanes>(carried, s.hidden_carry.at(0, b) + unit, count);
  load<lanes>(dc, s.cell_carry.at(0, b) + unit, count);
  load<lanes>(c, cells.at(place, b) + unit, count);
  load<lanes>(old, (b < before.rows ? cells.at(before.place, b) : s.operands[3].at(0, b)) + unit, count);
  if (tiled && s.narrow_activations.data) {
    const _Float16* row = s.narrow_activations.at(place, b) + unit;
    loadNarrow<lanes, tiled>(i, row, count);
    loadNarrow<lanes, tiled>(f, row + H, count);
    loadNarrow<lanes, tiled>(g, row + 2 * H, count);
    loadNarrow<lanes, tiled>(o, row + 3 * H, count);
  } else {
    const float* row = activations.at(place, b) + unit;
    load<lanes>(i, row, count);
    load<lanes>(f, row + H, count);
    load<lanes>(g, row + 2 * H, count);
    load<lanes>(o, row + 3 * H, count);
  }
  dh += carried;
  primitives::hyperbolicTangent<lanes>(c);
  dc += dh * o * (1.f - c * c);
  const Vector<lanes> gates[] = {dc * g * i * (1.f - i), dc * old * f * (1.f - f), dc * i * (1.f - g * g),
                                 dh * c * o * (1.f - o)};
#pragma clang loop unroll(full)
  for (int gate = 0; gate < 4; ++gate) {
    const int64_t at = gate * H + unit;
    if (tiled && s.narrow_gates.data)
      storeNarrow<lanes, tiled>(s.narrow_gates.at(place, b) + at, gates[gate], count);
    else
      store<lanes>(gradient.at(place, b) + at, gates[gate], count);
    keepRounded<lanes, tiled>(s, t, b, at, gates[gate], count);
    addToBias<lanes>(s, b, at, gates[gate], count);
  }
  store<lanes>(s.cell_carry.at(0, b) + unit, dc * f, count);
  if (!projected)
    store<lanes>(s.hidden_carry.at(0, b) + unit, Vector<lanes>{}, count);
}

// Operands: gradient of output, weight, hidden, output, activations. Results: gradients of gates (of the input's side),
// of the products with the hidden state, of hidden.
template <int lanes, bool tiled>
[[gnu::always_inline]] inline void gruGradient(const Sequence& s, int64_t t, int64_t b, int64_t unit) {
  const int64_t count = s.hidden - unit, H = s.hidden, place = s.place(t);
  Vector<lanes> dh, carried, old, r, z, n, product;
  load<lanes>(dh, s.operands[0].at(place, b) + unit, count);
  load<lanes>(carried, s.hidden_carry.at(0, b) + unit, count);
  load<lanes>(old, hiddenBefore(s.before(t), s.operands[3], s.operands[2], b) + unit, count);
  const float* row = s.operands[4].at(place, b) + unit;
  load<lanes>(r, row, count);
  load<lanes>(z, row + H, count);
  load<lanes>(n, row + 2 * H, count);
  load<lanes>(product, row + 3 * H, count);
  dh += carried;
  const Vector<lanes> dn = dh * (1.f - z) * (1.f - n * n), dz = dh * (old - n) * z * (1.f - z),
                      dr = dn * product * r * (1.f - r);
  float *gates = s.results[0].at(place, b) + unit, *products = s.results[1].at(place, b) + unit;
  store<lanes>(gates, dr, count);
  store<lanes>(gates + H, dz, count);
  store<lanes>(gates + 2 * H, dn, count);
  const Vector<lanes> of_products[] = {dr, dz, dn * r};
#pragma clang loop unroll(full)
  for (int gate = 0; gate < 3; ++gate) {
    store<lanes>(products + gate * H, of_products[gate], count);
    keepRounded<lanes, tiled>(s, t, b, gate * H + unit, of_products[gate], count);
  }
  store<lanes>(s.hidden_carry.at(0, b) + unit, dh * z, count);
}

// Operands: gradient of output, weight, output. Results: gradients of gates, hidden.
template <int lanes, bool tiled>
[[gnu::always_inline]] inline void plainGradient(const Sequence& s, int64_t t, int64_t b, int64_t unit) {
  const int64_t count = s.hidden - unit, place = s.place(t);
  Vector<lanes> dh, carried, h;
  load<lanes>(dh, s.operands[0].at(place, b) + unit, count);
  load<lanes>(carried, s.hidden_carry.at(0, b) + unit, count);
  load<lanes>(h, s.operands[2].at(place, b) + unit, count);
  dh += carried;
  const Vector<lanes> zero = {};
  const Vector<lanes> through = s.cell == plan::RecurrentCell::tanh ? dh * (1.f - h * h) : h > 0.f ? dh : zero;
  store<lanes>(s.results[0].at(place, b) + unit, through, count);
  keepRounded<lanes, tiled>(s, t, b, unit, through, count);
  store<lanes>(s.hidden_carry.at(0, b) + unit, zero, count);
}

// hidden_carry += gradients of the products @ weight
template <int lanes, int rows, bool tiled>
[[gnu::always_inline]] inline void carryTile(const Sequence& s, int64_t b, int64_t block, const float* product) {
  Vector<lanes> sums[rows][4];
#pragma clang loop unroll(full)
  for (int r = 0; r < rows; ++r)
#pragma clang loop unroll(full)
    for (int v = 0; v < 4; ++v) {
      const int64_t unit = (block * 4 + v) * lanes;
      load<lanes>(sums[r][v], s.hidden_carry.at(0, b + r) + unit, s.outputs - unit);
    }
  addProduct<lanes, rows, 4, tiled>(sums, product);
#pragma clang loop unroll(full)
  for (int r = 0; r < rows; ++r)
#pragma clang loop unroll(full)
    for (int v = 0; v < 4; ++v) {
      const int64_t unit = (block * 4 + v) * lanes;
      store<lanes>(s.hidden_carry.at(0, b + r) + unit, sums[r][v], s.outputs - unit);
    }
}

//===-- a thread's share ---------------------------------------------------------------------===//

// `product`: the rows' of multiply, or with `tiled` of multiplyTiles.
template <int lanes, int rows, bool tiled>
[[gnu::always_inline]] inline void tile(const Sequence& s, int64_t t, int64_t b, int64_t block, const float* product) {
  if (s.gradient)
    carryTile<lanes, rows, tiled>(s, b, block, product);
  else if (s.cell == plan::RecurrentCell::lstm)
    lstmTile<lanes, rows, tiled>(s, t, b, block, product);
  else if (s.cell == plan::RecurrentCell::gru)
    gruTile<lanes, rows, tiled>(s, t, b, block, product);
  else
    plainTile<lanes, rows, tiled>(s, t, b, block, product);
}

template <int lanes, int rows, bool tiled = false>
[[gnu::always_inline]] inline void tileOf(const Sequence& s, int64_t t, int64_t b, int64_t block, int64_t wanted,
                                          const float* product) {
  if constexpr (rows > 1) {
    if (wanted < rows)
      return tileOf<lanes, rows - 1, tiled>(s, t, b, block, wanted, product);
  }
  tile<lanes, rows, tiled>(s, t, b, block, product);
}

// Fetches some of what the formula of a block's rows begin to end will read and write: the part-th of `parts`. Their
// lines lie as far apart as rows and gates do, which no processor foresees; the product meanwhile reads what is near.
template <int lanes, int vectors>
[[gnu::always_inline]] inline void fetchAhead(const Sequence& s, int64_t t, int64_t begin, int64_t end, int64_t block,
                                              int64_t part, int64_t parts) {
  if (s.gradient)
    return;  // its formulas walk along whole rows
  const bool plain = s.cell != plan::RecurrentCell::lstm && s.cell != plan::RecurrentCell::gru;
  const int64_t unit = block * lanes * (plain ? vectors : 1), apart = plain ? lanes : s.hidden, place = s.place(t);
  const Tensor& activations = s.results[s.cell == plan::RecurrentCell::lstm ? 2 : 1];
  for (int64_t v = vectors * part / parts; v < vectors * (part + 1) / parts; ++v)
    for (int64_t b = begin; b < end; ++b) {
      if (s.operands[0].data)
        __builtin_prefetch(s.operands[0].at(place, b) + v * apart + unit);
      if (!plain && activations.data)
        __builtin_prefetch(activations.at(place, b) + v * apart + unit, 1);
    }
  if (part + 1 == parts && s.results[0].data && !s.projected)
    for (int64_t b = begin; b < end; ++b)
      __builtin_prefetch(s.results[0].at(place, b) + unit, 1);
}

template <int lanes, int rows, int vectors>
[[gnu::always_inline]] inline void multiplyOf(int64_t wanted, bool ahead, float* product, const float* initial,
                                              int64_t initial_row, const float* left, int64_t stride,
                                              const float* packed, int64_t depth) {
  if constexpr (rows > 1) {
    if (wanted < rows)
      return multiplyOf<lanes, rows - 1, vectors>(wanted, ahead, product, initial, initial_row, left, stride, packed,
                                                  depth);
  }
  if (ahead)
    multiply<lanes, rows, vectors, true>(product, initial, initial_row, left, stride, packed, depth);
  else
    multiply<lanes, rows, vectors, false>(product, initial, initial_row, left, stride, packed, depth);
}

// product = `count` rows of left @ a block of the packed weight, by pieces of the weight that the nearest cache holds
// for all tiles of rows: a weight that no near cache holds is read once a step, not once a tile. `formula`: of what the
// cell's formula of these rows, from `begin` on, will read, some is fetched meanwhile.
template <int lanes, int rows, int vectors, bool formula>
[[gnu::always_inline]] inline void multiplyRows(const Sequence& s, int64_t t, int64_t begin, int64_t count,
                                                int64_t block, const float* left, int64_t stride, const float* packed,
                                                int64_t depth, float* product) {
  constexpr int64_t piece = 64;
  alignas(64) static constexpr float zeros[vectors * lanes] = {};
  // Tiles as equal as can be: one of few rows waits for the weight.
  const int64_t tiles = (count + rows - 1) / rows, pieces = (depth + piece - 1) / piece;
  for (int64_t k = 0; k < depth; k += piece, packed += piece * vectors * lanes)
    for (int64_t tile = 0; tile < tiles; ++tile) {
      const int64_t from = count * tile / tiles, to = count * (tile + 1) / tiles;
      if constexpr (formula)
        fetchAhead<lanes, vectors>(s, t, begin + from, begin + to, block, k / piece, pieces);
      float* sums = product + from * vectors * lanes;
      multiplyOf<lanes, rows, vectors>(to - from, tile + 1 == tiles, sums, k == 0 ? zeros : sums,
                                       k == 0 ? 0 : vectors * lanes, left + from * stride + k, stride, packed,
                                       std::min(piece, depth - k));
    }
}

// A block's units of some rows: the product, then the cell's formula.
template <int lanes, int rows, int vectors>
[[gnu::always_inline]] inline void units(const Sequence& s, int64_t t, int64_t begin, int64_t end, int64_t block,
                                         float* product) {
  const Tensor& gradients = s.cell == plan::RecurrentCell::gru ? s.results[1] : s.results[0];
  const bool begins = !s.gradient && begin >= s.before(t).rows;  // all its rows, or none
  const float* left =
      s.gradient ? gradients.at(s.place(t), begin) : hiddenBefore(s.before(t), s.results[0], s.operands[3], begin);
  const int64_t stride = s.gradient ? gradients.row : begins ? s.operands[3].row : s.results[0].row;
  const int64_t depth = s.gradient ? s.gates * s.hidden : s.outputs;
  const float* packed = s.packed + block * depth * vectors * lanes;
  multiplyRows<lanes, rows, vectors, true>(s, t, begin, end - begin, block, left, stride, packed, depth, product);
  for (int64_t b = begin; b < end; b += 2)
    tileOf<lanes, 2>(s, t, b, block, end - b, product + (b - begin) * vectors * lanes);
}

// Where a hidden state goes that is a projection, from its product.
template <int lanes, bool tiled>
[[gnu::always_inline]] inline void storeProjected(const Sequence& s, int64_t t, int64_t b, int64_t block,
                                                  const float* product) {
  const int64_t place = s.place(t);
  const Beside after = s.after(t);
#pragma clang loop unroll(full)
  for (int v = 0; v < 4; ++v) {
    const int64_t unit = (block * 4 + v) * lanes, count = s.outputs - unit;
    const Vector<lanes> x =
        *reinterpret_cast<const Vector<lanes>*>(product + v * (tiled ? primitives::tile_sums : lanes));
    store<lanes>(s.results[0].at(place, b) + unit, x, count);
    if constexpr (tiled)
      storeRounded<lanes>(s, t, b, unit, x, count);
    handOn<lanes>(s, after, b, unit, x, count);
  }
}

// Of a step's rows, and the units of the share.
template <int lanes, bool tiled = false>
[[gnu::always_inline]] inline void gradientOfCells(const Sequence& s, const Share& share, int64_t t, int64_t begin,
                                                   int64_t end) {
  const int64_t first = share.first_block * 4 * lanes, last = std::min(share.last_block * 4 * lanes, s.hidden);
  for (int64_t b = begin; b < end; ++b)
    for (int64_t unit = first; unit < last; unit += lanes) {
      if (s.cell == plan::RecurrentCell::lstm)
        lstmGradient<lanes, tiled>(s, t, b, unit);
      else if (s.cell == plan::RecurrentCell::gru)
        gruGradient<lanes, tiled>(s, t, b, unit);
      else
        plainGradient<lanes, tiled>(s, t, b, unit);
    }
}

template <int lanes, int rows> [[gnu::always_inline]] inline void runSteps(const Sequence& s, const Share& share) {
  constexpr int64_t most = 6 * rows;  // whose sums stay in the nearest cache beside a piece of the weight
  alignas(64) float product[most * 4 * lanes];
  for (int64_t n = 0; n < s.steps; ++n) {
    const int64_t t = s.step(n);
    // The product reads all units of its rows: those of the step before, or of this step's gradients.
    if (s.gradient)
      gradientOfCells<lanes>(s, share, t, share.first_row, std::min(share.last_row, s.rowsOf(t)));
    if (share.meeting && (s.gradient || n > 0))
      share.meeting->wait(share.parts, s.gradient ? n + 1 : n);
    const int64_t last_row = std::min(share.last_row, s.rowsOf(t)), going_on = s.gradient ? 0 : s.before(t).rows;
    for (int64_t block = share.first_block; block < share.last_block; ++block)
      for (int64_t b = share.first_row, end; b < last_row; b = end) {
        end = std::min(b + most, last_row);
        if (b < going_on)  // rows that begin here have their hidden state elsewhere
          end = std::min(end, going_on);
        if (!s.gradient && s.cell == plan::RecurrentCell::gru)
          units<lanes, rows, 3>(s, t, b, end, block, product);
        else
          units<lanes, rows, 4>(s, t, b, end, block, product);
      }
  }
}

}  // namespace zefuse::recurrence
