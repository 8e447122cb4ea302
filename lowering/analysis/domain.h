// The iteration domain of a kernel: which dims its outputs run over, and which reductions they need where.
//
//   pointwise   no reduction: every dim is a row dim
//   row kernel  row dims: what every reduction keeps. Column dims: the rest. A reduction runs over an axis set; axis
//               sets of the same sizes share their dims (and the column dims), so that softmax's max, sum and division
//               read the same nodes.
//   product     one zefuse.matmul, zefuse.convolution or zefuse.attention: every dim of the outputs is a row dim; each
//               operand has dims of its own (product_form.h)
//
// Dims may be split (so that floordiv and mod of reshapes vanish) and merged (where every access is jointly
// contiguous).
#pragma once

#include <string>

#include "lowering/analysis/dataflow.h"
#include "lowering/analysis/product_form.h"

namespace zefuse {

// A reduction's result at given kept indices: one number per row.
struct Instance {
  mlir::linalg::GenericOp op;
  mlir::AffineMap kept;       // indices of the result
  unsigned axes = 0;          // index into Domain::axis_sets
  mlir::AffineMap iteration;  // indices of op's loops
  unsigned level = 0;         // 0: needs no other reduction
  Node element() const { return {combinerOf(op).element, iteration}; }
  Node result() const { return {op->getResult(0), kept}; }
};

struct AxisSet {
  llvm::SmallVector<mlir::AffineExpr> sizes;    // as the reductions state them
  llvm::SmallVector<mlir::AffineExpr> indices;  // one per size, over dims
  llvm::SmallVector<unsigned> dims;             // outermost first
};

struct DomainOutput {
  unsigned number;  // among the kernel's outputs
  Node node;
  bool per_row;  // needs row dims only; of a product with two results, what the second has an element for
};

// A kernel whose one output is a zefuse.scatter. Rows are the `free` dims: dimensions of the updates that are
// dimensions of the result, which no index addresses. Rows touch different elements, so they may run in parallel; each
// first stores its part of the init, then walks its updates in order.
struct ScatterForm {
  ScatterOp op;
  mlir::AffineMap updates_at;              // indices of the updates, over free and sequential dims
  mlir::AffineMap target;                  // indices of the result for an update; what was read is opaque
  mlir::AffineMap init_at;                 // indices of the result for the init, over free and fill dims
  llvm::SmallVector<unsigned> sequential;  // dims, outermost first
  llvm::SmallVector<unsigned> fill;        // dims
  bool in_place = false;                   // the init lies where the result goes: nothing is filled
  Node init() { return {op.getInit(), init_at}; }
  Node update() { return {op.getUpdates(), updates_at}; }
};

// A kernel whose outputs are the results of a zefuse.sort. Rows are the dims that are not sorted along.
struct SortForm {
  SortOp op;
  unsigned from, to;           // the sorted dim of the input, of the results
  mlir::AffineMap input_at;    // indices of the input, over rows and `from`
  mlir::AffineMap results_at;  // indices of the results, over rows and `to`
  Node input() { return {op.getInput(), input_at}; }
};

struct Domain {
  explicit Domain(mlir::MLIRContext* context, unsigned symbols) : space(context, symbols) {}

  IndexSpace space;
  llvm::SmallVector<DomainOutput> outputs;
  llvm::SmallVector<unsigned> rows;      // dims, outermost first
  llvm::SmallVector<AxisSet> axis_sets;  // [0]: the column dims (empty when there are none)
  std::vector<Instance> instances;       // producers first
  unsigned levels = 0;                   // of instances
  std::optional<ScatterForm> scatter;
  std::optional<SortForm> sort;
  std::optional<ProductForm> product;
  // Results of zefuse.scan, each consumers first; all walk one row dim in order, which then is no dim to spread work
  // over.
  llvm::SmallVector<Node> scans;
  std::optional<unsigned> scan_dim;

  llvm::SmallVector<unsigned> parallelRows() const;

  const Instance* find(Node result) const;
  mlir::AffineExpr rowCount() const;  // of parallelRows(), simplified
};

// How the analysis sees the graph around the ops of a kernel.
struct KernelGraph {
  llvm::SmallVector<mlir::Value> outputs;
  std::function<bool(mlir::Value)> is_input;  // tensors that are loaded
  unsigned graph_symbols = 0;
  // The element offset of an access; null: not known yet (fusion asks before layouts are fixed). Then dims are not
  // merged.
  std::function<mlir::AffineExpr(IndexSpace&, Node)> offset;
  std::function<mlir::AffineExpr(IndexSpace&, const DomainOutput&)> output_offset;
};

// What a node's op lacks to be in a kernel; nothing when it may.
std::optional<std::string> whyNoPlace(Node node);

// A readable reason, and the op it is about.
struct Refusal {
  mlir::Operation* op = nullptr;
  std::string reason;
};

// False, with the reason, where a space needed more dims than a kernel may have.
bool hasRoom(const IndexSpace& space, mlir::Operation* op, Refusal& refusal);

// The one domain that computes all outputs, or why there is none.
std::unique_ptr<Domain> analyseDomain(mlir::MLIRContext* context, const KernelGraph& graph, Refusal& refusal);

// The domain of a kernel whose output is the result of `op`; see ScatterForm.
std::unique_ptr<Domain> analyseScatter(ScatterOp op, const KernelGraph& graph, Refusal& refusal);
// The domain of a kernel whose outputs are results of `op`; see SortForm.
std::unique_ptr<Domain> analyseSort(SortOp op, const KernelGraph& graph, Refusal& refusal);

// Calls visit for each node that computing `root` evaluates, in pre-order, each node once. Stops below a node for which
// visit returns false; does not enter reductions.
void walkNodes(IndexSpace& space, Node root, llvm::DenseSet<std::pair<mlir::Value, mlir::AffineMap>>& seen,
               const KernelGraph& graph, llvm::function_ref<bool(Node)> visit);
// What a node is through views of it, up to an input.
Node behindViews(const IndexSpace& space, const KernelGraph& graph, Node node);
// How many nodes this thread's walks have visited: the cost of an analysis, which tests hold to the kernel's size.
size_t nodesWalked();
// Why `op` ("a sort"), which takes its operands element by element, cannot share a kernel with what computes `roots`;
// no reason where it can.
Refusal whyNotElementwise(IndexSpace& space, llvm::ArrayRef<Node> roots, const KernelGraph& graph, llvm::StringRef op);

}  // namespace zefuse
