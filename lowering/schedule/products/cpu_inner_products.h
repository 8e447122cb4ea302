// Products whose operands both lie along what is summed over, in a kernel for the CPU.
#pragma once

#include "lowering/schedule/core/context.h"

namespace zefuse {

// False: the kernel's product is none of those, and nothing was emitted.
bool scheduleCpuInnerProducts(const ScheduleContext& context);

}  // namespace zefuse
