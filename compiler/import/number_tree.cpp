#include "compiler/import/number_tree.h"

#include "common/plan/expr_types.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringRef.h"

namespace zefuse::fx {
namespace {

plan::ExprType typeOf(std::string_view op) {
  for (plan::ExprOp candidate : plan::EnumValuesExprOp())
    if (op == plan::EnumNameExprOp(candidate))
      return plan::typeOf(candidate);
  llvm_unreachable("no operator of the plan");
}

NumberTree real(NumberTree tree) {
  if (isReal(tree))
    return tree;
  return {"to_real", {}, {}, {std::move(tree)}};
}

NumberTree constantLike(const NumberTree& tree, int64_t number) {
  if (isReal(tree))
    return {"", {}, static_cast<double>(number), {}};
  // An integer's first leaf has the context.
  const NumberTree* leaf = &tree;
  while (!leaf->leaf && !leaf->args.empty())
    leaf = &leaf->args.front();
  return {"", leaf->leaf.constantLike(number), {}, {}};
}

}  // namespace

bool isReal(const NumberTree& tree) { return tree.op.empty() ? tree.constant.has_value() : typeOf(tree.op).gives_real; }

bool usesReal(const NumberTree& tree) { return isReal(tree) || llvm::any_of(tree.args, usesReal); }

NumberTree numberTree(std::string_view op, NumberTree operand) {
  if (typeOf(op).takes_real)
    operand = real(std::move(operand));
  return {std::string(op), {}, {}, {std::move(operand)}};
}

NumberTree numberTree(std::string_view op, NumberTree lhs, NumberTree rhs) {
  if (typeOf(op).takes_real) {
    lhs = real(std::move(lhs));
    rhs = real(std::move(rhs));
  }
  return {std::string(op), {}, {}, {std::move(lhs), std::move(rhs)}};
}

std::optional<NumberTree> computation(std::string_view name_of_function, std::vector<NumberTree> arguments) {
  llvm::StringRef function = name_of_function;
  // Of two integers the first operator, else the second; "": there is none.
  static const std::tuple<llvm::StringRef, llvm::StringRef, llvm::StringRef> binary[] = {
      {"add", "add", "real_add"},     {"mul", "mul", "real_mul"},     {"truediv", "real_div", "real_div"},
      {"floordiv", "floordiv", ""},   {"mod", "mod", "real_mod"},     {"pow", "pow", "real_pow"},
      {"sym_min", "min", "real_min"}, {"sym_max", "max", "real_max"},
  };
  static const llvm::StringRef real_functions[] = {"sqrt", "log2", "sin",  "cos",  "tan", "asin",
                                                   "acos", "atan", "sinh", "cosh", "tanh"};
  static const std::pair<llvm::StringRef, llvm::StringRef> to_integer[] = {
      {"floor", "floor"}, {"ceil", "ceil"}, {"trunc", "trunc"}, {"sym_int", "trunc"}, {"round", "round"}};
  if (arguments.size() == 2) {
    NumberTree &lhs = arguments[0], &rhs = arguments[1];
    if (function == "sub") {
      rhs = numberTree(isReal(rhs) ? "real_mul" : "mul", rhs, constantLike(rhs, -1));
      function = "add";
    }
    for (auto [name, of_integers, of_reals] : binary)
      if (function == name)
        if (llvm::StringRef op = isReal(lhs) || isReal(rhs) ? of_reals : of_integers; !op.empty())
          return numberTree(op, std::move(lhs), std::move(rhs));
    return std::nullopt;
  }
  if (arguments.size() != 1)
    return std::nullopt;
  NumberTree& operand = arguments[0];
  if (function == "neg")
    return numberTree(isReal(operand) ? "real_mul" : "mul", operand, constantLike(operand, -1));
  if (function == "sym_float")
    return real(std::move(operand));
  for (auto [name, op] : to_integer)
    if (function == name)
      return isReal(operand) ? numberTree(op, std::move(operand)) : std::move(operand);
  if (function.consume_front("_sym_") && llvm::is_contained(real_functions, function))
    return numberTree(function, std::move(operand));
  return std::nullopt;
}

}  // namespace zefuse::fx
