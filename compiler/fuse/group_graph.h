// The graph of what becomes steps: compute operations, which join into groups (one kernel each), and calls, which stay
// alone. Free operations (graph.h) are edges. Kept acyclic and in topological order while groups join, so that whether
// a join would close a cycle is answered from what lies between the two alone.
#pragma once

#include <cstdint>
#include <vector>

#include "mlir/IR/Block.h"
#include "mlir/IR/Operation.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/SmallVector.h"

namespace zefuse {

class GroupGraph {
public:
  using Id = uint32_t;

  // The block must not change while this lives.
  explicit GroupGraph(mlir::Block& block);

  // What a joined group is part of now.
  Id living(Id id) const;
  Id groupOf(mlir::Operation* op) const { return living(node_.lookup(op)); }
  size_t orderOf(mlir::Operation* op) const { return order_.lookup(op); }
  // In the block's order.
  llvm::ArrayRef<mlir::Operation*> opsOf(Id group) const { return groups_[group].ops; }
  bool isCall(Id group) const { return groups_[group].call; }
  // Both groups' operations, in the block's order.
  llvm::SmallVector<mlir::Operation*> unionOf(Id a, Id b) const;
  // Changes whenever the group's operations change; equal stamps of different groups mean nothing.
  unsigned stampOf(Id group) const { return groups_[group].ops.size(); }

  // Distinct groups that `group` reads from, or that read from it; never itself.
  llvm::SmallVector<Id> producersOf(Id group) const { return distinct(group, groups_[group].producers); }
  llvm::SmallVector<Id> consumersOf(Id group) const { return distinct(group, groups_[group].consumers); }

  // Whether some path goes from one to the other through a third: then they cannot be one step. Cost: the groups
  // between them in topological order.
  bool pathBetween(Id a, Id b) const;
  // Joins two groups without a path between them; returns the id of the union. The other id is dead.
  Id join(Id a, Id b);

  // Living groups of compute operations, in topological order.
  std::vector<Id> groups() const;

private:
  struct Group {
    llvm::SmallVector<mlir::Operation*, 4> ops;
    llvm::SmallVector<Id, 4> producers, consumers;  // may name dead groups and repeat
    bool call = false;
  };

  llvm::SmallVector<Id> distinct(Id group, llvm::ArrayRef<Id> ids) const;
  // The groups after `from` and before `to` that `from` reaches.
  llvm::DenseSet<Id> reachable(Id from, Id to) const;

  std::vector<Group> groups_;
  mutable std::vector<Id> parent_;
  std::vector<Id> sequence_;        // topological; dead groups stay in it
  std::vector<uint32_t> position_;  // in sequence_
  llvm::DenseMap<mlir::Operation*, Id> node_;
  llvm::DenseMap<mlir::Operation*, size_t> order_;
};

}  // namespace zefuse
