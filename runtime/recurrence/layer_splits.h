// The loops over the steps of an LSTM of f32 whose input is multiplied with it, in AMX's tiles of bf16 (splits.h).
#pragma once

#include <cstring>

#include "runtime/primitives/matmul/split_blocks.h"
#include "runtime/recurrence/layer_cells.h"
#include "runtime/recurrence/levels.h"
#include "runtime/recurrence/tile_pipeline.h"

namespace zefuse::recurrence {

using primitives::tile_depth, primitives::tile_factors, primitives::tile_rows, primitives::tile_sums;

// A row of `count` numbers, and zeros up to `depth`.
[[ZEFUSE_TILE_LEVEL, gnu::always_inline]] inline void splitNumbers(const float* from, int64_t count, int64_t depth,
                                                                   __bf16* to) {
  __mmask16 beyond = 0;
  for (int64_t k = 0; k < depth; k += tile_rows) {
    Vector<16> x = {};
    if (k < count)
      load<16>(x, from + k, count - k);
    beyond |= primitives::beyondSplit((__m512)x);
    primitives::storeSplit(to + placeInSplit(k), tile_depth, x);
  }
  const uint16_t line = beyond != 0;
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
  int64_t second = 0;  // rows from the first group to the second; 0: there is one
  float* sums = nullptr;
  int64_t gates = 0, k = 0;  // where it is

  // Parts of it, all in all.
  int64_t parts() const { return 2 * (of_input.depth + of_state.depth) / tile_depth; }

  [[gnu::target("amx-tile,amx-bf16"), gnu::always_inline]] inline void add() const {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    if (second > 0) {
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
  }
  [[gnu::target("amx-tile,amx-bf16"), gnu::always_inline]] inline void loadLeft(const __bf16* left, int64_t row) const {
    _tile_loadd(4, left, row * int64_t(sizeof(__bf16)));
    if (second > 0)
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
      if (second > 0) {
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
  for (int64_t gate = 0; gate < 4; ++gate) {
    Vector<16> sum = {};
    if (adds)
      load<16>(sum, sums + gate * tile_sums, 16);
    for (int64_t k = 0; k < count; ++k) {
      const uint16_t* tile =
          packed + (k / tile_depth * 4 + gate) * split_parts * tile_factors + k % tile_depth / 2 * 2 * tile_rows;
      sum += (Vector<16>)primitives::joinParts(tile, k % 2 != 0) * x[k];
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

// A step, as runBlocks() asks for it.
struct SplitStep {
  const Sequence& s;
  int64_t n;

  SplitProduct product(const BlockOfGroups& of, float* sums) const {
    const Splits& splits = s.splits;
    SplitProduct product;
    product.of_input = {splits.inputAt(n, of.from), splits.input_depth,
                        splits.packed_input + of.block * splitBlock(splits.input_depth)};
    product.of_state = {splits.stateAt(n, of.from), splits.state_depth,
                        splits.packed_state + of.block * splitBlock(splits.state_depth)};
    product.second = of.second;
    product.sums = sums;
    return product;
  }
  [[ZEFUSE_TILE_LEVEL, gnu::always_inline]] void formula(int64_t b, int64_t count, int64_t block, float* sums) const {
    mendPlainRow(s, n, b, block, sums);
    if (count == 1) {
      layerCells<16, 1, true>(s, n, b, block * tile_rows, sums);
      return;
    }
    mendPlainRow(s, n, b + 1, block, sums + tile_rows);
    layerCells<16, 2, true>(s, n, b, block * tile_rows, sums);
  }
};

[[ZEFUSE_TILE_LEVEL, gnu::noinline]] inline void runLayerInSplits(const Sequence& s, const Share& share) {
  const Splits& splits = s.splits;
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
  const RowGroups groups(share);
  primitives::configureTiles(groups.rows, 0b111111);  // 0 to 3: sums, 4 and 5: left, 6 and 7: right
  for (int64_t n = 0; n < s.steps; ++n) {
    runBlocks(SplitStep{s, n}, groups, share);
    if (n + 1 == s.steps)
      break;
    splitInput(s, own, n + 1);
    meet(n + 2);
  }
  primitives::releaseTiles();
}

}  // namespace zefuse::recurrence
