#include "compiler/import/sympy_reader.h"

#include "compiler/import/errors.h"

namespace py = pybind11;
using namespace mlir;

namespace zefuse::fx {
namespace {

[[noreturn]] void noAffineForm(py::handle expr, const std::string& what) {
  throw ImportError("the symbolic size " + py::str(expr).cast<std::string>() + " cannot be expressed (" + what +
                    "): make that dimension static (torch.compile(..., dynamic=False) or torch._dynamo.mark_static)");
}

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
  AffineExpr result = convert(node.attr("expr"), stride);
  nodes_[{node.ptr(), stride}] = result;
  alive_.push_back(std::move(node));
  return result;
}

AffineExpr SympyReader::symbol(const std::string& name) {
  auto [entry, inserted] = numbers_.try_emplace(name, symbols_.size());
  if (inserted)
    symbols_.push_back(name);
  return getAffineSymbolExpr(entry->second, &context_);
}

AffineExpr SympyReader::convert(py::handle expr, bool stride) {
  std::string kind = py::str(py::type::handle_of(expr).attr("__name__"));
  if (kind == "Symbol")
    return symbol(py::str(expr.attr("name")));
  if (expr.attr("is_Integer").cast<bool>())
    return getAffineConstantExpr(py::int_(expr.cast<py::object>()).cast<int64_t>(), &context_);

  py::tuple args = expr.attr("args");
  auto operand = [&](size_t i) { return convert(args[i], stride); };
  auto positive = [&](AffineExpr divisor) {
    auto number = dyn_cast<AffineConstantExpr>(divisor);
    if (number && number.getValue() <= 0)
      noAffineForm(expr, "a divisor that is not positive");
    return divisor;
  };
  if (kind == "Add" || kind == "Mul") {
    AffineExpr result = operand(0);
    for (size_t i = 1; i < args.size(); ++i)
      result = kind == "Add" ? result + operand(i) : result * operand(i);
    return result;
  }
  if (kind == "FloorDiv" || kind == "CleanDiv")
    return operand(0).floorDiv(positive(operand(1)));
  if (kind == "Mod" || kind == "PythonMod")
    return operand(0) % positive(operand(1));
  if (kind == "ModularIndexing")
    return operand(0).floorDiv(positive(operand(1))) % positive(operand(2));
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
  noAffineForm(expr, kind);
}

}  // namespace zefuse::fx
