// The loops over the steps of an LSTM of f32 whose input is multiplied with it, in AMX's tiles of bf16 (splits.h). As
// in layer_tiles.h the formula of one block of units and up to 32 rows goes on while the tiles multiply the next.
#pragma once

#include <cstring>

#include "runtime/recurrence/layer_cells.h"
#include "runtime/recurrence/levels.h"

namespace zefuse::recurrence {

using onednn::tile_depth, onednn::tile_factors, onednn::tile_rows, onednn::tile_sums;

// A row of `count` numbers, and zeros up to `depth`.
[[ZEFUSE_TILE_LEVEL, gnu::always_inline]] inline void splitNumbers(const float* from, int64_t count, int64_t depth,
                                                                   __bf16* to) {
  auto beyond = Vector<16>{} > most_split;
  for (int64_t k = 0; k < depth; k += tile_rows) {
    Vector<16> x = {};
    if (k < count)
      load<16>(x, from + k, count - k);
    beyond |= ~(x <= most_split) | ~(x >= -most_split);  // a NaN is beyond too
    storeSplit<16>(to + placeInSplit(k), x);
  }
  bool plain = false;
  for (int lane = 0; lane < 16; ++lane)
    plain |= beyond[lane] != 0;
  const uint16_t line = plain;
  std::memcpy(to + placeInSplit(depth), &line, sizeof(line));
}

[[gnu::always_inline]] inline bool isPlain(const __bf16* row, int64_t depth) {
  uint16_t line;
  std::memcpy(&line, row + placeInSplit(depth), sizeof(line));
  return line != 0;
}

// What a group of rows multiplies, of the input or of the state.
struct SplitFactor {
  const __bf16* left;
  int64_t depth;
  const uint16_t* packed;  // of a block
};

// The sums of a block's four gates for one or two groups of rows, two gates at a time.
struct SplitProduct {
  SplitFactor of_input, of_state;
  bool two = false;    // groups
  int64_t second = 0;  // rows from the first to the second
  float* sums = nullptr;
  int64_t gates = 0, k = 0;  // where it is

  // Parts of it, all in all.
  int64_t parts() const { return 2 * (of_input.depth + of_state.depth) / tile_depth; }

