// Values of a plan's size expressions for one set of symbols.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/plan/plan_generated.h"

namespace zefuse::plan {

// An expression that overflows or divides by zero has no value; it is an error only where it is
// used.
class ExprValues {
public:
  ExprValues() = default;
  // The nodes must be checked: operands before users, symbols in range.
  ExprValues(std::span<const plan::ExprNode> nodes, std::span<const int64_t> symbols);

  bool valid(uint32_t index) const { return valid_[index]; }
  int64_t operator[](uint32_t index) const { return values_[index]; }

private:
  std::vector<int64_t> values_;
  std::vector<uint8_t> valid_;
};

}  // namespace zefuse::plan
