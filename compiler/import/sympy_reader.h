// torch's symbolic sizes (SymInt, sympy) as affine expressions.
#pragma once

#include <pybind11/pybind11.h>

#include "mlir/IR/AffineExpr.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/StringMap.h"

namespace zefuse::fx {

class SympyReader {
public:
  explicit SympyReader(mlir::MLIRContext& context) : context_(context) {}

  // A Python int or SymInt. Throws ImportError for an expression that has no affine form. New symbols are numbered as
  // met.
  mlir::AffineExpr size(pybind11::handle value);
  // The same for a stride: torch's Max(1, n) in it, which keeps strides of empty tensors positive, is read as n.
  mlir::AffineExpr stride(pybind11::handle value);
  const std::vector<std::string>& symbols() const { return symbols_; }

private:
  mlir::AffineExpr read(pybind11::handle value, bool stride);
  mlir::AffineExpr convert(pybind11::handle expr, bool stride);
  mlir::AffineExpr symbol(const std::string& name);

  mlir::MLIRContext& context_;
  std::vector<std::string> symbols_;
  llvm::StringMap<unsigned> numbers_;
  llvm::DenseMap<std::pair<PyObject*, unsigned>, mlir::AffineExpr> nodes_;  // by SymNode: many sizes share one
  std::vector<pybind11::object> alive_;                                     // keeps nodes_'s keys from being reused
};

}  // namespace zefuse::fx
