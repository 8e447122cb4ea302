// The loops over the steps of an LSTM of f32 whose input is multiplied with it. A block of units of up to 24 rows goes
// through the products with the input and with the state by pieces of the weights that the nearest cache holds, the
// sums of some rows at a time in registers; the formula then reads them from that cache.
#pragma once

#include "runtime/recurrence/layer_cells.h"
#include "runtime/recurrence/steps.h"

namespace zefuse::recurrence {

// Of weights that take more, each block is fetched from a far cache while the one before is multiplied.
constexpr int64_t near_weights = 1 << 18;  // floats: half of a second-level cache of 2 MiB
constexpr int64_t layer_piece = 64;        // of the weights' depth

// What a group of rows multiplies with a block of the packed weight of the input, or of the state.
struct LayerFactor {
  const float* left;
  int64_t stride, depth;
  const float* packed;
};

// The weights of the block that follows, which are fetched into the second-level cache by parts in the order of memory.
struct BlockAhead {
  const float *of_input, *of_state;
  int64_t input_lines, lines;  // of a cache; `lines`: of both, 0 if a near cache holds them
  int64_t parts, part = 0;

  [[gnu::always_inline]] inline void fetchPart() {
    const int64_t end = lines * (part + 1) / parts;
    for (int64_t line = lines * part / parts; line < end; ++line)
      __builtin_prefetch(line < input_lines ? of_input + line * 16 : of_state + (line - input_lines) * 16, 0, 2);
    ++part;
  }
};

// product [count, 4, lanes] = bias [4, lanes] + the factors' products
template <int lanes, int rows>
[[gnu::always_inline]] inline void multiplyLayer(const LayerFactor (&factors)[2], int64_t count, const float* bias,
                                                 float* product, BlockAhead& ahead) {
  constexpr int64_t width = 4 * lanes;
  const int64_t tiles = (count + rows - 1) / rows;
  const float* initial = bias;
  int64_t initial_row = 0;
  for (const LayerFactor& f : factors)
    for (int64_t k = 0; k < f.depth; k += layer_piece) {
      for (int64_t tile = 0; tile < tiles; ++tile) {
        const int64_t from = count * tile / tiles, to = count * (tile + 1) / tiles;
        if (ahead.lines > 0)
          ahead.fetchPart();
        multiplyOf<lanes, rows, 4>(to - from, false, product + from * width, initial + from * initial_row, initial_row,
                                   f.left + from * f.stride + k, f.stride, f.packed + k * width,
                                   std::min(layer_piece, f.depth - k));
      }
      initial = product;
      initial_row = width;
    }
}

// Several threads that have the same rows would each copy them.
[[gnu::always_inline]] inline bool copiesInput(const Sequence& s, const Share& share) {
  return s.near_input.data && !share.meeting;
}

// A step of a block of units. `far`: fetches the weights of the next.
template <int lanes, int rows>
[[gnu::always_inline]] inline void layerBlock(const Sequence& s, const Share& share, int64_t n, int64_t block,
                                              bool far) {
  constexpr int64_t most = 24, width = 4 * lanes;
  alignas(64) float product[most * width], bias[width];
  const int64_t unit = block * lanes, next = block + 1 < share.last_block ? block + 1 : share.first_block;
#pragma clang loop unroll(full)
  for (int gate = 0; gate < 4; ++gate) {
    Vector<lanes> x;
    load<lanes>(x, s.operands[2].data + gate * s.hidden + unit, s.hidden - unit);
    store<lanes>(bias + gate * lanes, x, lanes);
  }
  const int64_t count = share.last_row - share.first_row, groups = (count + most - 1) / most;
  const bool near_input = copiesInput(s, share), near_hidden = s.near_hidden.data != nullptr;
  const Tensor& input = near_input ? s.near_input : s.input;
  const Tensor& states = n == 0 ? s.operands[3] : near_hidden ? s.near_hidden : s.results[0];
  const int64_t t = near_input ? 0 : s.step(n), before = n == 0 ? 0 : near_hidden ? (n - 1) & 1 : s.step(n - 1);
  const int64_t of_input = s.inputs * width, of_state = s.hidden * width;  // numbers of a block
  const int64_t pieces = (s.inputs + layer_piece - 1) / layer_piece + (s.hidden + layer_piece - 1) / layer_piece;
  const int64_t tiles = ((count + groups - 1) / groups + rows - 1) / rows;  // of the largest group
  BlockAhead ahead{s.packed_input + next * of_input, s.packed + next * of_state, of_input / 16,
                   far ? (of_input + of_state) / 16 : 0, pieces * groups * tiles};
  for (int64_t group = 0; group < groups; ++group) {
    const int64_t begin = share.first_row + count * group / groups;
    const int64_t end = share.first_row + count * (group + 1) / groups;
    const LayerFactor factors[] = {{input.at(t, begin), input.row, s.inputs, s.packed_input + block * of_input},
                                   {states.at(before, begin), states.row, s.hidden, s.packed + block * of_state}};
    multiplyLayer<lanes, rows>(factors, end - begin, bias, product, ahead);
    int64_t b = begin;
    for (; b + 2 <= end; b += 2)
      layerCells<lanes, 2, false>(s, n, b, unit, product + (b - begin) * width);
    if (b < end)
      layerCells<lanes, 1, false>(s, n, b, unit, product + (b - begin) * width);
  }
}

// A step's input to where its rows do not share lines of the nearest cache.
template <int lanes> [[gnu::always_inline]] inline void copyInput(const Sequence& s, const Share& share, int64_t n) {
  const int64_t t = s.step(n);
  for (int64_t b = share.first_row; b < share.last_row; ++b)
    for (int64_t k = 0; k < s.inputs; k += lanes) {
      Vector<lanes> x;
      load<lanes>(x, s.input.at(t, b) + k, s.inputs - k);
      store<lanes>(s.near_input.at(0, b) + k, x, s.inputs - k);
    }
}

template <int lanes, int rows> [[gnu::always_inline]] inline void runLayer(const Sequence& s, const Share& share) {
  const int64_t blocks = share.last_block - share.first_block;
  const bool far = blocks * 4 * lanes * (s.inputs + s.hidden) > near_weights;
  for (int64_t n = 0; n < s.steps; ++n) {
    if (share.meeting && n > 0)
      share.meeting->wait(share.parts, n);
    if (copiesInput(s, share))
      copyInput<lanes>(s, share, n);
    for (int64_t block = share.first_block; block < share.last_block; ++block)
      layerBlock<lanes, rows>(s, share, n, block, far);
  }
}

}  // namespace zefuse::recurrence
