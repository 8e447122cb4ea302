#include "compiler/fuse/orders.h"

#include <algorithm>

#include "compiler/builder/tensor_builder.h"
#include "compiler/fuse/graph.h"
#include "lowering/analysis/dataflow.h"
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

namespace {

/// A value as the operations of a kernel see it: of `sizes`, through `view`.
struct Walked {
  Value value;
  AffineMap view;
  SmallVector<AffineExpr> sizes;
};

Walked asItIs(Value value) {
  const RankedTensorType type = typeOf(value);
  return {value, AffineMap::getMultiDimIdentityMap(type.getRank(), type.getContext()), shapeOf(type)};
}

/// The one view through which operations see what lies in a kernel's argument, if it is of this shape.
std::optional<Walked> seenAs(RankedTensorType shape, Value input, BlockArgument inside) {
  ViewOp seen;
  for (OpOperand& use : inside.getUses()) {
    auto view = dyn_cast<ViewOp>(use.getOwner());
    if (!view || (seen && (view.getMap() != seen.getMap() || view.getType() != seen.getType())))
      return std::nullopt;
    seen = view;
  }
  if (!seen || !sameShape(seen.getType(), shape) || !llvm::any_of(seen->getUses(), isReadInOrder) ||
      !sameValue(numElements(seen.getType()), numElements(typeOf(input))))
    return std::nullopt;
  return Walked{input, seen.getMap(), shapeOf(seen.getType())};
}

SmallVector<Walked> walkedTogether(KernelOp kernel) {
  SmallVector<Walked> values;
  Block& body = kernel.getBody().front();
  for (auto [input, inside] : llvm::zip(kernel.getInputs(), body.getArguments()))
    if (llvm::any_of(inside.getUses(), isReadInOrder))
      values.push_back(asItIs(input));
  for (auto [result, inside] : llvm::zip(kernel.getResults(), body.getTerminator()->getOperands()))
    if (isMadeInOrder(inside))
      values.push_back(asItIs(result));
  llvm::erase_if(values, [](const Walked& walked) { return !isLargeInOrder(walked.value); });
  auto* largest = llvm::max_element(
      values, [](const Walked& a, const Walked& b) { return estimatedElements(a.value) < estimatedElements(b.value); });
  if (largest == values.end())
    return {};
  // Of a reshape the dimensions are others: as many elements in another shape.
  const RankedTensorType whole = typeOf(largest->value);
  llvm::erase_if(values, [&](const Walked& walked) {
    const RankedTensorType type = typeOf(walked.value);
    return type.getRank() != whole.getRank() ||
           (!sameShape(type, whole) && sameValue(numElements(type), numElements(whole)));
  });
  for (auto [input, inside] : llvm::zip(kernel.getInputs(), body.getArguments()))
    if (isLargeInOrder(input) &&
        llvm::none_of(values, [input = input](const Walked& walked) { return walked.value == input; }))
      if (auto walked = seenAs(whole, input, inside))
        values.push_back(*walked);
  return values;
}

/// The dimension, as the kernel sees them, whose neighbours lie side by side.
std::optional<unsigned> innermost(const Walked& walked, AffineMap layout) {
  if (!layout)
    return std::nullopt;
  const unsigned rank = walked.view.getNumDims();
  MLIRContext* context = layout.getContext();
  const AffineExpr element = layout.getResult(0).replaceDims(walked.view.getResults());
  auto at = [&](unsigned dim) {  // of the first element's neighbour along it
    SmallVector<AffineExpr> place(rank, getAffineConstantExpr(0, context));
    if (dim < rank)
      place[dim] = getAffineConstantExpr(1, context);
    return element.replaceDims(place);
  };
  for (unsigned dim = 0; dim < rank; ++dim)
    if (constantOf(walked.sizes[dim]) != 1 && sameValue(at(dim), at(rank) + 1))
      return dim;
  return std::nullopt;
}

/// The order of dimensions, the outermost first, that most elements have; empty: all agree, or there is none.
SmallVector<unsigned> commonOrder(KernelOp kernel, ArrayRef<Walked> values, llvm::function_ref<AffineMap(Value)> of) {
  struct Order {
    double elements = 0;
    bool of_result = false;
    SmallVector<unsigned> dims;
  };
  llvm::SmallMapVector<unsigned, Order, 4> orders;  // by what is innermost
  for (const Walked& walked : values) {
    const auto dim = innermost(walked, of(walked.value));
    if (!dim)
      continue;
    Order& order = orders[*dim];
    order.elements += estimatedElements(walked.value);
    order.of_result |= walked.value.getDefiningOp() == kernel.getOperation();
    if (order.dims.empty() && walked.view.isIdentity())
      order.dims = orderOf(typeOf(walked.value), of(walked.value));
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

/// The order of the value's own dimensions in which a kernel finds its elements one after the other that walks in
/// `order`; empty: there is none.
SmallVector<unsigned> ownOrder(const Walked& walked, ArrayRef<unsigned> order) {
  if (walked.view.isIdentity())
    return llvm::to_vector(order);
  MLIRContext* context = walked.view.getContext();
  SmallVector<AffineExpr> sizes, position(order.size());
  for (auto [place, dim] : llvm::enumerate(order)) {
    sizes.push_back(walked.sizes[dim]);
    position[dim] = getAffineDimExpr(unsigned(place), context);
  }
  const AffineMap walk = walked.view.replaceDimsAndSymbols(position, {}, unsigned(order.size()), 0);
  return orderReadBy(walk, sizes, typeOf(walked.value));
}

}  // namespace

bool reducesInnermost(KernelOp kernel) {
  return llvm::all_of(kernel.getBody().getOps<linalg::GenericOp>(), [](linalg::GenericOp op) {
    return !isReduction(op) || !isLargeInOrder(op.getDpsInputs()[0]) ||
           op.getIteratorTypesArray().back() == utils::IteratorType::reduction;
  });
}

bool isLargeInOrder(Value value) { return estimatedElements(value) > large; }

SmallVector<OtherOrder> inOtherOrders(KernelOp kernel, llvm::function_ref<AffineMap(Value)> of, unsigned num_symbols) {
  const SmallVector<Walked> values = walkedTogether(kernel);
  const SmallVector<unsigned> order = commonOrder(kernel, values, of);
  SmallVector<OtherOrder> others;
  for (const Walked& walked : values) {
    const auto dim = innermost(walked, of(walked.value));
    if (order.empty() || !dim || *dim == order.back())
      continue;
    if (SmallVector<unsigned> own = ownOrder(walked, order); !own.empty())
      others.push_back({walked.value, permutedLayout(typeOf(walked.value), own, num_symbols)});
  }
  return others;
}

}  // namespace zefuse
