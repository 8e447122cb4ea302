#include "lowering/schedule/core/kept_values.h"

#include "lowering/analysis/element_types.h"
#include "lowering/schedule/core/op_cost.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;

namespace zefuse {

double costOfKept(const Strategy& strategy, Domain& domain, const KernelGraph& graph) {
  double cost = 0;
  llvm::DenseSet<std::pair<Value, AffineMap>> seen;
  for (const Kept& kept : strategy.kept)
    walkNodes(domain.space, kept.node, seen, graph, [&](Node node) {
      const bool known = graph.is_input(node.value) || domain.find(node);
      Operation* op = known ? nullptr : node.value.getDefiningOp();
      if (op && !isa<RankedTensorType>(node.value.getType()))
        cost += isa<tensor::ExtractOp>(op) ? 8 : opCost(op);
      return !known;
    });
  return cost;
}

void keepNothing(Strategy& strategy, const IndexSpace& space) {
  strategy.kept.clear();
  strategy.kept_bytes = space.constant(0);
  strategy.kept_static = true;
  llvm::erase_if(strategy.choices, [](const Choice& choice) { return std::holds_alternative<choice::Kept>(choice); });
}

int axisSetOf(const Domain& domain, AffineMap at) {
  Dims dims = domain.space.dimsOf(at);
  for (unsigned dim : domain.rows)
    dims.reset(dim);
  for (auto [number, set] : llvm::enumerate(domain.axis_sets)) {
    Dims axes;
    for (unsigned dim : set.dims)
      axes.set(dim);
    if (axes.any() && dims == axes)
      return number;
  }
  return -1;
}

void addKept(Strategy& strategy, Domain& domain, Node node, unsigned axes, const TargetDescription& target) {
  IndexSpace& space = domain.space;
  Kept kept;
  kept.node = node;
  kept.axes = axes;
  kept.type = registerType(cast<RankedTensorType>(node.value.getType()).getElementType());
  // Row-major with the laned dim innermost, so that lanes are neighbours.
  unsigned laned = strategy.lanes_in_rows ? Strategy::none : strategy.axis_lanes[axes];
  SmallVector<unsigned> dims;
  for (unsigned dim : domain.axis_sets[axes].dims)
    if (dim != laned)
      dims.push_back(dim);
  if (laned != Strategy::none)
    dims.push_back(laned);
  AffineExpr stride = space.constant(1);
  kept.offset = space.constant(0);
  if (strategy.lanes_in_rows)
    stride = space.constant(target.vector_width);
  if (strategy.interleaved) {  // which share their memory
    kept.offset = space.dim(strategy.row_lanes);
    stride = space.size(strategy.row_lanes);
  }
  for (unsigned dim : llvm::reverse(dims)) {
    kept.offset = kept.offset + space.dim(dim) * stride;
    stride = stride * space.size(dim);
  }
  // A last partial vector is stored whole.
  kept.elements = space.simplify(stride + target.vector_width);
  AffineExpr bytes = kept.elements * bytesInMemory(kept.type);
  strategy.kept_bytes = space.simplify(strategy.kept_bytes + (bytes + 63).floorDiv(64) * 64);
  strategy.kept.push_back(kept);
}

}  // namespace zefuse
