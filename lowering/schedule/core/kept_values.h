// Values that a stage of a row keeps for later ones: where each lies among them.
#pragma once

#include "lowering/schedule/core/strategy.h"

namespace zefuse {

// Operations that computing an element's kept values once more would take.
double costOfKept(const Strategy& strategy, Domain& domain, const KernelGraph& graph);

void keepNothing(Strategy& strategy, const IndexSpace& space);

// The axis set all of whose dims, and no other axis dims, the indices use; -1: there is none.
int axisSetOf(const Domain& domain, mlir::AffineMap at);

void addKept(Strategy& strategy, Domain& domain, Node node, unsigned axes, const TargetDescription& target);

}  // namespace zefuse
