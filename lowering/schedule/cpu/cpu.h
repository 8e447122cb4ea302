// Schedules for a CPU: loops over tiles, explicit vectors.
#pragma once

#include "lowering/schedule/core/context.h"

namespace zefuse {

void scheduleCpu(const ScheduleContext& context);

// Opens a loop over the vectors number first..last of a dim, binds the dim to each one's lanes and calls `body` with
// its number; a symbolic size gets a second loop, for the vector whose last lanes repeat.
void overBlocks(const ScheduleContext& context, unsigned dim, mlir::Value first, mlir::Value last,
                llvm::function_ref<void(mlir::Value)> body);
// The reductions and outputs of the vectors of rows number first..last, Strategy::strip at a time. `memory`: see
// makeStripMemory.
void scheduleStrips(const ScheduleContext& context, mlir::Value memory, mlir::Value first, mlir::Value last);
// Private memory for one strip, in the function's entry block.
mlir::Value makeStripMemory(const ScheduleContext& context);

}  // namespace zefuse
