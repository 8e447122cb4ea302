// Where the other outputs of a kernel are stored while the domain of its main output is walked.
#pragma once

#include "lowering/analysis/domain.h"

namespace zefuse {

// The indices of `output` as functions of the domain's dims, such that the walk visits each of its elements exactly
// once (or once per row). domain.outputs[0] is the main output. Preferred, in this order: where the main output's
// computation meets it; what is made of a product's second result, at the rows of the first; where it reads a tensor at
// the indices at which the domain reads it already; the main output's indices, when the shapes agree; the rows.
// Nothing: its iteration space is another.
std::optional<mlir::AffineMap> placeOutput(Domain& domain, const KernelGraph& graph, mlir::Value output);

}  // namespace zefuse
