// Schedules of kernels whose steps have an order: scatters and sorts.
#pragma once

#include "lowering/schedule/core/context.h"

namespace zefuse {

void scheduleScatter(const ScheduleContext& context);       // both targets
void scheduleGroupScatter(const ScheduleContext& context);  // by ranges of the result
void scheduleScatterSums(const ScheduleContext& context);   // by partial sums of slices of the updates
void scheduleSort(const ScheduleContext& context);
void scheduleGpuSort(const ScheduleContext& context);

}  // namespace zefuse
