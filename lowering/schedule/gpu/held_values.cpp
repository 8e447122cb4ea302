#include "lowering/schedule/gpu/held_values.h"

using namespace mlir;

namespace zefuse {
namespace {

constexpr int64_t value_bytes = 4;  // of a register
// What has more than three stages is bound by its arithmetic, and ptxas spills it.
constexpr unsigned most_levels = 2;

// Values of an element of this axis set that one stage makes and a later one uses, the most at a time.
int64_t valuesBetweenStages(const ScheduleContext& context, unsigned axes) {
  const Domain& domain = context.domain;
  IndexSpace& space = context.domain.space;
  Dims columns;
  for (unsigned dim : domain.axis_sets[axes].dims)
    columns.set(dim);
  using Key = std::pair<Value, AffineMap>;
  llvm::DenseMap<Key, unsigned> made;  // by which stage
  llvm::DenseMap<Key, unsigned> used;  // by which later one last
  for (unsigned level = 0; level <= domain.levels; ++level) {
    llvm::DenseSet<Key> mine;
    auto visit = [&](Node node) {
      Key key(node.value, node.at);
      auto before = made.find(key);
      if (before != made.end() && before->second < level && space.dimsOf(node.at).anyCommon(columns)) {
        used[key] = level;
        return false;
      }
      made.try_emplace(key, level);
      return !(node.value.getDefiningOp() && isReduction(node.value.getDefiningOp()));
    };
    for (const Instance& instance : domain.instances)
      if (instance.level == level && instance.axes == axes)
        walkNodes(space, instance.element(), mine, context.graph, visit);
    if (level == domain.levels && axes == 0)
      for (const DomainOutput* output : context.columnOutputs(level))
        walkNodes(space, output->node, mine, context.graph, visit);
  }
  int64_t most = 0;
  for (unsigned level = 0; level < domain.levels; ++level)
    most = std::max<int64_t>(most, llvm::count_if(used, [&](const auto& value) {
                               return made.at(value.first) <= level && value.second > level;
                             }));
  return most;
}

}  // namespace

int64_t heldVectors(const ScheduleContext& context, unsigned axes, int64_t lanes) {
  if (context.domain.levels > most_levels)
    return 0;
  const int64_t values = valuesBetweenStages(context, axes);
  const int64_t bytes = context.target.accumulator_bytes / context.target.subgroup_size * 3 / 4;
  return values ? bytes / (values * lanes * value_bytes) : 0;
}

}  // namespace zefuse
