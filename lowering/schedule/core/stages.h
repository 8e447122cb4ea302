// The order of a kernel with reductions: level by level the reductions over each axis set, then what is stored. Every
// schedule walks it; how a reduction runs and where its parts meet is the schedule's.
#pragma once

#include "lowering/schedule/core/context.h"

namespace zefuse {

// The reductions of a level over an axis set.
llvm::SmallVector<const Instance*> instancesOf(const Domain& domain, unsigned level, unsigned axes);

// What a schedule emits at each step, with its rows bound. Nothing is called once the evaluator has failed.
struct StageSteps {
  // The reductions of a level over an axis set, at least one; their results are bound afterwards.
  llvm::function_ref<void(unsigned level, unsigned axes, llvm::ArrayRef<const Instance*>)> reduce;
  // The outputs with one value per row; then those with column dims that no stage has stored. At least one each.
  llvm::function_ref<void(llvm::ArrayRef<const DomainOutput*>)> storeRows, storeColumns;
  // Around the reductions of a level; may be null.
  llvm::function_ref<void(unsigned level)> begin = nullptr, end = nullptr;
};

void emitStages(const ScheduleContext& context, const StageSteps& steps);

}  // namespace zefuse
