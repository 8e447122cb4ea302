// How many neighbours in memory a work-item's vectors may hold.
#pragma once

#include "lowering/schedule/core/context.h"

namespace zefuse {

// Of one kernel: by the types of what it loads and stores for each element, and by where that lies.
class AccessLanes {
public:
  explicit AccessLanes(const ScheduleContext& context);

  // The most that a vector may hold.
  int64_t width() const { return width_; }
  void limit(int64_t width) { width_ = width; }
  // How many tensors are loaded and stored for each element.
  size_t accesses() const { return offsets_.size(); }

  // Lanes of vectors along `dim`: a power of two that it holds.
  int64_t along(unsigned dim) const;
  // Likewise, such that no vector of a row's element has to be split: work-items side by side then still read and
  // write side by side, as rows of an odd length otherwise do not. What the rows share does not count: it is in a
  // cache.
  int64_t aligned(unsigned dim) const;

private:
  const ScheduleContext& c_;
  IndexSpace& space_;
  int64_t width_;
  llvm::SmallVector<std::pair<mlir::AffineExpr, int64_t>> offsets_;  // of those tensors, and an element's bytes
};

// The longest axis set's size; none: symbolic.
std::optional<int64_t> elementsOfRow(const Domain& domain);

}  // namespace zefuse
