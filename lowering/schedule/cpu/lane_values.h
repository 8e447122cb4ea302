// Values that the lanes of a pointwise kernel's vectors load one by one, and many lines share: Strategy::lane_values.
// They are loaded once for those lines, for all vectors, and lie in private memory, a slot for each value and vector.
#pragma once

#include "lowering/schedule/core/context.h"

namespace zefuse {

class LaneValues {
public:
  explicit LaneValues(const ScheduleContext& context);

  // In the function's entry block.
  void makeMemory();
  // Where the dims are bound that the lines differ in which do not share them.
  void load();
  // For the vector `block` of the dim with lanes, which is bound.
  void bind(mlir::Value block);

private:
  mlir::Value address(size_t number, mlir::Value block);
  int64_t bytesOfVector(size_t number) const;
  mlir::Type typeOf(size_t number) const;

  const ScheduleContext& c_;
  mlir::Value memory_;
  int64_t lanes_, blocks_;
};

}  // namespace zefuse
