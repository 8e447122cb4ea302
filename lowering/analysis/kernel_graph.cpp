#include "lowering/analysis/kernel_graph.h"

#include "lowering/dialect/shape.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/ADT/DenseSet.h"

using namespace mlir;

namespace zefuse {

unsigned graphSymbolsOf(KernelOp kernel) {
  unsigned count = 0;
  auto type = [&](Type type) {
    if (auto tensor = dyn_cast<RankedTensorType>(type))
      count = std::max(count, numSymbols(tensor));
  };
  for (auto layout : kernel.getLayouts().getAsRange<AffineMapAttr>())
    count = std::max(count, layout.getValue().getNumSymbols());
  for (BlockArgument argument : kernel.getBody().getArguments())
    type(argument.getType());
  kernel.getBody().walk([&](Operation* op) {
    llvm::for_each(op->getResultTypes(), type);
    if (auto view = dyn_cast<ViewOp>(op))
      count = std::max(count, view.getMap().getNumSymbols());
    if (auto size = dyn_cast<SizeOp>(op))
      count = std::max(count, size.getMap().getNumSymbols());
  });
  return count;
}

SmallVector<AffineMap> layoutsOf(KernelOp kernel) {
  return llvm::map_to_vector(kernel.getLayouts().getAsRange<AffineMapAttr>(),
                             [](AffineMapAttr map) { return map.getValue(); });
}

SmallVector<Part> partsOf(KernelOp kernel) {
  auto counts = kernel.getParts();
  if (!counts)
    return {{0, kernel.getBody().front().getTerminator()->getNumOperands()}};
  SmallVector<Part> parts;
  size_t first = 0;
  for (int64_t count : *counts) {
    parts.push_back({first, size_t(count)});
    first += count;
  }
  return parts;
}

KernelGraph graphOf(KernelOp kernel, ArrayRef<AffineMap> layouts, Part part, AffineExpr& set_size) {
  Block* body = &kernel.getBody().front();
  KernelGraph graph;
  graph.outputs = llvm::to_vector(body->getTerminator()->getOperands().slice(part.first, part.count));
  graph.graph_symbols = graphSymbolsOf(kernel);
  graph.is_input = [body](Value value) {
    auto argument = dyn_cast<BlockArgument>(value);
    return argument && argument.getOwner() == body;
  };
  if (kernel.getBatchSizes())
    set_size = getAffineSymbolExpr(graph.graph_symbols++, kernel.getContext());
  // Tensors of a batch with sizes are one row of elements each, or one element.
  bool flat = bool(set_size);
  graph.offset = [=](IndexSpace& space, Node node) {
    if (flat)
      return node.at.getNumResults() == 1 ? node.at.getResult(0) : space.constant(0);
    return space.apply(layouts[cast<BlockArgument>(node.value).getArgNumber()], node.at).getResult(0);
  };
  size_t first = size_t(body->getNumArguments()) * kernel.getBatch() + part.first;
  graph.output_offset = [=](IndexSpace& space, const DomainOutput& output) {
    if (flat)
      return output.node.at.getResult(0);
    return space.apply(layouts[first + output.number], output.node.at).getResult(0);
  };
  return graph;
}

std::optional<std::string> whyNotScheduled(KernelOp kernel) {
  auto layouts = layoutsOf(kernel);
  AffineExpr set_size;
  Refusal refusal;
  for (Part part : partsOf(kernel)) {
    KernelGraph graph = graphOf(kernel, layouts, part, set_size);
    if (!analyseDomain(kernel.getContext(), graph, refusal))
      return refusal.reason;
  }
  return std::nullopt;
}

namespace {

// A scatter stores at the updates' places alone, in the memory of its init, unless it also reads that otherwise.
bool mayScatterInPlace(Domain& domain, const KernelGraph& graph, BlockArgument input) {
  ScatterForm& form = *domain.scatter;
  IndexSpace& space = domain.space;
  if (form.op.getInit() != input ||
      space.simplify(graph.offset(space, form.init())) !=
          space.simplify(graph.output_offset(space, {0, {form.op.getResult(), form.init_at}, false})))
    return false;
  SmallVector<Node> roots = {form.update()};
  for (Value index : form.op.getIndices())
    roots.push_back({index, form.updates_at});
  bool fine = true;
  llvm::DenseSet<std::pair<Value, AffineMap>> seen;
  for (Node root : roots)
    walkNodes(space, root, seen, graph, [&](Node node) { return fine &= node.value != input; });
  return fine;
}

}  // namespace

// A reduction's results are stored behind all of its reads, and each by who read what belongs to it. What is evaluated
// for a reduction or for the columns may be evaluated again, after that.
static bool readsForRowsAlone(Domain& domain, const KernelGraph& graph, Value input, const DomainOutput& output) {
  if (!output.per_row)
    return false;
  SmallVector<Node> roots;
  for (const DomainOutput& other : domain.outputs)
    if (!other.per_row)
      roots.push_back(other.node);
  for (const Instance& instance : domain.instances)
    roots.push_back(instance.element());
  bool fine = true;
  llvm::DenseSet<std::pair<Value, AffineMap>> seen;
  for (Node root : roots)
    walkNodes(domain.space, root, seen, graph, [&](Node node) { return fine &= node.value != input; });
  return fine;
}

bool mayWriteInPlace(KernelOp kernel, unsigned input, unsigned result, bool with_reductions) {
  auto parts = partsOf(kernel);
  if (parts.size() > 1)  // another part may read what is overwritten
    return false;
  Block& body = kernel.getBody().front();
  auto layouts = layoutsOf(kernel);
  AffineExpr set_size;
  KernelGraph graph = graphOf(kernel, layouts, parts.front(), set_size);
  Refusal refusal;
  auto domain = analyseDomain(kernel.getContext(), graph, refusal);
  if (domain && domain->scatter)
    return mayScatterInPlace(*domain, graph, body.getArgument(input));
  // What a branch evaluates is evaluated again outside of it, after a store.
  if (body.walk([](Operation* op) {
            return isa<tensor::ConcatOp, PadOp>(op) ? WalkResult::interrupt() : WalkResult::advance();
          })
          .wasInterrupted())
    return false;
  if (!domain || domain->sort || domain->product || domain->scan_dim ||
      (!domain->instances.empty() && !with_reductions) || (set_size && useBatchSizes(*domain, graph, set_size)))
    return false;
  IndexSpace& space = domain->space;
  auto output = llvm::find_if(domain->outputs, [&](const DomainOutput& output) { return output.number == result; });
  if (!domain->instances.empty() && !readsForRowsAlone(*domain, graph, body.getArgument(input), *output))
    return false;
  AffineExpr written = space.simplify(graph.output_offset(space, *output));
  Dims dims = space.dimsOf(space.indices({written}));
  for (unsigned dim : domain->rows)
    if (constantOf(space.size(dim)) != 1 && !dims.test(dim))
      return false;
  bool fine = true;
  llvm::DenseSet<std::pair<Value, AffineMap>> seen;
  for (const DomainOutput& root : domain->outputs)
    walkNodes(space, root.node, seen, graph, [&](Node node) {
      if (node.value.getDefiningOp() && isReduction(node.value.getDefiningOp()))
        return false;
      fine &= node.value != body.getArgument(input) || space.simplify(graph.offset(space, node)) == written;
      return fine;
    });
  return fine;
}

std::optional<std::string> useBatchSizes(Domain& domain, const KernelGraph& graph, AffineExpr symbol) {
  IndexSpace& space = domain.space;
  std::string reason = "a batch of different sizes needs elementwise work on contiguous tensors";
  if (!domain.instances.empty() || domain.rows.size() != 1)
    return reason;
  AffineExpr position = space.dim(domain.rows[0]);
  bool flat = true;
  llvm::DenseSet<std::pair<Value, AffineMap>> seen;
  for (const DomainOutput& output : domain.outputs) {
    flat &= graph.output_offset(space, output) == position;
    walkNodes(space, output.node, seen, graph, [&](Node node) {
      Operation* op = node.value.getDefiningOp();
      if (graph.is_input(node.value)) {
        AffineExpr offset = graph.offset(space, node);
        flat &= offset == position || !space.dimsOf(offset).any();
      } else if (op) {
        flat &= !isa<linalg::IndexOp, tensor::ConcatOp>(op);
      }
      return flat;
    });
  }
  if (!flat)
    return reason;
  space.resize(domain.rows[0], symbol);
  return std::nullopt;
}

}  // namespace zefuse
