// Schedules for a GPU: work-groups, sub-groups, local memory.
#pragma once

#include "lowering/schedule/core/context.h"

namespace zefuse {

void scheduleGpu(const ScheduleContext& context);

}  // namespace zefuse
