// How a row is sorted: a bitonic network over integer keys (ordered/sort_keys.h), the same steps whatever the data are.
#pragma once

#include "common/toolchain/target_description.h"
#include "lowering/analysis/domain.h"
#include "lowering/schedule/core/choices.h"

namespace zefuse {

struct SortPlan {
  bool select = false;        // keeps the best elements met so far, instead of sorting all
  unsigned lanes = 0;         // of a vector of keys: a power of two
  mlir::AffineExpr capacity;  // keys held per row, a multiple of the lanes
  mlir::AffineExpr bytes;     // of these
  double cost = 1;            // per row, as Strategy::unit_cost
  choice::Sort choice;
};

// Whether a sort of this element type has wide keys.
bool hasWideKeys(mlir::Type element);
SortPlan planSort(const SortForm& form, const IndexSpace& space);       // for groups of one work-item
SortPlan planGroupSort(const SortForm& form, const IndexSpace& space);  // for larger ones

}  // namespace zefuse
