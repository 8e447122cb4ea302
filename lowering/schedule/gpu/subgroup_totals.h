// Partial results of a group's sub-groups, each a vector per work-item, and their combination through local memory.
#pragma once

#include "lowering/schedule/core/context.h"
#include "lowering/schedule/gpu/work_group.h"

namespace zefuse {

// Stores each reduction's partial results (scalars or vectors, one value per instance) and waits at a barrier, which
// all work-items of the group must reach. Returns the arrays in local memory.
llvm::SmallVector<mlir::Value> shareTotals(const ScheduleContext& context, WorkGroup& group,
                                           llvm::ArrayRef<const Instance*> instances,
                                           llvm::ArrayRef<mlir::Value> totals);

// What the work-items of one lane number left in all sub-groups, combined in the order of the sub-groups; `lanes`:
// elements of each partial result. Only the work-items that need it have to call it.
llvm::SmallVector<mlir::Value> combineTotals(const ScheduleContext& context, WorkGroup& group,
                                             llvm::ArrayRef<const Instance*> instances,
                                             llvm::ArrayRef<mlir::Value> arrays, int64_t lanes);

}  // namespace zefuse
