// Which compute operations (graph.h) become one kernel: an analysis of the graph, changing nothing.
//
// Groups start as single operations and join (1) along producer-consumer edges, consumers in graph order, (2) with
// siblings that read the same large value, while the schedule accepts the union (whyNotOneKernel: one iteration space,
// lowering/analysis/fusible.h), no path leaves the union and comes back, and the union is no worse than its parts
// (whyWorse). Each refusal is kept with its reason: what explain shows.
#pragma once

#include <string>
#include <vector>

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace zefuse {

// Invalid once the graph changes. Operations marked `zefuse.late` wait for a consumer to take them.
class Grouping {
public:
  // As an analysis of a pass: `graph` is the function.
  explicit Grouping(mlir::Operation* graph) : Grouping(mlir::cast<mlir::func::FuncOp>(graph), true) {}
  // `merge` false: a group per operation.
  Grouping(mlir::func::FuncOp graph, bool merge);

  // The operations of each, in the block's order; groups in the order of their last operations.
  llvm::ArrayRef<llvm::SmallVector<mlir::Operation*>> groups() const { return groups_; }

  // Why two groups, by their numbers, stayed apart; in the order of the first refusal.
  struct Refusal {
    size_t first, second;
    std::string reason;
  };
  llvm::ArrayRef<Refusal> refusals() const { return refusals_; }

private:
  std::vector<llvm::SmallVector<mlir::Operation*>> groups_;
  std::vector<Refusal> refusals_;
};

}  // namespace zefuse
