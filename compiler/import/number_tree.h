// Numbers made of sizes, as the plan computes them (plan.fbs, ExprOp).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compiler/import/fx_graph.h"
#include "llvm/ADT/StringRef.h"

namespace zefuse::fx {

// Whether it gives a real number rather than an integer.
bool isReal(const NumberTree& tree);
// Whether a real number is computed anywhere in it.
bool usesReal(const NumberTree& tree);
// An operator of plan::ExprOp on operands that become real numbers where it wants such.
NumberTree numberTree(llvm::StringRef op, NumberTree operand);
NumberTree numberTree(llvm::StringRef op, NumberTree lhs, NumberTree rhs);
// What a Python function of the operator, math and builtins modules or of torch's symbolic numbers ("truediv", "ceil",
// "_sym_sqrt") computes of these arguments; none for a function or arguments that the plan has no operator for.
std::optional<NumberTree> computation(llvm::StringRef function, std::vector<NumberTree> arguments);

}  // namespace zefuse::fx
