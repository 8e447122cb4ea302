// A matrix product, convolution or attention among the nodes of a kernel: its results are computed once per element,
// all outputs are elementwise over them, and its operands are computed where they are loaded.
#pragma once

#include "lowering/analysis/dataflow.h"

namespace zefuse {

struct Domain;
struct KernelGraph;
struct Refusal;

// The operations whose results are such nodes.
bool isProduct(mlir::Operation* op);

// What the target asks of a kernel with a product.
struct ProductLimits {
  bool f64 = true;           // it computes in double precision
  int64_t operand_work = 0;  // scalar operations per element that an operand may take where it is loaded
};
// On a product in a graph: the target has a kernel for it, in which it is a node among others; no library's call.
inline constexpr const char* in_kernel = "zefuse.in_kernel";
// On a matrix product or convolution with `in_kernel`: a library of the device's vendor may compute it, where there are
// at least so many multiplications; its kernel then holds what that library does in the same call, and nothing else.
inline constexpr const char* in_library = "zefuse.library";
// Of an operation that adds something to such a convolution's result, which has a bias, and before a relu, as the
// library's call does: what is added. Null: it is none.
mlir::Value libraryResidual(mlir::Operation* op, mlir::Operation* product);
void markInKernel(mlir::Operation* op, ProductLimits limits);

// An operand at indices of its own: dims that belong to no output and that the schedule binds where it loads.
struct ProductOperand {
  mlir::Value value;
  unsigned axes;  // Domain::axis_sets: the operand's index space
};

struct ProductForm {
  mlir::Operation* op = nullptr;
  // Of each result: its indices where it is read, over the domain's rows; null: nobody reads it. A second result has an
  // element for each row of the first, so its indices are the first's without the last.
  llvm::SmallVector<mlir::AffineMap, 2> at;
  llvm::SmallVector<ProductOperand> operands;
  std::optional<Node> bias;  // over the rows
  Node result(unsigned number = 0) const { return {op->getResult(number), at[number]}; }
  // Where the operand is read: over the dims of its axis set.
  Node operand(const Domain& domain, unsigned number) const;
};

// The dims whose row-major combination `index` is, outermost first: it takes each value below `size` once. Nothing: it
// is no such combination.
std::optional<llvm::SmallVector<unsigned>> rowMajorDims(const IndexSpace& space, mlir::AffineExpr index,
                                                        mlir::AffineExpr size);

// Of a domain whose product has been met: makes its operands' index spaces, once, and finds its bias.
void completeProduct(Domain& domain);
// What must hold of the operands' computations; a reason, and the op it is about.
Refusal whyNoOperands(Domain& domain, const KernelGraph& graph);
// After all dims were split and merged: the results' indices, and the operands', are combinations of dims that a
// schedule can bind.
Refusal whyNotBound(const Domain& domain);

// Why the product's target (in_kernel) does not want these operations in its kernel: what it cannot compute, and what
// is computed again for each tile that loads it and costs more than a kernel before.
std::optional<std::string> whyNotWithProduct(Domain& domain, const KernelGraph& graph,
                                             llvm::ArrayRef<mlir::Operation*> ops);

}  // namespace zefuse
