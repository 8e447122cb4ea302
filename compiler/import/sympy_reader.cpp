#include "compiler/import/sympy_reader.h"

#include <cmath>

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

std::optional<RealTree> SympyReader::real(py::handle value) {
  py::object node = value.attr("node");
  shape_env_ = node.attr("shape_env");
  return realTree(node.attr("expr"));
}

std::optional<RealTree> SympyReader::realTree(py::handle expr) {
  using Kind = RealTree::Kind;
  RealTree tree;
  if (expr.attr("is_Integer").cast<bool>() || expr.attr("is_Float").cast<bool>() ||
      expr.attr("is_Rational").cast<bool>()) {
    tree.constant = py::float_(py::reinterpret_borrow<py::object>(expr));
    return tree;
  }
  std::string kind = kindOf(expr);
  py::tuple args = expr.attr("args");
  // An integer may be one that no affine expression holds: then it is a symbol, if the plan can compute it.
  if (kind == "ToFloat" || (py::bool_(expr.attr("is_integer")) && this->tree(expr))) {
    tree.kind = Kind::size;
    tree.size = convert(kind == "ToFloat" ? py::handle(args[0]) : expr, /*stride=*/false);
    return tree;
  }
  if (kind == "OpaqueUnaryFn_sqrt") {
    auto of = realTree(args[0]);
    if (!of)
      return std::nullopt;
    tree.kind = Kind::sqrt;
    tree.args = {std::move(*of)};
    return tree;
  }
  if (kind == "Add" || kind == "Mul" || kind == "FloatTrueDiv" || kind == "IntTrueDiv") {
    std::optional<RealTree> result = realTree(args[0]);
    for (size_t i = 1; i < args.size() && result; ++i) {
      auto next = realTree(args[i]);
      if (!next)
        return std::nullopt;
      RealTree joined;
      joined.kind = kind == "Add" ? Kind::add : kind == "Mul" ? Kind::multiply : Kind::divide;
      joined.args = {std::move(*result), std::move(*next)};
      result = std::move(joined);
    }
    return result;
  }
  if ((kind == "Pow" || kind == "FloatPow") && py::object(args[1]).equal(py::int_(-1))) {
    auto of = realTree(args[0]);
    if (!of)
      return std::nullopt;
    tree.kind = Kind::divide;
    RealTree one;
    one.constant = 1;
    tree.args = {one, std::move(*of)};
    return tree;
  }
  return std::nullopt;
}

AffineExpr SympyReader::symbol(const std::string& name) {
  auto [entry, inserted] = numbers_.try_emplace(name, symbols_.size());
  if (inserted)
    symbols_.push_back(name);
  return getAffineSymbolExpr(entry->second, &context_);
}

const SizeTree* SympyReader::definition(unsigned symbol) const {
  auto found = definitions_.find(symbol);
  return found == definitions_.end() ? nullptr : &found->second;
}

AffineExpr SympyReader::symbolFor(py::handle expr) {
  std::string name = py::str(expr);
  if (!numbers_.contains(name))
    if (auto made = tree(expr); made && atLeastZero(expr)) {  // symbols are sizes: never negative
      AffineExpr fresh = symbol(name);
      definitions_[cast<AffineSymbolExpr>(fresh).getPosition()] = std::move(*made);
      return fresh;
    }
  return symbol(name);
}

bool SympyReader::atLeastZero(py::handle expr) const {
  if (py::object known = expr.attr("is_nonnegative"); !known.is_none())
    return known.cast<bool>();
  return py::bool_(py::object(shape_env_.attr("bound_sympy")(expr).attr("lower")) >= py::int_(0));
}

std::optional<SizeTree> SympyReader::tree(py::handle expr) {
  std::string kind = kindOf(expr);
  if (kind == "Symbol" || expr.attr("is_Integer").cast<bool>())
    return SizeTree{"", convert(expr, /*stride=*/false), {}};
  if (kind == "TruncToInt" || kind == "FloorToInt") {
    AffineExpr leaf = truncated(py::tuple(expr.attr("args"))[0]);
    return leaf ? std::optional<SizeTree>(SizeTree{"", leaf, {}}) : std::nullopt;
  }
  static const std::pair<const char*, const char*> names[] = {
      {"Min", "min"},           {"Max", "max"},           {"Add", "add"}, {"Mul", "mul"},
      {"FloorDiv", "floordiv"}, {"CleanDiv", "floordiv"}, {"Mod", "mod"}, {"PythonMod", "mod"},
  };
  auto* op = llvm::find_if(names, [&](auto& pair) { return kind == pair.first; });
  if (op == std::end(names))
    return std::nullopt;
  py::tuple args = expr.attr("args");
  std::optional<SizeTree> result = tree(args[0]);
  for (size_t i = 1; i < args.size() && result; ++i) {
    std::optional<SizeTree> next = tree(args[i]);
    if (!next)
      return std::nullopt;
    result = SizeTree{op->second, AffineExpr(), {std::move(*result), std::move(*next)}};
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
  if (kind == "Symbol")
    return symbol(py::str(expr.attr("name")));
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
  if ((kind == "FloorDiv" || kind == "CleanDiv") && positive(1))
    return operand(0).floorDiv(operand(1));
  if ((kind == "Mod" || kind == "PythonMod") && positive(1))
    return operand(0) % operand(1);
  if (kind == "ModularIndexing" && positive(1) && positive(2))
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
