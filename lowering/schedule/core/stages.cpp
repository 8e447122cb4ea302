#include "lowering/schedule/core/stages.h"

using namespace mlir;

namespace zefuse {

SmallVector<const Instance*> instancesOf(const Domain& domain, unsigned level, unsigned axes) {
  SmallVector<const Instance*> found;
  for (const Instance& instance : domain.instances)
    if (instance.level == level && instance.axes == axes)
      found.push_back(&instance);
  return found;
}

void emitStages(const ScheduleContext& context, const StageSteps& steps) {
  const Domain& domain = context.domain;
  auto failed = [&] { return context.evaluator.failed(); };
  for (unsigned level = 0; level < domain.levels && !failed(); ++level) {
    if (steps.begin)
      steps.begin(level);
    for (unsigned axes = 0; axes < domain.axis_sets.size() && !failed(); ++axes)
      if (auto instances = instancesOf(domain, level, axes); !instances.empty())
        steps.reduce(level, axes, instances);
    if (steps.end)
      steps.end(level);
  }
  SmallVector<const DomainOutput*> per_row;
  for (const DomainOutput& output : domain.outputs)
    if (output.per_row)
      per_row.push_back(&output);
  if (!per_row.empty() && !failed())
    steps.storeRows(per_row);
  if (auto columns = context.columnOutputs(domain.levels); !columns.empty() && !failed())
    steps.storeColumns(columns);
}

}  // namespace zefuse
