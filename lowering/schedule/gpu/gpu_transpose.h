// The GPU schedule of pointwise kernels that transpose.
#pragma once

#include "lowering/schedule/core/context.h"

namespace zefuse {

// False, with nothing emitted, when no load of the kernel is served by it. The strategy must have a tile_dim.
bool scheduleTranspose(const ScheduleContext& context);

}  // namespace zefuse
