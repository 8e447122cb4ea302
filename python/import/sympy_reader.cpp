#include "python/import/sympy_reader.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "compiler/import/number_tree.h"

namespace py = pybind11;

namespace zefuse::fx {
namespace {

std::string kindOf(py::handle expr) { return py::str(py::type::handle_of(expr).attr("__name__")); }

}  // namespace

SizeExpr SympyReader::size(py::handle value) { return read(value, /*stride=*/false); }
SizeExpr SympyReader::stride(py::handle value) { return read(value, /*stride=*/true); }

SizeExpr SympyReader::read(py::handle value, bool stride) {
  if (PyLong_Check(value.ptr()))
    return SizeExpr::constant(context_, PyLong_AsLongLong(value.ptr()));
  py::object node = value.attr("node");
  auto found = nodes_.find({node.ptr(), stride});
  if (found != nodes_.end())
    return found->second;
  shape_env_ = node.attr("shape_env");
  py::object expr = node.attr("expr");
  const bool one = isOne(node, expr);
  if (one)
    ones_.insert(py::str(expr));
  SizeExpr result = one ? SizeExpr::constant(context_, 1) : convert(expr, stride);
  nodes_[{node.ptr(), stride}] = result;
  alive_.push_back(std::move(node));
  return result;
}

bool SympyReader::isOne(py::handle node, py::handle expr) const {
  if (kindOf(expr) == "Symbol" || !py::bool_(node.attr("has_hint")()) ||
      !py::object(node.attr("hint")).equal(py::int_(1)))
    return false;
  py::object equal = py::module_::import("sympy").attr("Eq")(expr, 1);
  py::object known = shape_env_.attr("_maybe_evaluate_static")(equal);
  return !known.is_none() && py::bool_(known);
}

SizeExpr SympyReader::real(py::handle value) {
  py::object node = value.attr("node");
  shape_env_ = node.attr("shape_env");
  py::object expr = node.attr("expr");
  if (kindOf(expr) == "Symbol")  // an input
    return symbol(py::str(expr.attr("name")));
  std::string text = py::str(expr), name = "bits(" + text + ")";
  if (numbers_.contains(name))
    return symbol(name);
  std::optional<NumberTree> made = number(expr, text);
  if (!made || !isReal(*made))
    return {};
  SizeExpr fresh = symbol(name);
  definitions_[*fresh.symbol()] = numberTree("bits", std::move(*made));
  return fresh;
}

SizeExpr SympyReader::realInput(py::handle value) {
  py::object expr = value.attr("node").attr("expr");
  std::string text = py::str(expr);
  return symbol(kindOf(expr) == "Symbol" ? text : "bits(" + text + ")");
}

void SympyReader::define(py::handle value, NumberTree tree) {
  computed_.try_emplace(std::string(py::str(value.attr("node").attr("expr"))), std::move(tree));
}

SizeExpr SympyReader::symbol(const std::string& name) {
  auto [entry, inserted] = numbers_.try_emplace(name, symbols_.size());
  if (inserted)
    symbols_.push_back(name);
  return SizeExpr::symbol(context_, entry->second);
}

const NumberTree* SympyReader::definition(unsigned symbol) const {
  auto found = definitions_.find(symbol);
  return found == definitions_.end() ? nullptr : &found->second;
}

// From Eq(Min(s1, s0 - 1), 6), which a program asked that takes all six apart.
std::optional<int64_t> SympyReader::guarded(const std::string& text) {
  if (!fixed_) {
    fixed_.emplace();
    for (py::handle guard : shape_env_.attr("guards")) {
      py::object equal = guard.attr("expr");
      if (kindOf(equal) != "Equality")
        continue;
      py::tuple sides = equal.attr("args");
      for (size_t i = 0; i < 2; ++i)
        if (sides[i].attr("is_Integer").cast<bool>())
          fixed_->try_emplace(py::str(py::object(sides[1 - i])), py::int_(py::object(sides[i])).cast<int64_t>());
    }
  }
  auto found = fixed_->find(text);
  return found == fixed_->end() ? std::nullopt : std::optional(found->second);
}

SizeExpr SympyReader::symbolFor(py::handle expr) {
  std::string name = py::str(expr);
  if (const std::optional<int64_t> number = guarded(name))
    return SizeExpr::constant(context_, *number);
  const bool is_new = !numbers_.contains(name);
  std::optional<NumberTree> made = is_new ? number(expr, name) : std::nullopt;
  SizeExpr result = symbol(name);
  const unsigned position = *result.symbol();
  if (is_new && (atLeastZero(expr) || (made && atLeastZero(*made))))
    not_negative_.insert(position);
  if (made)
    definitions_[position] = std::move(*made);
  return result;
}

// Kernels divide as for sizes, which are never negative: what may be (an integer input) is divided by the plan.
bool SympyReader::divides(SizeExpr expr) const {
  return std::ranges::all_of(expr.symbolsWithin(), [&](unsigned symbol) { return not_negative_.contains(symbol); });
}

std::optional<bool> SympyReader::compare(const char* relation, py::handle lhs, py::handle rhs) const {
  py::object known = shape_env_.attr("_maybe_evaluate_static")(py::module_::import("sympy").attr(relation)(lhs, rhs));
  return known.is_none() ? std::nullopt : std::optional<bool>(py::bool_(known));
}

SizeExpr SympyReader::condition(py::handle value) {
  py::object node = value.attr("node");
  shape_env_ = node.attr("shape_env");
  py::object least = truth(node.attr("expr"));
  if (!least || py::bool_(least.attr("is_number")))
    return {};
  for (py::handle symbol : least.attr("free_symbols"))
    if (!numbers_.contains(py::str(symbol.attr("name"))))
      return {};
  if (atLeastZero(least) || !tree(least))
    return {};
  return convert(least, /*stride=*/false);
}

py::object SympyReader::truth(py::handle condition) const {
  static constexpr std::string_view swapped[] = {"LessThan", "StrictLessThan"},
                                    strict[] = {"StrictGreaterThan", "StrictLessThan"},
                                    relations[] = {"GreaterThan",    "StrictGreaterThan", "LessThan",
                                                   "StrictLessThan", "Equality",          "Unequality"};
  const std::string kind = kindOf(condition);
  auto is = [&](auto& kinds) { return std::ranges::find(kinds, kind) != std::end(kinds); };
  py::module_ functions = py::module_::import("torch.utils._sympy.functions");
  py::tuple args = condition.attr("args");
  if (kind == "And" || kind == "Or") {
    py::object result;
    for (py::handle arg : args) {
      py::object next = truth(arg);
      if (!next)
        return {};
      result = result ? functions.attr(kind == "And" ? "Min" : "Max")(result, next) : next;
    }
    return result;
  }
  if (!is(relations) || !py::bool_(args[0].attr("is_integer")) || !py::bool_(args[1].attr("is_integer")))
    return {};
  py::object lhs = args[is(swapped) ? 1 : 0], rhs = args[is(swapped) ? 0 : 1];
  if (kind == "Equality")
    return functions.attr("Min")(lhs - rhs, rhs - lhs);
  if (kind == "Unequality")
    return functions.attr("Max")(lhs - rhs, rhs - lhs) - py::int_(1);
  return is(strict) ? lhs - rhs - py::int_(1) : lhs - rhs;
}

SizeExpr SympyReader::position(py::handle start, py::handle size, bool clamped) {
  auto exprOf = [&](py::handle value) -> py::object {
    if (PyLong_Check(value.ptr()))
      return py::module_::import("sympy").attr("Integer")(value);
    shape_env_ = value.attr("node").attr("shape_env");
    return value.attr("node").attr("expr");
  };
  py::object expr = exprOf(start), length = exprOf(size);
  const py::int_ zero(0);
  std::optional<bool> negative = compare("Lt", expr, zero);
  if (!negative)
    return {};
  if (*negative) {
    expr = length + expr;
    negative = compare("Lt", expr, zero);
    if (!negative || (*negative && !clamped))
      return {};
    if (*negative)
      return SizeExpr::constant(context_, 0);
  }
  return convert(clamped && compare("Gt", expr, length).value_or(false) ? length : expr, /*stride=*/false);
}

std::optional<NumberTree> SympyReader::number(py::handle expr, const std::string& text) {
  auto noted = computed_.find(text);
  return noted == computed_.end() ? tree(expr) : std::optional<NumberTree>(noted->second);
}

bool SympyReader::atLeastZero(py::handle expr) const {
  if (py::object known = expr.attr("is_nonnegative"); !known.is_none())
    return known.cast<bool>();
  return py::bool_(py::object(shape_env_.attr("bound_sympy")(expr).attr("lower")) >= py::int_(0));
}

bool SympyReader::atLeastZero(const NumberTree& tree) const {
  if (tree.constant)
    return *tree.constant >= 0;
  if (tree.op.empty())
    return divides(tree.leaf) &&
           std::ranges::all_of(tree.leaf.constantsWithin(), [](int64_t number) { return number >= 0; });
  static const std::string_view keep[] = {"to_real", "add",      "mul",      "floordiv", "mod",      "min",   "max",
                                          "pow",     "real_add", "real_mul", "real_div", "real_mod", "floor", "ceil",
                                          "trunc",   "round",    "real_min", "real_max", "real_pow"};
  if (tree.op == "sqrt")
    return true;
  if (tree.op == "from_bits") {  // of a symbol with a definition, which is the bits of another tree
    const SizeExpr leaf = tree.args[0].leaf;
    const std::optional<unsigned> symbol = leaf ? leaf.symbol() : std::nullopt;
    const NumberTree* definition = symbol ? this->definition(*symbol) : nullptr;
    return definition && definition->op == "bits" && atLeastZero(definition->args[0]);
  }
  return std::ranges::find(keep, tree.op) != std::end(keep) &&
         std::ranges::all_of(tree.args, [&](const NumberTree& arg) { return atLeastZero(arg); });
}

std::optional<NumberTree> SympyReader::tree(py::handle expr) {
  std::string kind = kindOf(expr);
  if (kind == "Symbol" && !py::bool_(expr.attr("is_integer"))) {
    SizeExpr bits = symbol(py::str(expr.attr("name")));
    return numberTree("from_bits", {"", bits, {}, {}});
  }
  if (kind == "Symbol" || expr.attr("is_Integer").cast<bool>())
    return NumberTree{"", convert(expr, /*stride=*/false), {}, {}};
  if (expr.attr("is_Float").cast<bool>() || expr.attr("is_Rational").cast<bool>())
    return NumberTree{"", {}, double(py::float_(py::reinterpret_borrow<py::object>(expr))), {}};
  // torch's functions (torch/utils/_sympy/functions.py) by the name of what they do.
  static const std::pair<std::string_view, std::string_view> names[] = {
      {"Min", "sym_min"},        {"Max", "sym_max"},          {"Add", "add"},          {"Mul", "mul"},
      {"FloorDiv", "floordiv"},  {"CleanDiv", "floordiv"},    {"Mod", "mod"},          {"PythonMod", "mod"},
      {"IntTrueDiv", "truediv"}, {"FloatTrueDiv", "truediv"}, {"FloatPow", "pow"},     {"PowByNatural", "pow"},
      {"ToFloat", "sym_float"},  {"TruncToInt", "trunc"},     {"FloorToInt", "floor"}, {"CeilToInt", "ceil"},
      {"RoundToInt", "round"},
  };
  constexpr std::string_view unary = "OpaqueUnaryFn_";
  if (kind.starts_with(unary)) {
    kind = "_sym_" + kind.substr(unary.size());
  } else {
    const auto* op = std::ranges::find(names, kind, [](auto& pair) { return pair.first; });
    if (op == std::end(names))
      return std::nullopt;
    kind = op->second;
  }
  std::optional<NumberTree> result;
  for (py::handle argument : py::tuple(expr.attr("args"))) {
    std::optional<NumberTree> next = tree(argument);
    if (!next)
      return std::nullopt;
    if (!result && py::len(expr.attr("args")) > 1)
      result = std::move(next);
    else
      result =
          result ? computation(kind, {std::move(*result), std::move(*next)}) : computation(kind, {std::move(*next)});
    if (!result)
      return std::nullopt;
  }
  return result;
}

// int(x * 1.5): exact while x * 3 fits into a double, as sizes do. Null for what is no such product.
SizeExpr SympyReader::truncated(py::handle real) {
  std::string kind = kindOf(real);
  py::tuple args = real.attr("args");
  auto integer = [&](py::handle expr) { return atLeastZero(expr) ? convert(expr, false) : SizeExpr(); };
  if (kind == "ToFloat")
    return integer(args[0]);
  if (kind == "IntTrueDiv" && py::bool_(args[1].attr("is_positive"))) {
    SizeExpr lhs = integer(args[0]);
    return lhs ? lhs.floorDiv(convert(args[1], false)) : lhs;
  }
  if (kind != "Mul" || args.size() != 2)
    return SizeExpr();
  for (size_t i = 0; i < 2; ++i) {
    if (!args[i].attr("is_Float").cast<bool>() || kindOf(args[1 - i]) != "ToFloat")
      continue;
    double factor = py::float_(py::object(args[i]));
    int64_t divisor = 1;
    while (factor != std::floor(factor) && divisor < (int64_t(1) << 20)) {
      factor *= 2;
      divisor *= 2;
    }
    if (factor <= 0 || factor >= (1 << 20) || factor != std::floor(factor))
      return SizeExpr();
    SizeExpr number = integer(py::tuple(args[1 - i].attr("args"))[0]);
    return number ? (number * int64_t(factor)).floorDiv(divisor) : number;
  }
  return SizeExpr();
}

SizeExpr SympyReader::convert(py::handle expr, bool stride) {
  std::string kind = kindOf(expr);
  if (kind == "Symbol") {
    SizeExpr known = symbol(py::str(expr.attr("name")));
    if (const unsigned position = *known.symbol(); !not_negative_.contains(position) && atLeastZero(expr))
      not_negative_.insert(position);
    return known;
  }
  if (expr.attr("is_Integer").cast<bool>())
    return SizeExpr::constant(context_, py::int_(expr.cast<py::object>()).cast<int64_t>());
  if (!ones_.empty() && ones_.contains(py::str(expr)))
    return SizeExpr::constant(context_, 1);

  py::tuple args = expr.attr("args");
  auto operand = [&](size_t i) { return convert(args[i], stride); };
  auto positive = [&](size_t i) { return operand(i).constant().value_or(1) > 0; };
  if (kind == "Add" || kind == "Mul") {
    SizeExpr result = operand(0);
    for (size_t i = 1; i < args.size(); ++i)
      result = kind == "Add" ? result + operand(i) : result * operand(i);
    return result;
  }
  if ((kind == "FloorDiv" || kind == "CleanDiv") && positive(1) && divides(operand(0)) && divides(operand(1)))
    return operand(0).floorDiv(operand(1));
  if ((kind == "Mod" || kind == "PythonMod") && positive(1) && divides(operand(0)) && divides(operand(1)))
    return operand(0) % operand(1);
  if (kind == "ModularIndexing" && positive(1) && positive(2) && divides(operand(0)))
    return operand(0).floorDiv(operand(1)) % operand(2);
  if (kind == "TruncToInt" || kind == "FloorToInt")
    if (SizeExpr whole = truncated(args[0]))
      return whole;
  if (kind == "Pow" && py::bool_(args[1].attr("is_Integer")) && args[1].attr("__int__")().cast<int64_t>() > 0) {
    SizeExpr base = operand(0), result = base;
    for (int64_t power = args[1].attr("__int__")().cast<int64_t>(); power > 1; --power)
      result = result * base;
    return result;
  }
  if (kind == "Max" && stride && args.size() == 2)
    for (size_t i = 0; i < 2; ++i)
      if (py::object(args[i]).equal(py::int_(1)))
        return operand(1 - i);
  return symbolFor(expr);
}

}  // namespace zefuse::fx
