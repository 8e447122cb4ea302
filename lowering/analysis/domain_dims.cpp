#include "lowering/analysis/domain_dims.h"

#include "lowering/dialect/Zefuse.h"
#include "lowering/dialect/simplify.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/ADT/DenseSet.h"

using namespace mlir;

namespace zefuse {

void DomainDims::start(const Domain& domain) {
  of_main_.clear();
  for (unsigned dim = 0; dim < domain.space.numDims(); ++dim)
    of_main_.push_back({domain.space.size(dim), domain.space.dim(dim)});
}

// Every expression that the schedule will emit: offsets when known, else indices.
void DomainDims::forEachEmitted(Domain& domain, llvm::function_ref<void(AffineExpr)> use) {
  llvm::DenseSet<std::pair<Value, AffineMap>> seen;
  auto visit = [&](Node node) {
    if (graph_.is_input(node.value)) {
      if (graph_.offset)
        use(graph_.offset(domain.space, node));
      else
        for (AffineExpr expr : node.at.getResults())
          use(expr);
      return false;
    }
    if (auto index = node.value.getDefiningOp<linalg::IndexOp>())
      use(node.at.getResult(index.getDim()));
    if (auto concat = node.value.getDefiningOp<tensor::ConcatOp>())
      use(node.at.getResult(concat.getDim()));
    if (auto pad = node.value.getDefiningOp<PadOp>())
      for (unsigned dim : paddedDims(pad))
        use(node.at.getResult(dim));
    if (Operation* op = node.value.getDefiningOp(); op && isReduction(op))
      return false;
    return true;
  };
  for (const DomainOutput& output : domain.outputs) {
    if (graph_.output_offset)
      use(graph_.output_offset(domain.space, output));
    walkNodes(domain.space, output.node, seen, graph_, visit);
  }
  for (const Instance& instance : domain.instances)
    walkNodes(domain.space, instance.element(), seen, graph_, visit);
  if (!domain.product)
    return;
  // A schedule binds the dims of each of a product's indices by itself.
  auto walkFrom = [&](Node root) {
    for (AffineExpr index : root.at.getResults())
      use(index);
    walkNodes(domain.space, root, seen, graph_, visit);
  };
  for (unsigned number = 0; number < domain.product->at.size(); ++number)
    if (domain.product->at[number])
      walkFrom(domain.product->result(number));
  for (unsigned number = 0; number < domain.product->operands.size(); ++number)
    walkFrom(domain.product->operand(domain, number));
  if (domain.product->bias)
    walkNodes(domain.space, *domain.product->bias, seen, graph_, visit);
}

// Replaces a dim everywhere by an expression over the dims `with_dims` (outermost first). The nodes must be collected
// anew.
void DomainDims::replaceDim(Domain& domain, unsigned dim, AffineExpr with, ArrayRef<unsigned> with_dims) {
  for (DomainOutput& output : domain.outputs)
    output.node.at = domain.space.substitute(output.node.at, dim, with);
  for (OfMain& main : of_main_)
    main.index = domain.space.simplify(main.index.replace(domain.space.dim(dim), with));
  auto replaceIn = [&](SmallVector<unsigned>& dims) {
    auto* it = llvm::find(dims, dim);
    if (it == dims.end())
      return;
    it = dims.erase(it);
    dims.insert(it, with_dims.begin(), with_dims.end());
  };
  replaceIn(domain.rows);
  for (AxisSet& set : domain.axis_sets) {
    for (AffineExpr& index : set.indices)
      index = domain.space.simplify(index.replace(domain.space.dim(dim), with));
    replaceIn(set.dims);
  }
}

// d floordiv c and d mod c of a dim whose size c divides: two dims.
bool DomainDims::split(Domain& domain) {
  for (int round = 0; round < 16; ++round) {
    IndexSpace& space = domain.space;
    std::optional<std::pair<unsigned, int64_t>> split;
    forEachEmitted(domain, [&](AffineExpr emitted) {
      emitted.walk([&](AffineExpr part) {
        auto binary = dyn_cast<AffineBinaryOpExpr>(part);
        if (!binary || (part.getKind() != AffineExprKind::FloorDiv && part.getKind() != AffineExprKind::Mod))
          return;
        auto dim = dyn_cast<AffineDimExpr>(binary.getLHS());
        auto divisor = constantOf(binary.getRHS());
        if (!dim || dim.getPosition() == domain.scan_dim || !divisor || *divisor < 2 ||
            !isMultipleOf(space.size(dim.getPosition()), *divisor))
          return;
        if (!split || *divisor < split->second)
          split = {dim.getPosition(), *divisor};
      });
    });
    if (!split || space.numDims() + 2 > IndexSpace::max_dims)
      return true;
    auto [dim, divisor] = *split;
    unsigned outer = space.addDim(space.size(dim).floorDiv(divisor));
    unsigned inner = space.addDim(space.constant(divisor));
    replaceDim(domain, dim, space.dim(outer) * divisor + space.dim(inner), {outer, inner});
    if (!collect_(domain))
      return false;
  }
  return true;
}

// Adjacent dims of one class become one where that makes no access worse.
bool DomainDims::merge(Domain& domain) {
  if (!graph_.offset)
    return true;
  bool merged = true;
  while (merged && domain.space.numDims() + 1 < IndexSpace::max_dims) {
    merged = false;
    SmallVector<SmallVector<unsigned>> classes{domain.rows};
    for (AxisSet& set : domain.axis_sets)
      classes.push_back(set.dims);
    for (auto& dims : classes) {
      for (unsigned i = 0; i + 1 < dims.size() && !merged; ++i)
        merged = tryMerge(domain, dims[i], dims[i + 1]);
      if (merged)
        break;
    }
    if (merged && !collect_(domain))
      return false;
  }
  return true;
}

static bool opaqueFree(IndexSpace& space, AffineExpr expr, unsigned outer, unsigned inner) {
  bool free = true;
  expr.walk([&](AffineExpr part) {
    if (space.isOpaque(part)) {
      Dims dims = space.dimsOf(part);
      free &= !dims.test(outer) && !dims.test(inner);
    }
  });
  return free;
}

// True: merged, and the nodes must be collected anew.
bool DomainDims::tryMerge(Domain& domain, unsigned outer, unsigned inner) {
  IndexSpace& space = domain.space;
  if (constantOf(space.size(inner)) == 0 || outer == domain.scan_dim || inner == domain.scan_dim)
    return false;
  // Cheap test on the strides first: every access must step through both dims as through one.
  bool joint = true;
  forEachEmitted(domain, [&](AffineExpr emitted) {
    AffineExpr outer_stride = space.strideAlong(emitted, outer);
    AffineExpr inner_stride = space.strideAlong(emitted, inner);
    joint &= outer_stride && inner_stride &&
             space.simplify(inner_stride * space.size(inner)) == space.simplify(outer_stride) &&
             opaqueFree(space, emitted, outer, inner);
  });
  if (!joint)
    return false;
  unsigned whole = space.addDim(space.simplify(space.size(outer) * space.size(inner)));
  AffineExpr size = space.size(inner);
  replaceDim(domain, outer, space.dim(whole).floorDiv(size), {whole});
  replaceDim(domain, inner, space.dim(whole) % size, {});
  return true;
}

}  // namespace zefuse
