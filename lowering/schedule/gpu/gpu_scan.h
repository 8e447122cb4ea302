// The GPU schedule of scans along memory: work-items share a row.
#pragma once

#include "lowering/schedule/core/context.h"

namespace zefuse {

// Work-items take vectors of a row, at most `width` elements, and combine in sub-group scans and local memory. False,
// with nothing emitted, where a row is better off with one work-item: it is short, its elements are no neighbours in
// memory, or a scan's body is none that sub-groups know.
bool scheduleScan(const ScheduleContext& context, int64_t width);

}  // namespace zefuse
