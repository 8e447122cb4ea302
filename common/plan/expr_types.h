// What a plan's size expressions take and give: integers, or real numbers as f64.
#pragma once

#include "common/plan/plan_generated.h"

namespace zefuse::plan {

struct ExprType {
  int operands;     // the first is `lhs`; one operand: `rhs` is not read
  bool takes_real;  // its operands
  bool gives_real;
};

constexpr ExprType typeOf(ExprOp op) {
  switch (op) {
  case ExprOp::constant:
  case ExprOp::symbol: return {0, false, false};
  case ExprOp::add:
  case ExprOp::mul:
  case ExprOp::floordiv:
  case ExprOp::ceildiv:
  case ExprOp::mod:
  case ExprOp::min:
  case ExprOp::max:
  case ExprOp::pow: return {2, false, false};
  case ExprOp::real: return {0, false, true};
  case ExprOp::from_bits:
  case ExprOp::to_real: return {1, false, true};
  case ExprOp::real_add:
  case ExprOp::real_mul:
  case ExprOp::real_div:
  case ExprOp::real_mod:
  case ExprOp::real_pow:
  case ExprOp::real_min:
  case ExprOp::real_max: return {2, true, true};
  case ExprOp::sqrt:
  case ExprOp::log2:
  case ExprOp::sin:
  case ExprOp::cos:
  case ExprOp::tan:
  case ExprOp::asin:
  case ExprOp::acos:
  case ExprOp::atan:
  case ExprOp::sinh:
  case ExprOp::cosh:
  case ExprOp::tanh: return {1, true, true};
  case ExprOp::floor:
  case ExprOp::ceil:
  case ExprOp::trunc:
  case ExprOp::round:
  case ExprOp::bits: return {1, true, false};
  }
  return {0, false, false};
}

}  // namespace zefuse::plan
