#include "lowering/schedule/schedule.h"

namespace zefuse {
void scheduleGpu(const ScheduleContext&) {}
}  // namespace zefuse
