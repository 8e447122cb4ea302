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

bool isReadOutside(Value value, const llvm::DenseSet<Operation*>& inside) {
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

// Indices of the reader's element in the order of its dimensions, some left out: what is broadcast, and what is not.
static bool isInOrder(AffineMap map) {
  int last = -1;
  for (AffineExpr index : map.getResults()) {
    auto dim = dyn_cast<AffineDimExpr>(index);
    if (dim && int(dim.getPosition()) > last)
      last = dim.getPosition();
    else if (index != getAffineConstantExpr(0, map.getContext()))
      return false;
  }
  return true;
}

/// The type that all results of these elementwise operations are shaped as, where each makes an element of the same
/// elements of the others and of what is in order outside. Such operations are one kernel, whatever their number: the
/// domain of one is that of all, and nothing has to be analysed. Others may be one kernel as well.
static std::optional<RankedTensorType> elementForElement(ArrayRef<Operation*> ops,
                                                         const llvm::DenseSet<Operation*>& inside) {
  std::optional<RankedTensorType> common;
  for (Operation* op : ops) {
    if (isa<linalg::FillOp, tensor::EmptyOp, arith::ConstantOp>(op))
      continue;
    auto generic = dyn_cast<linalg::GenericOp>(op);
    if (!generic || generic.getNumResults() != 1 || generic.getNumReductionLoops() > 0)
      return std::nullopt;
    auto type = cast<RankedTensorType>(op->getResult(0).getType());
    if (!common)
      common = type;
    if (!sameShape(type, *common) || type.getRank() > int64_t(IndexSpace::max_dims))
      return std::nullopt;
    for (OpOperand& operand : op->getOpOperands()) {
      AffineMap map = generic.getMatchingIndexingMap(&operand);
      Operation* producer = operand.get().getDefiningOp();
      const bool empty = isa_and_nonnull<tensor::EmptyOp>(producer);
      if (generic.isDpsInit(&operand)) {
        if (!map.isIdentity() || !empty || generic.payloadUsesValueFromOperand(&operand))
          return std::nullopt;
      } else if (isa_and_nonnull<linalg::GenericOp>(producer) && inside.contains(producer)) {
        if (!map.isIdentity())
          return std::nullopt;
      } else if (empty || !isInOrder(map)) {
        return std::nullopt;
      }
    }
    // An index into another tensor is an access of its own.
    for (Operation& inner : *generic.getBody())
      if (inner.getNumRegions() > 0 || isa<tensor::ExtractOp, linalg::IndexOp, CheckedIndexOp>(inner))
        return std::nullopt;
  }
  return common;
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
  if (auto type = elementForElement(ops, inside)) {
    if (shape) {
      *shape = {};
      for (AffineExpr size : shapeOf(*type))
        if (constantOf(size) != 1)
          shape->rows.push_back(size);
      shape->stages = 1;
    }
    return std::nullopt;
  }
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
