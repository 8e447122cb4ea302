// Where the other outputs of a kernel are stored while the domain of its main output is walked.
#pragma once

#include <memory>

#include "lowering/analysis/domain.h"

namespace zefuse {

// For one domain, which gains outputs meanwhile and changes in nothing else: what its walks meet is found out once.
class OutputPlaces {
public:
  OutputPlaces(Domain& domain, const KernelGraph& graph);
  ~OutputPlaces();

  // The indices of `output` as functions of the domain's dims, such that the walk visits each of its elements exactly
  // once (or once per row). domain.outputs[0] is the main output. Preferred, in this order: where the main output's
  // computation meets it; what is made of a product's second result, at the rows of the first; where it reads a tensor
  // at the indices at which the domain reads it already; the main output's indices, when the shapes agree; the rows.
  // Nothing: its iteration space is another.
  std::optional<mlir::AffineMap> of(mlir::Value output);

  struct Met;

private:
  Domain& domain_;
  const KernelGraph& graph_;
  std::unique_ptr<Met> met_;
};

}  // namespace zefuse
