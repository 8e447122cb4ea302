// The order in which a layer's steps go through AMX's tiles: while the formula of one block of units and up to 32 rows
// goes on, the tiles multiply the next. Nothing of the gates is written farther away than the nearest cache, and both
// take about as long.
#pragma once

#include <algorithm>

#include "runtime/recurrence/levels.h"

namespace zefuse::recurrence {

using primitives::tile_rows, primitives::tile_sums;

// A thread's rows of the batch in groups of one size, which tiles are configured for: the last one begins among rows of
// the one before, whose products are not used again.
struct RowGroups {
  int64_t first_row, last_row, groups, rows;  // `rows`: of a group

  explicit RowGroups(const Share& share) : first_row(share.first_row), last_row(share.last_row) {
    const int64_t count = last_row - first_row;
    groups = (count + tile_rows - 1) / tile_rows;
    rows = (count + groups - 1) / groups;
  }
  int64_t begin(int64_t group) const { return first_row + group * rows; }
  int64_t end(int64_t group) const { return std::min(begin(group) + rows, last_row); }
  int64_t multipliedFrom(int64_t group) const { return std::min(begin(group), last_row - rows); }
};

// A block of units for one or two groups of rows.
struct BlockOfGroups {
  int64_t block, from, second;  // the row that the first group's product begins with, and rows to the second; 0: none
};

// A step of a thread's blocks. Layer: product(of, sums), whose advance(count) multiplies the next of its parts(), and
// formula(row, count, block, sums) of up to two rows, from their sums [4, 16, 16].
template <typename Layer>
[[ZEFUSE_TILE_LEVEL, gnu::always_inline]] inline void runBlocks(const Layer& layer, const RowGroups& all,
                                                                const Share& share) {
  alignas(64) float sums[2][8 * tile_sums];
  const int64_t pairs = (all.groups + 1) / 2, count = (share.last_block - share.first_block) * pairs;
  auto of = [&](int64_t number) {  // blocks, and in each the pairs of groups
    const int64_t group = number % pairs * 2, from = all.multipliedFrom(group);
    return BlockOfGroups{share.first_block + number / pairs, from,
                         group + 1 < all.groups ? all.multipliedFrom(group + 1) - from : 0};
  };
  auto next = layer.product(of(0), sums[0]);
  next.advance(next.parts());
  for (int64_t number = 0; number < count; ++number) {
    const bool last = number + 1 == count;
    if (!last)
      next = layer.product(of(number + 1), sums[(number + 1) & 1]);
    const int64_t first = number % pairs * 2,
                  formulas = std::min<int64_t>(2, all.groups - first) * ((all.rows + 1) / 2);
    int64_t formula = 0;
    for (int64_t group = first; group < std::min(first + 2, all.groups); ++group) {
      float* of_group = sums[number & 1] + (group - first) * 4 * tile_sums;
      for (int64_t b = all.begin(group); b < all.end(group); b += 2, ++formula) {
        if (!last)
          next.advance(next.parts() * (formula + 1) / formulas - next.parts() * formula / formulas);
        layer.formula(b, all.end(group) - b, share.first_block + number / pairs,
                      of_group + (b - all.multipliedFrom(group)) * tile_rows);
      }
    }
    if (!last)
      next.advance(next.parts());
  }
}

}  // namespace zefuse::recurrence
