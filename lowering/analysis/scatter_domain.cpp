#include "lowering/analysis/domain.h"
#include "lowering/dialect/shape.h"

using namespace mlir;

namespace zefuse {
namespace {

// The dims that a tensor's element at `node` depends on, through what is loaded and iterated.
Dims dimsNeeded(IndexSpace& space, const KernelGraph& graph, Node root) {
  Dims dims;
  llvm::DenseSet<std::pair<Value, AffineMap>> seen;
  walkNodes(space, root, seen, graph, [&](Node node) {
    if (graph.is_input(node.value))
      dims |= space.dimsOf(node.at);
    else if (auto index = node.value.getDefiningOp<linalg::IndexOp>())
      dims |= space.dimsOf(node.at.getResult(index.getDim()));
    return true;
  });
  return dims;
}

}  // namespace

std::unique_ptr<Domain> analyseScatter(ScatterOp op, const KernelGraph& graph, Refusal& refusal) {
  auto domain = std::make_unique<Domain>(op.getContext(), graph.graph_symbols);
  IndexSpace& space = domain->space;
  auto updates = shapeOf(op.getUpdates().getType()), result = shapeOf(op.getType());
  AffineMap coordinates = op.getCoordinates();
  ScatterForm form{op};

  // A dimension of the updates that is one of the result, whole and nowhere else, is free.
  SmallVector<AffineExpr> init_at(result.size()), updates_at(updates.size());
  for (auto [position, expr] : llvm::enumerate(coordinates.getResults())) {
    auto dim = dyn_cast<AffineDimExpr>(expr);
    if (!dim || dim.getPosition() >= updates.size() || updates[dim.getPosition()] != result[position])
      continue;
    int uses = llvm::count_if(coordinates.getResults(),
                              [&](AffineExpr other) { return other.isFunctionOfDim(dim.getPosition()); });
    if (uses != 1)
      continue;
    AffineExpr shared = space.constant(0);
    if (constantOf(result[position]) != 1) {
      domain->rows.push_back(space.addDim(result[position]));
      shared = space.dim(domain->rows.back());
    }
    init_at[position] = updates_at[dim.getPosition()] = shared;
  }
  auto loops = [&](ArrayRef<AffineExpr> sizes, MutableArrayRef<AffineExpr> at, SmallVectorImpl<unsigned>& dims) {
    for (auto [size, index] : llvm::zip(sizes, at)) {
      if (index)
        continue;
      index = space.constant(0);
      if (constantOf(size) == 1)
        continue;
      dims.push_back(space.addDim(size));
      index = space.dim(dims.back());
    }
  };
  loops(updates, updates_at, form.sequential);
  loops(result, init_at, form.fill);
  form.updates_at = space.indices(updates_at);
  form.init_at = space.indices(init_at);

  SmallVector<Node> roots = {form.init(), form.update()};
  SmallVector<AffineExpr> values(form.updates_at.getResults());
  for (Value index : op.getIndices()) {
    roots.push_back({index, form.updates_at});
    values.push_back(space.opaque(index, form.updates_at, dimsNeeded(space, graph, roots.back())));
  }
  form.target = space.apply(coordinates, space.indices(values));

  refusal = whyNotElementwise(space, roots, graph, "a scatter");
  if (!refusal.reason.empty() || !hasRoom(space, op, refusal))
    return nullptr;
  domain->axis_sets.emplace_back();
  domain->outputs.push_back({0, {op.getResult(), form.target}, false});
  domain->scatter = form;
  return domain;
}

}  // namespace zefuse
