#include "lowering/schedule/core/op_cost.h"

#include "lowering/analysis/element_types.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/ADT/DenseSet.h"

using namespace mlir;

namespace zefuse {

double estimated(const IndexSpace& space, AffineExpr size) {
  AffineExpr number = size;
  for (unsigned symbol = 0; symbol < space.graphSymbols(); ++symbol)
    number = number.replace(getAffineSymbolExpr(symbol, space.context()), space.constant(int64_t(assumed_symbol)));
  return double(constantOf(space.simplify(number)).value_or(int64_t(assumed_symbol)));
}

double opCost(Operation* op) {
  if (isa<math::AbsFOp, math::SqrtOp, math::FmaOp, math::FloorOp, math::CeilOp, math::RoundEvenOp, math::TruncOp,
          math::CopySignOp, math::AbsIOp>(op))
    return 1;
  if (isa<math::MathDialect>(op->getDialect()))
    return 16;
  if (isa<arith::DivSIOp, arith::RemSIOp, arith::FloorDivSIOp, arith::CeilDivSIOp, arith::DivUIOp, arith::RemUIOp>(op))
    return 20;
  if (isa<arith::DivFOp>(op))
    return 4;
  return isa<arith::ConstantOp>(op) ? 0 : 1;
}

double costOf(Value tensor) {
  auto generic = tensor.getDefiningOp<linalg::GenericOp>();
  if (!generic || isReduction(generic))
    return 0;
  double cost = 0;
  for (Operation& op : generic.getBody()->without_terminator())
    cost += isa<tensor::ExtractOp>(op) ? 8 : opCost(&op);
  return cost;
}

bool isExpensive(Value tensor) { return costOf(tensor) >= 8; }

double unitCost(Domain& domain, const KernelGraph& graph) {
  IndexSpace& space = domain.space;
  double total = 0;
  auto add = [&](ArrayRef<Node> roots, double times, double stored_bytes) {
    double bytes = stored_bytes, work = 0;
    llvm::DenseSet<std::pair<Value, AffineMap>> seen;
    for (Node root : roots)
      walkNodes(space, root, seen, graph, [&](Node node) {
        if (graph.is_input(node.value)) {
          bytes += bytesInMemory(cast<RankedTensorType>(node.value.getType()).getElementType());
          return false;
        }
        Operation* op = node.value.getDefiningOp();
        if (op && isReduction(op))
          return false;
        if (op && !isa<RankedTensorType>(node.value.getType()))
          work += opCost(op);
        return true;
      });
    total += (bytes + work) * times;
  };
  auto elements = [&](const AxisSet& set) {
    double count = 1;
    for (unsigned dim : set.dims)
      count *= estimated(space, space.size(dim));
    return count;
  };
  for (const Instance& instance : domain.instances)
    add({instance.element()}, elements(domain.axis_sets[instance.axes]), 0);
  for (const DomainOutput& output : domain.outputs)
    add({output.node}, output.per_row ? 1 : elements(domain.axis_sets[0]),
        bytesInMemory(cast<RankedTensorType>(output.node.value.getType()).getElementType()));
  return total;
}

}  // namespace zefuse
