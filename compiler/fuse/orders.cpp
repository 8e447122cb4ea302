#include "compiler/fuse/orders.h"

#include <algorithm>

#include "compiler/builder/tensor_builder.h"
#include "compiler/fuse/graph.h"
#include "lowering/analysis/index_space.h"
#include "lowering/dialect/shape.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/ADT/MapVector.h"

using namespace mlir;

namespace zefuse {

namespace {

// Elements. What a first-level cache holds is read in any order at the price of a copy. Of f32, 256 KiB to 1 MiB in two
// orders took 1.6 to 3 times as long as with the copy, 2 to 6 MiB 4 to 8 times.
constexpr double large = 1 << 16;

/// Whether a view shows the dimensions that there are, in their order: a slice, what is repeated.
bool keepsOrder(ViewOp view) {
  const AffineMap map = view.getMap();
  if (map.getNumDims() != map.getNumResults())
    return false;
  for (auto [position, index] : llvm::enumerate(map.getResults()))
    for (unsigned dim = 0; dim < map.getNumDims(); ++dim)
      if (dim != position && index.isFunctionOfDim(dim))
        return false;
  return true;
}

bool isReadInOrder(OpOperand& use) {
  Operation* op = use.getOwner();
  if (auto view = dyn_cast<ViewOp>(op))
    return keepsOrder(view) && llvm::any_of(view->getUses(), isReadInOrder);
  auto generic = dyn_cast<linalg::GenericOp>(op);
  return isa<tensor::ConcatOp, PadOp>(op) ||
         (generic && generic.isDpsInput(&use) && generic.getMatchingIndexingMap(&use).isIdentity());
}

bool isMadeInOrder(Value value) {
  auto view = value.getDefiningOp<ViewOp>();
  for (; view && keepsOrder(view); view = value.getDefiningOp<ViewOp>())
    value = view.getOperand();
  return value.getDefiningOp() && isa<linalg::GenericOp, tensor::ConcatOp, PadOp>(value.getDefiningOp());
}

/// Its dimensions by their strides, the outermost first; empty where those are no numbers.
SmallVector<unsigned> orderOf(RankedTensorType type, AffineMap layout) {
  const SmallVector<AffineExpr> sizes = shapeOf(type);
  const auto strided = asStrided(layout, sizes);
  if (!strided || !isDense(strided->strides, sizes))
    return {};
  auto order = llvm::to_vector(llvm::seq<unsigned>(0, type.getRank()));
  llvm::sort(order, [&](unsigned a, unsigned b) {
    if ((constantOf(sizes[a]) == 1) != (constantOf(sizes[b]) == 1))  // an only element has no neighbours
      return constantOf(sizes[a]) == 1;
    const AffineExpr one = strided->strides[a], other = strided->strides[b];
    return sameValue(one, other) ? a < b : isAtLeast(one, other);
  });
  return order;
}

}  // namespace

SmallVector<unsigned> orderReadBy(AffineMap view, ArrayRef<AffineExpr> reader_sizes, RankedTensorType type) {
  if (!type.hasStaticShape())
    return {};
  SmallVector<int64_t> sizes;  // of the reader's
  for (AffineExpr size : reader_sizes) {
    auto constant = dyn_cast<AffineConstantExpr>(size);
    if (!constant || constant.getValue() == 0)
      return {};
    sizes.push_back(constant.getValue());
  }
  SmallVector<unsigned> order;  // the innermost first
  SmallVector<bool> placed(static_cast<size_t>(type.getRank()));
  int64_t step = 1;
  for (int64_t left = type.getNumElements(); step < left;) {
    // The reader's element `step` is the first one in which the dimension beyond those placed is not 0.
    SmallVector<AffineExpr> place(sizes.size());
    int64_t rest = step;
    for (size_t dim = sizes.size(); dim-- > 0; rest /= sizes[dim])
      place[dim] = getAffineConstantExpr(rest % sizes[dim], type.getContext());
    std::optional<unsigned> next;
    for (auto [dim, index] : llvm::enumerate(view.getResults())) {
      auto value = dyn_cast<AffineConstantExpr>(index.replaceDims(place));
      if (!value || value.getValue() > 1 || (value.getValue() == 1 && next))
        return {};
      if (value.getValue() == 1)
        next = static_cast<unsigned>(dim);
    }
    if (rest != 0 || !next || placed[*next])
      return {};
    placed[*next] = true;
    order.push_back(*next);
    step *= type.getDimSize(*next);
  }
  for (unsigned dim = 0; dim < placed.size(); ++dim)
    if (!placed[dim])
      order.push_back(dim);  // of size 1
  std::reverse(order.begin(), order.end());
  return order;
}

AffineMap permutedLayout(RankedTensorType type, ArrayRef<unsigned> order, unsigned num_symbols) {
  SmallVector<AffineExpr> sizes = shapeOf(type), permuted, strides(sizes.size());
  for (unsigned dim : order)
    permuted.push_back(sizes[dim]);
  for (auto [dim, stride] : llvm::zip(order, contiguousStrides(permuted, type.getContext())))
    strides[dim] = stride;
  return stridedLayout(strides, nullptr, num_symbols, type.getContext());
}

bool isDense(ArrayRef<AffineExpr> strides, ArrayRef<AffineExpr> sizes) {
  if (sizes.empty())
    return true;
  AffineExpr expected = getAffineConstantExpr(1, sizes.front().getContext());
  SmallVector<bool> used(sizes.size());
  for (size_t step = 0; step < sizes.size(); ++step) {
    bool found = false;
    for (size_t i = 0; i < sizes.size() && !found; ++i) {
      if (used[i] || !(constantOf(sizes[i]) == 1 || sameValue(strides[i], expected)))
        continue;
      used[i] = found = true;
      if (constantOf(sizes[i]) != 1)
        expected = sizes[i] * expected;
    }
    if (!found)
      return false;
  }
  return true;
}

SmallVector<Value> walkedTogether(KernelOp kernel) {
  SmallVector<Value> values;
  Block& body = kernel.getBody().front();
  for (auto [input, inside] : llvm::zip(kernel.getInputs(), body.getArguments()))
    if (llvm::any_of(inside.getUses(), isReadInOrder))
      values.push_back(input);
  for (auto [result, inside] : llvm::zip(kernel.getResults(), body.getTerminator()->getOperands()))
    if (isMadeInOrder(inside))
      values.push_back(result);
  llvm::erase_if(values, [](Value value) { return estimatedElements(value) <= large; });
  auto* largest =
      llvm::max_element(values, [](Value a, Value b) { return estimatedElements(a) < estimatedElements(b); });
  if (largest == values.end())
    return {};
  // Of a reshape the dimensions are others: as many elements in another shape.
  const RankedTensorType whole = typeOf(*largest);
  llvm::erase_if(values, [&](Value value) {
    return rankOf(value) != whole.getRank() ||
           (!sameShape(typeOf(value), whole) && sameValue(numElements(typeOf(value)), numElements(whole)));
  });
  return values;
}

SmallVector<unsigned> commonOrder(KernelOp kernel, ArrayRef<Value> values, ArrayRef<AffineMap> layouts) {
  struct Order {
    double elements = 0;
    bool of_result = false;
    SmallVector<unsigned> dims;
  };
  llvm::SmallMapVector<unsigned, Order, 4> orders;  // by what is innermost
  for (auto [value, layout] : llvm::zip(values, layouts)) {
    const auto dim = innermost(typeOf(value), layout);
    if (!dim)
      continue;
    Order& order = orders[*dim];
    order.elements += estimatedElements(value);
    order.of_result |= value.getDefiningOp() == kernel.getOperation();
    if (order.dims.empty())
      order.dims = orderOf(typeOf(value), layout);
  }
  if (orders.size() < 2)
    return {};
  return llvm::max_element(orders,
                           [](const auto& a, const auto& b) {
                             return std::pair(a.second.elements, a.second.of_result) <
                                    std::pair(b.second.elements, b.second.of_result);
                           })
      ->second.dims;
}

std::optional<unsigned> innermost(RankedTensorType type, AffineMap layout) {
  const SmallVector<AffineExpr> sizes = shapeOf(type);
  if (auto strided = layout ? asStrided(layout, sizes) : std::nullopt)
    for (unsigned dim = 0; dim < sizes.size(); ++dim)
      if (constantOf(strided->strides[dim]) == 1 && constantOf(sizes[dim]) != 1)
        return dim;
  return std::nullopt;
}

}  // namespace zefuse
