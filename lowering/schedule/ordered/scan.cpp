// Scans: the one loop of a kernel whose order is part of the meaning.
#include "lowering/schedule/core/context.h"
#include "lowering/schedule/core/scalar_ops.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;

namespace zefuse {

void ScheduleContext::scanRow(unsigned lanes) const {
  OpBuilder& b = builder();
  Location loc = b.getUnknownLoc();
  unsigned dim = *domain.scan_dim;
  evaluator.toInnermost();
  SmallVector<Value> initial;
  for (Node scan : domain.scans)
    initial.push_back(constantOfType(b, loc, cast<TypedAttr>(scan.value.getDefiningOp<ScanOp>().getInitial()), lanes));
  Value size = evaluator.index(domain.space.size(dim));
  evaluator.toInnermost();
  auto loop = evaluator.openLoop(constantIndex(b, loc, 0), size, constantIndex(b, loc, 1), initial);
  evaluator.bind(dim, loop.index());
  SmallVector<Value> next(domain.scans.size());
  auto step = [&](auto&& self, size_t number) -> void {
    if (next[number] || evaluator.failed())
      return;
    Node node = domain.scans[number];
    auto scan = node.value.getDefiningOp<ScanOp>();
    Node input{scan.getInput(), node.at};
    // A scan of a scan needs that one's element first.
    llvm::DenseSet<std::pair<Value, AffineMap>> seen;
    walkNodes(domain.space, input, seen, graph, [&](Node inner) {
      auto found = llvm::find(domain.scans, inner);
      if (found == domain.scans.end())
        return true;
      self(self, found - domain.scans.begin());
      return false;
    });
    Value element = evaluator.evaluate(input);
    if (!element)
      return;
    evaluator.toInnermost();
    Value before = loop.carried()[number];
    next[number] = evaluator.emitBody(scan.getBody().front(), {before, splat(b, element, lanes)});
    evaluator.bindValue(node, next[number]);
  };
  for (size_t number = 0; number < next.size(); ++number)
    step(step, number);
  storeAllOutputs();
  if (!evaluator.failed())
    evaluator.closeLoop(loop, next);
}

}  // namespace zefuse
