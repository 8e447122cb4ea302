// The tile of attention by warpgroups (warpgroup_attention.h), and the memory that it takes.
#pragma once

#include <optional>

#include "lowering/schedule/core/context.h"

namespace zefuse {

// A group has `warpgroups` of 64 query rows; `keys` of a step.
struct WarpgroupAttentionTile {
  static constexpr int64_t rows_of_warpgroup = 64;

  const MatrixOperation* engine;
  int64_t warpgroups, keys;
  int64_t depth, columns;  // of a head, in whole multiples of 16
  int64_t turns = 0;       // 1: warpgroups ask for their products one after the other
  int64_t copying = 0;     // sub-groups beside them, which copy keys and values alone; 0: all copy
  int64_t persistent = 0;  // 1: a group stays on its engine and takes one tile of rows after the other

  int64_t rows() const { return warpgroups * rows_of_warpgroup; }
  // Of keys and of values in local memory.
  int64_t stages(const TargetDescription& target) const;
  // In local memory: the queries', and all with so many stages.
  int64_t queryElements() const;
  int64_t localElements(int64_t stages) const;
};

// None: the engine has no such products, of no such elements or of a mask, or heads are too large for registers or
// local memory. `decisions`: null, or where a measurement may choose another tile.
std::optional<WarpgroupAttentionTile> chooseWarpgroupAttention(AttentionOp op, const TargetDescription& target,
                                                               Decisions* decisions = nullptr);

}  // namespace zefuse
