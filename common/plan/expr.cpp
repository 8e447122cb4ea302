#include "common/plan/expr.h"

#include <algorithm>
#include <limits>

namespace zefuse::executor {
namespace {

// Python's floor division and modulo: the compiler's expressions come from there.
bool floorDiv(int64_t a, int64_t b, int64_t& out) {
  if (b == 0 || (a == std::numeric_limits<int64_t>::min() && b == -1))
    return false;
  out = a / b - (a % b != 0 && (a < 0) != (b < 0));
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
  default: return false;
  }
}

}  // namespace

ExprValues::ExprValues(std::span<const plan::ExprNode> nodes, std::span<const int64_t> symbols)
    : values_(nodes.size()), valid_(nodes.size()) {
  for (size_t i = 0; i < nodes.size(); ++i) {
    const plan::ExprNode& node = nodes[i];
    if (node.op() == plan::ExprOp::constant) {
      values_[i] = node.value();
      valid_[i] = true;
    } else if (node.op() == plan::ExprOp::symbol) {
      values_[i] = symbols[size_t(node.value())];
      valid_[i] = true;
    } else {
      valid_[i] = valid_[node.lhs()] && valid_[node.rhs()] &&
                  apply(node.op(), values_[node.lhs()], values_[node.rhs()], values_[i]);
    }
  }
}

}  // namespace zefuse::executor
