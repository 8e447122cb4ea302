// torch's symbolic sizes (SymInt, sympy) as affine expressions.
#pragma once

#include <pybind11/pybind11.h>

#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "compiler/import/fx_graph.h"

namespace zefuse::fx {

class SympyReader {
public:
  explicit SympyReader(mlir::MLIRContext& context) : context_(context) {}

  // A Python int or SymInt. New symbols are numbered as met; an expression without an affine form becomes a symbol of
  // its own.
  SizeExpr size(pybind11::handle value);
  // The same for a stride: torch's Max(1, n) in it, which keeps strides of empty tensors positive, is read as n.
  SizeExpr stride(pybind11::handle value);
  // A SymFloat: the symbol whose value is its bits; null for an expression that a plan cannot compute.
  SizeExpr real(pybind11::handle value);
  // The same for one that is an input, however it was made.
  SizeExpr realInput(pybind11::handle value);
  // How eager computes a SymInt or SymFloat, where sympy's form would be computed otherwise. The first one counts;
  // before the value is read.
  void define(pybind11::handle value, NumberTree tree);
  // Where a slice of a dimension of `size` begins (each a Python int or SymInt), counted from the beginning and, if
  // asked, clamped, by what torch's guards and ranges say; null where they do not tell.
  SizeExpr position(pybind11::handle start, pybind11::handle size, bool clamped);
  // A number that is negative where a SymBool is false; null for what is always true, what is no comparison of known
  // sizes, and what a plan cannot compute.
  SizeExpr condition(pybind11::handle value);
  const std::vector<std::string>& symbols() const { return symbols_; }
  // How to compute a symbol that stands for an expression; null for torch's own symbols and where it has no such form.
  const NumberTree* definition(unsigned symbol) const;

private:
  SizeExpr read(pybind11::handle value, bool stride);
  // Whether torch's guards and ranges fix an expression (s0 // 17) to 1, which torch does not write in its place: such
  // a dimension is broadcast.
  bool isOne(pybind11::handle node, pybind11::handle expr) const;
  SizeExpr convert(pybind11::handle expr, bool stride);
  SizeExpr symbol(const std::string& name);
  SizeExpr symbolFor(pybind11::handle expr);
  // The number that torch's guards say an expression is, which torch does not write in its place; none: they do not.
  std::optional<int64_t> guarded(const std::string& text);
  SizeExpr truncated(pybind11::handle real);
  // `text`: the expression as a string.
  std::optional<NumberTree> number(pybind11::handle expr, const std::string& text);
  std::optional<NumberTree> tree(pybind11::handle expr);
  pybind11::object truth(pybind11::handle condition) const;  // the same, of sympy's; null
  bool atLeastZero(pybind11::handle expr) const;
  // By what is computed, for functions of which torch knows no bounds: int(n ** 0.5).
  bool atLeastZero(const NumberTree& tree) const;

  mlir::MLIRContext& context_;
  std::vector<std::string> symbols_;
  std::unordered_map<std::string, unsigned> numbers_;
  std::unordered_map<unsigned, NumberTree> definitions_;
  bool divides(SizeExpr expr) const;
  // "Ge", "Lt" and so on; none: not known.
  std::optional<bool> compare(const char* relation, pybind11::handle lhs, pybind11::handle rhs) const;
  std::set<unsigned> not_negative_;                       // the symbols of which that is known
  std::unordered_map<std::string, NumberTree> computed_;  // by torch's expression
  std::set<std::string> ones_;  // expressions that are sizes and fixed to 1: strides have them
  std::optional<std::unordered_map<std::string, int64_t>> fixed_;  // by the guards, once they are read
  pybind11::object shape_env_;                                     // of the SymInt being read
  std::map<std::pair<PyObject*, bool>, SizeExpr> nodes_;           // by SymNode: many sizes share one
  std::vector<pybind11::object> alive_;                            // keeps nodes_'s keys from being reused
};

}  // namespace zefuse::fx
