// How stage-1 operations are seen by fusion: what computes, what is free, and where a value really comes from.
#pragma once

#include <string>
#include <vector>

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/IR/Operation.h"
#include "mlir/IR/Value.h"
#include "llvm/ADT/DenseSet.h"

namespace zefuse {

// On an operation whose results are too few for a GPU's groups: what makes much more of them is a kernel of its own.
inline constexpr llvm::StringLiteral few_results = "zefuse.few_results";

// On an elementwise operation between such a reduction's slices and another one of theirs: the kernels of both walk
// over its elements anyway.
inline constexpr llvm::StringLiteral with_slices = "zefuse.with_slices";

// On a copy that is more than a view: its order in memory is what it is for.
inline constexpr llvm::StringLiteral kept_copy = "zefuse.kept_copy";

// On a graph: what its plan makes of parameters alone is kept from call to call.
inline constexpr llvm::StringLiteral kept_weights = "zefuse.kept_weights";

// The operations whose results depend on parameters alone, in such a graph; of others none.
llvm::DenseSet<mlir::Operation*> madeOfParameters(mlir::Block& graph);
// Likewise a value of such a graph, a parameter included.
bool isOfParameters(mlir::Value value);

// Inputs and results of one kernel. SPIR-V allows a function 255 parameters; status, scratch and sizes are some too.
inline constexpr size_t max_kernel_tensors = 240;

// linalg.generic, tensor.concat, zefuse.pad, zefuse.scan, zefuse.scatter, zefuse.sort and products with `in_kernel`
// (lowering/analysis/product_form.h): the operations that make a kernel.
bool isCompute(mlir::Operation* op);
// More than one of them: what can be divided.
bool hasSeveralComputes(mlir::Block& block);
// Views, sizes, empties, fills, constants: cloned into every kernel that uses them, never a kernel of their own
// (unless a library call or an output needs their value in memory).
bool isFree(mlir::Operation* op);
// A compute operation that can be repeated in each consumer: few operations, and it reads less than it writes.
bool isCheapToRepeat(mlir::Operation* op);
// A kernel that makes the matrix of one group (zefuse.group_index): a part of that group's product, and of no other
// launch.
bool isOfAGroup(mlir::Operation* kernel);
// Runs in program order among its like (zefuse.aten with `ordered`).
bool isOrdered(mlir::Operation* op);
// Sorts the block's operations topologically, near the order they have, ordered ones exactly in theirs. False: a cycle.
bool sortKeepingOrder(mlir::Block& block);
// Erases what nobody reads.
void eraseDead(mlir::Block& block);
// A linalg.generic that only moves elements: its one input, yielded.
bool isCopy(mlir::Operation* op);
// Such a linalg.generic of `source`, whose sizes are zefuse.size operations.
mlir::Value copyOf(mlir::OpBuilder& builder, mlir::Location location, mlir::Value source);
// Memory with these strides holds one element for all of a dimension of stride zero. What to write there: `source` with
// such dimensions cut to one element; and what was written, seen as `type` again.
mlir::Value cutRepeats(mlir::OpBuilder& builder, mlir::Location location, mlir::Value source,
                       llvm::ArrayRef<mlir::AffineExpr> strides);
mlir::Value repeatTo(mlir::OpBuilder& builder, mlir::Location location, mlir::Value cut, mlir::RankedTensorType type);

// What the function's attributes say of the graph (docs/ir.md); a graph that says nothing has none.
unsigned graphSymbolsOf(mlir::func::FuncOp graph);
llvm::ArrayRef<mlir::Attribute> outputsOf(mlir::func::FuncOp graph);
llvm::ArrayRef<mlir::Attribute> notJoinedOf(mlir::func::FuncOp graph);
// Of kernels that turned out not to lower in an earlier run over the same graph: {group, reason}.
llvm::ArrayRef<mlir::Attribute> refusedOf(mlir::func::FuncOp graph);

// The compute operation, library call or block argument behind views.
mlir::Value throughViews(mlir::Value value);

// What a location says (docs/ir.md): operator and source line, for notes and kernel names.
struct Origin {
  std::string op;      // "aten.gelu.default"
  std::string node;    // "gelu_3"
  std::string source;  // "model.py:12", or empty
  std::string module;  // "encoder.layers.0", or empty
};
std::vector<Origin> originsOf(mlir::Location location);

// Elements, with symbols counted as a usual size.
double estimatedElements(llvm::ArrayRef<mlir::AffineExpr> sizes);
double estimatedElements(mlir::Value tensor);

// A C identifier made of the operators behind `ops`, in order, each once: "layer_norm_mul_softmax". A product is named
// by what it makes: "matmul_8x128_gelu".
std::string kernelName(llvm::ArrayRef<mlir::Operation*> ops);

}  // namespace zefuse
