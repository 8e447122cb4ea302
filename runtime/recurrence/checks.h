// Whether operands and results of a recurrent layer fit together, and where the special ones are.
#pragma once

#include <string>

#include "common/plan/recurrence.h"
#include "runtime/recurrence/recurrence.h"

namespace zefuse::recurrence {

// An error that says which recurrence it is about.
Status refuse(Code code, const RecurrenceDesc& desc, const std::string& why);

plan::RecurrenceArity arityOf(const RecurrenceDesc& desc);
// One of packed sequences' states, [rows, units], which say how many rows there are.
const primitives::TensorDesc& stateOf(const RecurrenceDesc& desc);
// Where a projection is among the operands.
size_t placeOfProjection(const RecurrenceDesc& desc);

// As Recurrence::get() says.
Status check(const RecurrenceDesc& desc);

}  // namespace zefuse::recurrence
