#include "compiler/fuse/group_graph.h"

#include <algorithm>
#include <functional>

#include "compiler/fuse/graph.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/ADT/DenseSet.h"

using namespace mlir;

namespace zefuse {

/// The operations that `op` reads from, with free operations looked through.
static void collectProducers(Operation* op, llvm::SetVector<Operation*>& producers) {
  auto visit = [&](Value operand) {
    Operation* producer = operand.getDefiningOp();
    if (!producer)
      return;
    if (isFree(producer))
      collectProducers(producer, producers);
    else
      producers.insert(producer);
  };
  for (Value operand : op->getOperands())
    visit(operand);
  // A body reads tensors from outside too: tensor.extract of a table.
  for (Region& region : op->getRegions())
    region.walk([&](tensor::ExtractOp extract) {
      if (!region.isAncestor(extract.getTensor().getParentRegion()))
        visit(extract.getTensor());
    });
}

GroupGraph::GroupGraph(Block& block) {
  Operation* last_ordered = nullptr;
  for (Operation& op : block) {
    order_[&op] = order_.size();
    if (isFree(&op))
      continue;
    Id id = groups_.size();
    node_[&op] = id;
    parent_.push_back(id);
    position_.push_back(sequence_.size());
    sequence_.push_back(id);
    groups_.emplace_back();
    groups_[id].ops.push_back(&op);
    groups_[id].call = !isCompute(&op);
    llvm::SetVector<Operation*> producers;
    collectProducers(&op, producers);
    if (isOrdered(&op)) {
      if (last_ordered)
        producers.insert(last_ordered);
      last_ordered = &op;
    }
    for (Operation* producer : producers) {
      Id source = node_.lookup(producer);
      groups_[id].producers.push_back(source);
      groups_[source].consumers.push_back(id);
    }
  }
}

GroupGraph::Id GroupGraph::living(Id id) const {
  while (parent_[id] != id)
    id = parent_[id] = parent_[parent_[id]];
  return id;
}

SmallVector<GroupGraph::Id> GroupGraph::distinct(Id group, ArrayRef<Id> ids) const {
  llvm::SetVector<Id> found;
  for (Id id : ids)
    if (Id now = living(id); now != group)
      found.insert(now);
  return SmallVector<Id>(found.begin(), found.end());
}

SmallVector<Operation*> GroupGraph::unionOf(Id a, Id b) const {
  SmallVector<Operation*> both;
  const auto &first = groups_[a].ops, &second = groups_[b].ops;
  std::merge(first.begin(), first.end(), second.begin(), second.end(), std::back_inserter(both),
             [&](Operation* x, Operation* y) { return order_.lookup(x) < order_.lookup(y); });
  return both;
}

llvm::DenseSet<GroupGraph::Id> GroupGraph::reachable(Id from, Id to) const {
  llvm::DenseSet<Id> seen;
  SmallVector<Id> work{from};
  while (!work.empty()) {
    Id id = work.pop_back_val();
    for (Id consumer : groups_[id].consumers) {
      Id now = living(consumer);
      // A group's producers all stand before it, so nothing after `to` leads to it.
      if (now != from && position_[now] < position_[to] && seen.insert(now).second)
        work.push_back(now);
    }
  }
  return seen;
}

bool GroupGraph::pathBetween(Id a, Id b) const {
  if (position_[a] > position_[b])
    std::swap(a, b);
  llvm::DenseSet<Id> between = reachable(a, b);
  if (between.empty())
    return false;
  return llvm::any_of(groups_[b].producers, [&](Id producer) { return between.contains(living(producer)); });
}

GroupGraph::Id GroupGraph::join(Id a, Id b) {
  if (position_[a] > position_[b])
    std::swap(a, b);
  // What `a` reaches moves behind the union, which stands where `b` stood.
  llvm::DenseSet<Id> after = reachable(a, b);
  uint32_t first = position_[a], last = position_[b];
  SmallVector<Id> moved;
  uint32_t next = first;
  auto put = [&](Id id) {
    sequence_[next] = id;
    position_[id] = next++;
  };
  for (uint32_t at = first + 1; at < last; ++at) {
    Id id = sequence_[at];
    if (after.contains(id))
      moved.push_back(id);
    else
      put(id);
  }
  put(a);
  put(b);
  for (Id id : moved)
    put(id);
  SmallVector<Operation*> both = unionOf(a, b);
  groups_[b].ops.assign(both.begin(), both.end());
  llvm::append_range(groups_[b].producers, groups_[a].producers);
  llvm::append_range(groups_[b].consumers, groups_[a].consumers);
  groups_[a] = {};
  parent_[a] = b;
  return b;
}

std::vector<GroupGraph::Id> GroupGraph::groups() const {
  std::vector<Id> result;
  for (Id id : sequence_)
    if (parent_[id] == id && !groups_[id].call)
      result.push_back(id);
  return result;
}

}  // namespace zefuse
