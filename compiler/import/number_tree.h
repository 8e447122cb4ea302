// Numbers made of sizes, as the plan computes them (plan.fbs, ExprOp).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/api.h"
#include "compiler/import/fx_graph.h"

namespace zefuse::fx {

// Whether it gives a real number rather than an integer.
ZEFUSE_API bool isReal(const NumberTree& tree);
// Whether a real number is computed anywhere in it.
ZEFUSE_API bool usesReal(const NumberTree& tree);
// An operator of plan::ExprOp on operands that become real numbers where it wants such.
ZEFUSE_API NumberTree numberTree(std::string_view op, NumberTree operand);
ZEFUSE_API NumberTree numberTree(std::string_view op, NumberTree lhs, NumberTree rhs);
// What a Python function of the operator, math and builtins modules or of torch's symbolic numbers ("truediv", "ceil",
// "_sym_sqrt") computes of these arguments; none for a function or arguments that the plan has no operator for.
ZEFUSE_API std::optional<NumberTree> computation(std::string_view function, std::vector<NumberTree> arguments);

}  // namespace zefuse::fx
