#include "common/plan/expr.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "common/plan/expr_types.h"

namespace zefuse::plan {
namespace {

// Python's floor division and modulo: the compiler's expressions come from there.
bool floorDiv(int64_t a, int64_t b, int64_t& out) {
  if (b == 0 || (a == std::numeric_limits<int64_t>::min() && b == -1))
    return false;
  out = a / b - (a % b != 0 && (a < 0) != (b < 0));
  return true;
}

// Python's power of integers; a negative exponent would make a real number.
bool power(int64_t base, int64_t exponent, int64_t& out) {
  if (exponent < 0)
    return false;
  for (out = 1; exponent; exponent >>= 1) {
    if ((exponent & 1) && __builtin_mul_overflow(out, base, &out))
      return false;
    if (exponent > 1 && __builtin_mul_overflow(base, base, &base))
      return false;
  }
  return true;
}

bool apply(plan::ExprOp op, int64_t a, int64_t b, int64_t& out) {
  switch (op) {
  case plan::ExprOp::add: return !__builtin_add_overflow(a, b, &out);
  case plan::ExprOp::mul: return !__builtin_mul_overflow(a, b, &out);
  case plan::ExprOp::floordiv: return floorDiv(a, b, out);
  case plan::ExprOp::ceildiv: {
    int64_t floor;
    if (!floorDiv(a, b, floor))
      return false;
    out = floor + (a % b != 0);
    return true;
  }
  case plan::ExprOp::mod: {
    int64_t floor;
    if (!floorDiv(a, b, floor))
      return false;
    out = a - floor * b;
    return true;
  }
  case plan::ExprOp::min: out = std::min(a, b); return true;
  case plan::ExprOp::max: out = std::max(a, b); return true;
  case plan::ExprOp::pow: return power(a, b, out);
  default: return false;
  }
}

// Python's remainder of real numbers: of the divisor's sign.
double remainderOf(double a, double b) {
  const double rest = std::fmod(a, b);
  if (rest == 0)
    return std::copysign(0.0, b);
  return (b < 0) != (rest < 0) ? rest + b : rest;
}

bool applyReal(plan::ExprOp op, double a, double b, double& out) {
  switch (op) {
  case plan::ExprOp::real_add: out = a + b; return true;
  case plan::ExprOp::real_mul: out = a * b; return true;
  case plan::ExprOp::real_min: out = b < a ? b : a; return true;
  case plan::ExprOp::real_max: out = b > a ? b : a; return true;
  case plan::ExprOp::real_div: out = a / b; return b != 0;
  case plan::ExprOp::real_mod: out = remainderOf(a, b); return b != 0;
  case plan::ExprOp::real_pow: out = std::pow(a, b); break;
  case plan::ExprOp::sqrt: out = std::sqrt(a); break;
  case plan::ExprOp::log2: out = std::log2(a); break;
  case plan::ExprOp::sin: out = std::sin(a); break;
  case plan::ExprOp::cos: out = std::cos(a); break;
  case plan::ExprOp::tan: out = std::tan(a); break;
  case plan::ExprOp::asin: out = std::asin(a); break;
  case plan::ExprOp::acos: out = std::acos(a); break;
  case plan::ExprOp::atan: out = std::atan(a); break;
  case plan::ExprOp::sinh: out = std::sinh(a); break;
  case plan::ExprOp::cosh: out = std::cosh(a); break;
  case plan::ExprOp::tanh: out = std::tanh(a); break;
  default: return false;
  }
  return std::isfinite(out) || !std::isfinite(a) || !std::isfinite(b);  // Python raises there
}

bool toInteger(plan::ExprOp op, double number, int64_t& out) {
  switch (op) {
  case plan::ExprOp::bits: out = std::bit_cast<int64_t>(number); return true;
  case plan::ExprOp::floor: number = std::floor(number); break;
  case plan::ExprOp::ceil: number = std::ceil(number); break;
  case plan::ExprOp::trunc: number = std::trunc(number); break;
  case plan::ExprOp::round: number = std::nearbyint(number); break;  // half to even
  default: return false;
  }
  if (!(std::abs(number) < 0x1p63))
    return false;
  out = int64_t(number);
  return true;
}

// A real number is kept as its bits.
bool evaluate(plan::ExprOp op, int64_t a, int64_t b, int64_t& out) {
  const plan::ExprType type = plan::typeOf(op);
  if (op == plan::ExprOp::from_bits) {
    out = a;
    return true;
  }
  if (op == plan::ExprOp::to_real) {
    out = std::bit_cast<int64_t>(double(a));
    return true;
  }
  if (!type.takes_real)
    return apply(op, a, b, out);
  const auto lhs = std::bit_cast<double>(a), rhs = std::bit_cast<double>(b);
  if (!type.gives_real)
    return toInteger(op, lhs, out);
  double result = 0;
  if (!applyReal(op, lhs, rhs, result))
    return false;
  out = std::bit_cast<int64_t>(result);
  return true;
}

}  // namespace

ExprValues::ExprValues(std::span<const plan::ExprNode> nodes, std::span<const int64_t> symbols)
    : values_(nodes.size()), valid_(nodes.size()) {
  for (size_t i = 0; i < nodes.size(); ++i) {
    const plan::ExprNode& node = nodes[i];
    if (node.op() == plan::ExprOp::constant || node.op() == plan::ExprOp::real) {
      values_[i] = node.value();
      valid_[i] = true;
    } else if (node.op() == plan::ExprOp::symbol) {
      values_[i] = symbols[size_t(node.value())];
      valid_[i] = true;
    } else {
      const uint32_t rhs = plan::typeOf(node.op()).operands == 1 ? node.lhs() : node.rhs();
      valid_[i] =
          valid_[node.lhs()] && valid_[rhs] && evaluate(node.op(), values_[node.lhs()], values_[rhs], values_[i]);
    }
  }
}

}  // namespace zefuse::plan
