// How work-groups share a zefuse.scatter that sums: a table's gradient, whose rows many updates meet.
//
// Sub-groups, or parts of them ("teams"), take slices of the updates, each with a partial sum of its own in local
// memory, which are added up in the slices' order: the same bits every time, without atomics, and an update waits for
// the few before it in its slice alone.
#pragma once

#include <optional>

#include "common/toolchain/target_description.h"
#include "lowering/analysis/domain.h"

namespace zefuse {

struct ScatterSumsPlan {
  unsigned position = 0;  // of the result's dimension that an index addresses
  int64_t lanes = 1;      // elements of a work-item's vector, along the dim with lanes
  int64_t vectors = 1;    // of an update
  int64_t width = 1;      // work-items of a team: vectors that a group takes
  int64_t teams = 1;
  int64_t rows = 1;    // of the result, that a group takes
  int64_t ranges = 1;  // of rows
  int64_t blocks = 1;  // of vectors
  bool all = false;    // groups hold all rows: each update is one of theirs

  int64_t items() const { return teams * width; }
};

// None: another schedule serves it better, or it does not sum. `laned`: the dim with lanes; `updates`: how many.
std::optional<ScatterSumsPlan> planScatterSums(const Domain& domain, unsigned laned, double updates,
                                               const TargetDescription& target);

// What partial sums of these elements are: of 16-bit floats f32.
mlir::Type partialSumType(mlir::Type element);

}  // namespace zefuse
