// zefuse.attention on a matrix engine of fragments (MatrixForm::fragments).
#pragma once

#include <optional>

#include "lowering/schedule/core/context.h"

namespace zefuse {

// Query rows of a group, squares of 16 per sub-group, and the keys of a step.
struct FragmentAttentionTile {
  const MatrixOperation* engine;
  int64_t subgroups, squares, keys;
  int64_t depth, columns;  // of a head, in whole squares of 16
  bool keep_queries;       // in registers, else they are loaded at each step

  int64_t rows() const { return subgroups * squares * 16; }
  bool wide() const { return engine->k == 8; }  // f32, by an engine of tf32
};

// None: the engine multiplies no such elements, or heads are too large for registers or local memory.
// `decisions`: null, or where a measurement may choose another tile.
std::optional<FragmentAttentionTile> chooseFragmentAttention(AttentionOp op, const TargetDescription& target,
                                                             Decisions* decisions = nullptr);

void scheduleFragmentAttention(const ScheduleContext& context, const FragmentAttentionTile& tile);

}  // namespace zefuse