  [[gnu::target("amx-tile,amx-bf16"), gnu::always_inline]] inline void add() const {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    if (two) {
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
  }
  [[gnu::target("amx-tile,amx-bf16"), gnu::always_inline]] inline void loadLeft(const __bf16* left, int64_t row) const {
    _tile_loadd(4, left, row * int64_t(sizeof(__bf16)));
    if (two)
      _tile_loadd(5, left + second * row, row * int64_t(sizeof(__bf16)));
  }
  [[gnu::target("amx-tile,amx-bf16"), gnu::always_inline]] inline void loadRight(const uint16_t* right) const {
    _tile_loadd(6, right, 64);
    _tile_loadd(7, right + split_parts * tile_factors, 64);
  }

  // The next `count` parts. Of the six products of 32 numbers of the depth each has one factor of the one before.
  [[gnu::target("amx-tile,amx-bf16"), gnu::always_inline]] inline void advance(int64_t count) {
    const int64_t depth = of_input.depth + of_state.depth;
    for (; count > 0 && gates < 4; --count) {
      const bool input = k < of_input.depth;
      const SplitFactor& factor = input ? of_input : of_state;
      const int64_t tile = (input ? k : k - of_input.depth) / tile_depth, row = splitRow(factor.depth);
      const __bf16* left = factor.left + tile * split_parts * tile_depth;
      const uint16_t* right = factor.packed + (tile * 4 + gates) * split_parts * tile_factors;
      if (k == 0) {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
      }
      loadLeft(left + tile_depth, row);
      loadRight(right + tile_factors);
      add();  // middle, middle
      loadRight(right);
      add();  // middle, high
      loadLeft(left + 2 * tile_depth, row);
      add();  // low, high
      loadLeft(left, row);
      add();  // high, high
      loadRight(right + tile_factors);
      add();  // high, middle
      loadRight(right + 2 * tile_factors);
      add();  // high, low
      k += tile_depth;
      if (k < depth)
        continue;
      float* to = sums + gates * tile_sums;
      _tile_stored(0, to, 64);
      _tile_stored(1, to + tile_sums, 64);
      if (two) {
        _tile_stored(2, to + 4 * tile_sums, 64);
        _tile_stored(3, to + 5 * tile_sums, 64);
      }
      gates += 2;
      k = 0;
    }
  }
};

// A row's sums anew, [4] of them `tile_sums` apart: = or, with `adds`, += x @ a block of the packed weight.
[[ZEFUSE_TILE_LEVEL, gnu::noinline]] inline void multiplyPlain(const float* x, int64_t count, const uint16_t* packed,
                                                               bool adds, float* sums) {
  typedef uint32_t Bits __attribute__((vector_size(64), aligned(2)));
  for (int64_t gate = 0; gate < 4; ++gate) {
    Vector<16> sum = {};
    if (adds)
      load<16>(sum, sums + gate * tile_sums, 16);
    for (int64_t k = 0; k < count; ++k) {
      const uint16_t* tile =
          packed + (k / tile_depth * 4 + gate) * split_parts * tile_factors + k % tile_depth / 2 * 2 * tile_rows;
      Vector<16> weight = {};
#pragma clang loop unroll(full)
      for (int part = 0; part < split_parts; ++part) {
        const Bits pairs = *reinterpret_cast<const Bits*>(tile + part * tile_factors);
        weight += (Vector<16>)(k % 2 ? pairs & 0xffff0000u : pairs << 16);
      }
      sum += weight * x[k];
    }
    store<16>(sums + gate * tile_sums, sum, 16);
  }
}

// What a thread prepares of a step's input, or of the initial state: of the rows that it shares with others its part.
struct OwnRows {
  int64_t begin, end;
};
[[gnu::always_inline]] inline OwnRows ownRows(const Sequence& s, const Share& share) {
  const int64_t blocks = (s.hidden + tile_rows - 1) / tile_rows, count = share.last_row - share.first_row;
  return {share.first_row + count * share.first_block / blocks, share.first_row + count * share.last_block / blocks};
}

[[ZEFUSE_TILE_LEVEL, gnu::always_inline]] inline void splitInput(const Sequence& s, OwnRows rows, int64_t n) {
  for (int64_t b = rows.begin; b < rows.end; ++b)
    splitNumbers(s.input.at(s.step(n), b), s.inputs, s.splits.input_depth, s.splits.inputAt(n, b));
}

// Rows whose numbers tiles do not multiply rightly.
[[ZEFUSE_TILE_LEVEL, gnu::always_inline]] inline void mendPlainRow(const Sequence& s, int64_t n, int64_t b,
                                                                   int64_t block, float* sums) {
  const Splits& splits = s.splits;
  if (!splits.plain_weights && !isPlain(splits.inputAt(n, b), splits.input_depth) &&
      !(n == 0 && isPlain(splits.stateAt(0, b), splits.state_depth)))
    return;
  const float* state = n == 0 ? s.operands[3].at(0, b) : s.results[0].at(s.step(n - 1), b);
  multiplyPlain(s.input.at(s.step(n), b), s.inputs, splits.packed_input + block * splitBlock(splits.input_depth), false,
                sums);
  multiplyPlain(state, s.hidden, splits.packed_state + block * splitBlock(splits.state_depth), true, sums);
}

[[ZEFUSE_TILE_LEVEL, gnu::noinline]] inline void runLayerInSplits(const Sequence& s, const Share& share) {
  // Groups of one size, as in runStepsInTiles.
  const int64_t count = share.last_row - share.first_row, groups = (count + tile_rows - 1) / tile_rows;
  const int64_t rows = (count + groups - 1) / groups, pairs = (groups + 1) / 2;
  const int64_t blocks = share.last_block - share.first_block;
  const Splits& splits = s.splits;
  alignas(64) float sums[2][8 * tile_sums];
  auto begins = [&](int64_t group) { return std::min(share.first_row + group * rows, share.last_row - rows); };
  auto meet = [&](int64_t phase) {
    if (share.meeting)
      share.meeting->wait(share.parts, phase);
  };
  const OwnRows own = ownRows(s, share);
  for (int64_t b = own.begin; b < own.end; ++b) {
    splitNumbers(s.operands[3].at(0, b), s.hidden, splits.state_depth, splits.stateAt(0, b));
    splitNumbers(nullptr, 0, splits.state_depth, splits.stateAt(1, b));  // what no unit of a block writes
  }
  splitInput(s, own, 0);
  meet(1);
  onednn::configureTiles(rows, 0b111111);  // 0 to 3: sums, 4 and 5: left, 6 and 7: right
  for (int64_t n = 0; n < s.steps; ++n) {
    auto product = [&](int64_t number) {  // blocks, and in each the pairs of groups
      const int64_t block = share.first_block + number / pairs, group = number % pairs * 2;
      const int64_t from = begins(group);
      SplitProduct product;
      product.of_input = {splits.inputAt(n, from), splits.input_depth,
                          splits.packed_input + block * splitBlock(splits.input_depth)};
      product.of_state = {splits.stateAt(n, from), splits.state_depth,
                          splits.packed_state + block * splitBlock(splits.state_depth)};
      product.two = group + 1 < groups;
      product.second = product.two ? begins(group + 1) - from : 0;
      product.sums = sums[number & 1];
      return product;
    };
    SplitProduct next = product(0);
    next.advance(next.parts());
    for (int64_t number = 0; number < blocks * pairs; ++number) {
      const bool last = number + 1 == blocks * pairs;
      if (!last)
        next = product(number + 1);
      const int64_t block = share.first_block + number / pairs;
      const int64_t formulas = (number % pairs * 2 + 1 < groups ? 2 : 1) * ((rows + 1) / 2);  // of two rows, at most
      int64_t formula = 0;
      for (int64_t group = number % pairs * 2, half = 0; half < 2 && group < groups; ++group, ++half) {
        const int64_t begin = share.first_row + group * rows, end = std::min(begin + rows, share.last_row);
        for (int64_t b = begin; b < end; b += 2, ++formula) {
          if (!last)
            next.advance(next.parts() * (formula + 1) / formulas - next.parts() * formula / formulas);
          float* of_rows = sums[number & 1] + half * 4 * tile_sums + (b - begins(group)) * tile_rows;
          for (int64_t row = 0; row < std::min<int64_t>(2, end - b); ++row)
            mendPlainRow(s, n, b + row, block, of_rows + row * tile_rows);
          if (b + 1 < end)
            layerCells<16, 2, true>(s, n, b, block * tile_rows, of_rows);
          else
            layerCells<16, 1, true>(s, n, b, block * tile_rows, of_rows);
        }
      }
      if (!last)
        next.advance(next.parts());
    }
    if (n + 1 == s.steps)
      break;
    splitInput(s, own, n + 1);
    meet(n + 2);
  }
  onednn::releaseTiles();
}

}  // namespace zefuse::recurrence
