// What the work-items of a row may hold in registers from one stage to the next: softmax's elements for its
// exponentials, and those for its results.
#pragma once

#include "lowering/schedule/core/context.h"

namespace zefuse {

// Vectors of `lanes` elements of this axis set that a work-item holds, where a later stage needs them again. Assumes
// that all stages walk the set alike, and that outputs with columns are stored after all reductions.
int64_t heldVectors(const ScheduleContext& context, unsigned axes, int64_t lanes);

}  // namespace zefuse
