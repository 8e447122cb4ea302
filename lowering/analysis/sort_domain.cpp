#include "lowering/analysis/domain.h"
#include "lowering/dialect/shape.h"

using namespace mlir;

namespace zefuse {

std::unique_ptr<Domain> analyseSort(SortOp op, const KernelGraph& graph, Refusal& refusal) {
  auto domain = std::make_unique<Domain>(op.getContext(), graph.graph_symbols);
  IndexSpace& space = domain->space;
  auto sizes = shapeOf(cast<RankedTensorType>(op.getInput().getType()));
  int64_t sorted = op.getDim();
  SortForm form{op};
  SmallVector<AffineExpr> at;
  for (auto [position, size] : llvm::enumerate(sizes)) {
    at.push_back(space.constant(0));
    if (static_cast<int64_t>(position) == sorted || constantOf(size) == 1)
      continue;
    domain->rows.push_back(space.addDim(size));
    at.back() = space.dim(domain->rows.back());
  }
  form.from = space.addDim(sizes[sorted]);
  form.to = space.addDim(shapeOf(cast<RankedTensorType>(op.getValues().getType()))[sorted]);
  at[sorted] = space.dim(form.from);
  form.input_at = space.indices(at);
  at[sorted] = space.dim(form.to);
  form.results_at = space.indices(at);

  refusal = whyNotElementwise(space, form.input(), graph, "a sort");
  if (!refusal.reason.empty() || !hasRoom(space, op, refusal))
    return nullptr;
  domain->axis_sets.emplace_back();
  for (auto [number, output] : llvm::enumerate(graph.outputs))
    domain->outputs.push_back({unsigned(number), {output, form.results_at}, false});
  domain->sort = form;
  return domain;
}

}  // namespace zefuse
