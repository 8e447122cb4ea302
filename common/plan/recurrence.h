// What a Recurrence step of each kind has (plan.fbs, table Recurrence).
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/plan/plan_generated.h"

namespace zefuse::plan {

struct RecurrenceArity {
  size_t operands, results;
  size_t weight;  // its place among the operands
  int64_t gates;  // rows of the weight per hidden unit
};

constexpr RecurrenceArity arityOf(RecurrentCell cell, bool gradient, bool packed = false, bool projected = false) {
  if (packed) {
    const RecurrenceArity dense = arityOf(cell, gradient, false, projected);
    return {dense.operands + (gradient ? 2 : 1), dense.results + (gradient ? 0 : 2), dense.weight, dense.gates};
  }
  if (projected) {  // the projection follows the operands, the gradient of its result the results
    const RecurrenceArity plain = arityOf(cell, gradient);
    return {plain.operands + 1, plain.results + (gradient ? 1 : 0), plain.weight, plain.gates};
  }
  switch (cell) {
  case RecurrentCell::lstm: return gradient ? RecurrenceArity{6, 3, 2, 4} : RecurrenceArity{5, 4, 1, 4};
  case RecurrentCell::gru: return gradient ? RecurrenceArity{5, 3, 1, 3} : RecurrenceArity{4, 2, 1, 3};
  case RecurrentCell::lstm_layer: return gradient ? RecurrenceArity{7, 4, 2, 4} : RecurrenceArity{5, 5, 1, 4};
  case RecurrentCell::tanh:
  case RecurrentCell::relu: break;
  }
  return gradient ? RecurrenceArity{3, 2, 1, 1} : RecurrenceArity{4, 1, 1, 1};
}

}  // namespace zefuse::plan
