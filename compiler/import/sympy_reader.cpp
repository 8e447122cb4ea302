#include "compiler/import/sympy_reader.h"

#include <cmath>

#include "compiler/import/number_tree.h"

namespace py = pybind11;
using namespace mlir;

namespace zefuse::fx {
namespace {

std::string kindOf(py::handle expr) { return py::str(py::type::handle_of(expr).attr("__name__")); }

}  // namespace

AffineExpr SympyReader::size(py::handle value) { return read(value, /*stride=*/false); }
AffineExpr SympyReader::stride(py::handle value) { return read(value, /*stride=*/true); }

AffineExpr SympyReader::read(py::handle value, bool stride) {
  if (PyLong_Check(value.ptr()))
    return getAffineConstantExpr(PyLong_AsLongLong(value.ptr()), &context_);
  py::object node = value.attr("node");
  auto found = nodes_.find({node.ptr(), stride});
  if (found != nodes_.end())
    return found->second;
  shape_env_ = node.attr("shape_env");
  py::object expr = node.attr("expr");
  AffineExpr result = isOne(node, expr) ? getAffineConstantExpr(1, &context_) : convert(expr, stride);
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

AffineExpr SympyReader::real(py::handle value) {
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
  AffineExpr fresh = symbol(name);
  definitions_[cast<AffineSymbolExpr>(fresh).getPosition()] = numberTree("bits", std::move(*made));
  return fresh;
}

AffineExpr SympyReader::realInput(py::handle value) {
  py::object expr = value.attr("node").attr("expr");
  std::string text = py::str(expr);
  return symbol(kindOf(expr) == "Symbol" ? text : "bits(" + text + ")");
}

void SympyReader::define(py::handle value, NumberTree tree) {
  computed_.try_emplace(std::string(py::str(value.attr("node").attr("expr"))), std::move(tree));
}

AffineExpr SympyReader::symbol(const std::string& name) {
  auto [entry, inserted] = numbers_.try_emplace(name, symbols_.size());
  if (inserted)
    symbols_.push_back(name);
  return getAffineSymbolExpr(entry->second, &context_);
}

const NumberTree* SympyReader::definition(unsigned symbol) const {
  auto found = definitions_.find(symbol);
  return found == definitions_.end() ? nullptr : &found->second;
}

AffineExpr SympyReader::symbolFor(py::handle expr) {
  std::string name = py::str(expr);
  const bool is_new = !numbers_.contains(name);
  std::optional<NumberTree> made = is_new ? number(expr, name) : std::nullopt;
  AffineExpr result = symbol(name);
  const unsigned position = cast<AffineSymbolExpr>(result).getPosition();
  if (is_new && (atLeastZero(expr) || (made && atLeastZero(*made))))
    not_negative_.insert(position);
  if (made)
    definitions_[position] = std::move(*made);
  return result;
}

// Kernels divide as for sizes, which are never negative: what may be (an integer input) is divided by the plan.
bool SympyReader::divides(AffineExpr expr) const {
  bool known = true;
  expr.walk([&](AffineExpr part) {
    if (auto symbol = dyn_cast<AffineSymbolExpr>(part))
      known &= not_negative_.contains(symbol.getPosition());
  });
  return known;
}

std::optional<bool> SympyReader::compare(const char* relation, py::handle lhs, py::handle rhs) const {
  py::object known = shape_env_.attr("_maybe_evaluate_static")(py::module_::import("sympy").attr(relation)(lhs, rhs));
  return known.is_none() ? std::nullopt : std::optional<bool>(py::bool_(known));
}

AffineExpr SympyReader::position(py::handle start, py::handle size) {
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
    if (!negative)
      return {};
    if (*negative)
      return getAffineConstantExpr(0, &context_);
  }
  return convert(compare("Gt", expr, length).value_or(false) ? length : expr, /*stride=*/false);
}

std::optional<NumberTree> SympyReader::number(py::handle expr, StringRef text) {
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
  if (tree.op.empty()) {
    bool known = true;
    tree.leaf.walk([&](AffineExpr part) {
      if (auto number = dyn_cast<AffineConstantExpr>(part))
        known &= number.getValue() >= 0;
      else if (auto symbol = dyn_cast<AffineSymbolExpr>(part))
        known &= not_negative_.contains(symbol.getPosition());
    });
    return known;
  }
  static const StringRef keep[] = {"to_real", "add",      "mul",      "floordiv", "mod",      "min",   "max",
                                   "pow",     "real_add", "real_mul", "real_div", "real_mod", "floor", "ceil",
                                   "trunc",   "round",    "real_min", "real_max", "real_pow"};
  if (tree.op == "sqrt")
    return true;
  if (tree.op == "from_bits") {  // of a symbol with a definition, which is the bits of another tree
    auto symbol = dyn_cast_or_null<AffineSymbolExpr>(tree.args[0].leaf);
    const NumberTree* definition = symbol ? this->definition(symbol.getPosition()) : nullptr;
    return definition && definition->op == "bits" && atLeastZero(definition->args[0]);
  }
  return llvm::is_contained(keep, tree.op) && llvm::all_of(tree.args, [&](auto& arg) { return atLeastZero(arg); });
}

std::optional<NumberTree> SympyReader::tree(py::handle expr) {
  std::string kind = kindOf(expr);
  if (kind == "Symbol" && !py::bool_(expr.attr("is_integer"))) {
    AffineExpr bits = symbol(py::str(expr.attr("name")));
    return numberTree("from_bits", {"", bits, {}, {}});
  }
  if (kind == "Symbol" || expr.attr("is_Integer").cast<bool>())
    return NumberTree{"", convert(expr, /*stride=*/false), {}, {}};
  if (expr.attr("is_Float").cast<bool>() || expr.attr("is_Rational").cast<bool>())
    return NumberTree{"", {}, double(py::float_(py::reinterpret_borrow<py::object>(expr))), {}};
  // torch's functions (torch/utils/_sympy/functions.py) by the name of what they do.
  static const std::pair<StringRef, StringRef> names[] = {
      {"Min", "sym_min"},        {"Max", "sym_max"},          {"Add", "add"},          {"Mul", "mul"},
      {"FloorDiv", "floordiv"},  {"CleanDiv", "floordiv"},    {"Mod", "mod"},          {"PythonMod", "mod"},
      {"IntTrueDiv", "truediv"}, {"FloatTrueDiv", "truediv"}, {"FloatPow", "pow"},     {"PowByNatural", "pow"},
      {"ToFloat", "sym_float"},  {"TruncToInt", "trunc"},     {"FloorToInt", "floor"}, {"CeilToInt", "ceil"},
      {"RoundToInt", "round"},
  };
  StringRef function = kind;
  if (function.consume_front("OpaqueUnaryFn_")) {
    kind = ("_sym_" + function).str();
  } else {
    auto* op = llvm::find_if(names, [&](auto& pair) { return function == pair.first; });
    if (op == std::end(names))
      return std::nullopt;
    kind = op->second.str();
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
AffineExpr SympyReader::truncated(py::handle real) {
  std::string kind = kindOf(real);
  py::tuple args = real.attr("args");
  auto integer = [&](py::handle expr) { return atLeastZero(expr) ? convert(expr, false) : AffineExpr(); };
  if (kind == "ToFloat")
    return integer(args[0]);
  if (kind == "IntTrueDiv" && py::bool_(args[1].attr("is_positive"))) {
    AffineExpr lhs = integer(args[0]);
    return lhs ? lhs.floorDiv(convert(args[1], false)) : lhs;
  }
  if (kind != "Mul" || args.size() != 2)
    return AffineExpr();
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
      return AffineExpr();
    AffineExpr number = integer(py::tuple(args[1 - i].attr("args"))[0]);
    return number ? (number * int64_t(factor)).floorDiv(divisor) : number;
  }
  return AffineExpr();
}

AffineExpr SympyReader::convert(py::handle expr, bool stride) {
  std::string kind = kindOf(expr);
  if (kind == "Symbol") {
    AffineExpr known = symbol(py::str(expr.attr("name")));
    if (unsigned position = cast<AffineSymbolExpr>(known).getPosition();
        !not_negative_.contains(position) && atLeastZero(expr))
      not_negative_.insert(position);
    return known;
  }
  if (expr.attr("is_Integer").cast<bool>())
    return getAffineConstantExpr(py::int_(expr.cast<py::object>()).cast<int64_t>(), &context_);

  py::tuple args = expr.attr("args");
  auto operand = [&](size_t i) { return convert(args[i], stride); };
  auto positive = [&](size_t i) {
    auto number = dyn_cast<AffineConstantExpr>(operand(i));
    return !number || number.getValue() > 0;
  };
  if (kind == "Add" || kind == "Mul") {
    AffineExpr result = operand(0);
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
    if (AffineExpr whole = truncated(args[0]))
      return whole;
  if (kind == "Pow" && py::bool_(args[1].attr("is_Integer")) && args[1].attr("__int__")().cast<int64_t>() > 0) {
    AffineExpr base = operand(0), result = base;
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
