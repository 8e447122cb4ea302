// A recurrence that is made, gets its weight packed and runs once, with memory of its own.
#pragma once

#include <vector>

#include "common/plan/recurrence.h"
#include "runtime/recurrence/recurrence.h"

namespace zefuse::recurrence {

inline Status runOnce(const RecurrenceDesc& desc, const std::vector<const void*>& operands,
                      const std::vector<void*>& results) {
  auto made = Recurrence::get(desc);
  if (!made.ok())
    return made.status();
  std::vector<float> packed((*made)->packedBytes() / sizeof(float) + 16),
      scratch((*made)->scratchBytes() / sizeof(float) + 16);
  const size_t weight = plan::arityOf(desc.cell, desc.gradient, desc.packed).weight;
  ZEFUSE_RETURN_IF_ERROR((*made)->packB(operands[weight], packed.data()));
  primitives::Primitive::Arguments arguments{};
  arguments.b = packed.data();
  arguments.operands = operands;
  arguments.results = results;
  arguments.scratch = scratch.data();
  return (*made)->run(arguments);
}

}  // namespace zefuse::recurrence
