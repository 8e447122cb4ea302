// Stage 2 to stage 3: one kernel to one scheduled function.
#pragma once

#include "common/toolchain/target_description.h"
#include "lowering/dialect/Zefuse.h"
#include "lowering/schedule/core/context.h"

namespace zefuse {

// Emits diagnostics at the offending op. `tuning`: decisions that were measured (core/decisions.h).
mlir::FailureOr<ScheduledKernel> scheduleKernel(KernelOp kernel, const TargetDescription& target,
                                                const Tuning& tuning = {});

}  // namespace zefuse
