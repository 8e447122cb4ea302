// Rows that lie in memory as pieces side by side: of images with channels innermost the groups of a group norm, each of
// which has a few channels of every place.
//
//   place 0: | a a a | b b b | c c c | d d d |   place 1: | a a a | b b b | ...
//
// A walk along one row reads a few elements of each place, in short vectors, and passes over the others. So several
// rows are walked together: lanes lie across their pieces, an element of a piece ("part") has partial results of its
// own, and those of a row's parts are combined at the end. In terms of the domain the pieces' dim is no longer a column
// dim: with the rows it makes the one with lanes, of which dim / piece is the row.
#pragma once

#include <optional>

#include "common/toolchain/target_description.h"
#include "lowering/analysis/domain.h"
#include "lowering/schedule/core/decisions.h"

namespace zefuse {

struct InterleavedRows {
  unsigned dim = 0;   // of the pieces of rows that are walked together: a row dim, innermost
  int64_t piece = 0;  // elements of a row that are neighbours
  int64_t size = 0;   // of `dim`: a multiple of `unit`
  int64_t unit = 0;   // elements that one thread walks at least, a multiple of `piece`; vectors do not reach over units
  int64_t rows() const { return size / piece; }
};

// The domain's rows as interleaved ones, where they are and a walk along one would be of short vectors; the domain is
// changed then, and left alone otherwise. `few`: no more rows together than memory's pace asks for, since what is kept
// of all of them takes room.
std::optional<InterleavedRows> interleaveRows(Domain& domain, bool few, const KernelGraph& graph,
                                              const TargetDescription& target, Decisions& decisions);

// Row dims of which one is the pieces of the other become one dim, of which lanes are many: the channels of the groups
// of a group norm, whose sums by channel read beside them what a group has one of. `lanes` is the dim with lanes; the
// result is the one that has them now, or nothing, and the domain is as it was.
std::optional<unsigned> joinRows(Domain& domain, unsigned lanes, const KernelGraph& graph,
                                 const TargetDescription& target, Decisions& decisions);

}  // namespace zefuse
