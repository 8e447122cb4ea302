#include "lowering/analysis/fusible.h"

#include "lowering/analysis/domain.h"
#include "lowering/analysis/legality.h"
#include "lowering/dialect/Zefuse.h"
#include "lowering/dialect/shape.h"
#include "llvm/ADT/DenseSet.h"

using namespace mlir;

namespace zefuse {

std::optional<std::string> whyNotLowerable(Operation* op) {
  if (!isa<linalg::GenericOp, linalg::FillOp, tensor::EmptyOp, tensor::ConcatOp, PadOp, ScanOp, ScatterOp, SortOp,
           ViewOp, SizeOp, arith::ConstantOp>(op) &&
      !isProduct(op))
    return op->getName().getStringRef().str() + " has no place in a kernel";
  if (isa<arith::ConstantOp>(op) && isa<RankedTensorType>(op->getResult(0).getType()))
    return std::string("a tensor constant has no place in a kernel: make it an input");
  if (isReduction(op)) {
    auto generic = cast<linalg::GenericOp>(op);
    if (generic.getNumResults() != 1 || !combinerOf(generic).op || !initOf(generic))
      return std::string("a reduction needs one combiner and an init made by linalg.fill");
  }
  if (auto illegal = findIllegal(op))
    return illegal->reason;
  return std::nullopt;
}

// Views belong to whoever reads them: behind a view, its readers count.
static bool isReadOutside(Value value, const llvm::DenseSet<Operation*>& inside) {
  for (Operation* user : value.getUsers()) {
    Operation* reader = value.getParentBlock()->findAncestorOpInBlock(*user);
    if (!reader)
      return true;
    if (auto view = dyn_cast<ViewOp>(reader)) {
      if (isReadOutside(view.getResult(), inside))
        return true;
    } else if (!inside.contains(reader)) {
      return true;
    }
  }
  return false;
}

std::optional<std::string> whyNotOneKernel(ArrayRef<Operation*> ops, KernelShape* shape) {
  if (ops.empty())
    return std::string("no ops");
  for (Operation* op : ops)
    if (auto reason = whyNotLowerable(op))
      return reason;
  llvm::DenseSet<Operation*> inside(ops.begin(), ops.end());
  KernelGraph graph;
  for (Operation* op : ops)
    for (Value result : op->getResults()) {
      if (!isa<RankedTensorType>(result.getType()))
        continue;
      graph.graph_symbols = std::max(graph.graph_symbols, numSymbols(cast<RankedTensorType>(result.getType())));
      if ((isa<linalg::GenericOp, tensor::ConcatOp, PadOp, ScanOp, ScatterOp, SortOp>(op) || isProduct(op)) &&
          isReadOutside(result, inside))
        graph.outputs.push_back(result);
    }
  if (graph.outputs.empty())
    return std::string("no result is used outside these ops");
  graph.is_input = [&](Value value) {
    if (!isa<RankedTensorType>(value.getType()))
      return false;
    Operation* op = value.getDefiningOp();
    return !op || (!inside.contains(op) && !isa<linalg::FillOp, tensor::EmptyOp>(op));
  };
  Refusal refusal;
  auto domain = analyseDomain(ops.front()->getContext(), graph, refusal);
  if (!domain)
    return refusal.reason;
  if (domain->product)
    if (auto reason = whyNotWithProduct(*domain, graph, ops))
      return reason;
  if (shape) {
    shape->kind = domain->instances.empty() ? KernelShape::Kind::pointwise : KernelShape::Kind::reduction;
    shape->rows.clear();
    shape->columns.clear();
    for (unsigned dim : domain->rows)
      shape->rows.push_back(domain->space.size(dim));
    for (unsigned dim : domain->axis_sets[0].dims)
      shape->columns.push_back(domain->space.size(dim));
    shape->reductions = domain->instances.size();
    bool columns = llvm::any_of(domain->outputs, [](auto& output) { return !output.per_row; });
    shape->stages = domain->instances.empty() ? 1 : domain->levels + (columns ? 1 : 0);
  }
  return std::nullopt;
}

}  // namespace zefuse
