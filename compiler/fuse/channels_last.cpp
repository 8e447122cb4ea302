#include "compiler/fuse/channels_last.h"

#include "lowering/analysis/dataflow.h"
#include "lowering/dialect/Zefuse.h"
#include "lowering/dialect/shape.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"

using namespace mlir;

namespace zefuse {

/// Where the elements of a view lie whose source lies in rows; nothing: in no strides, or nobody knows yet.
static std::optional<Strided> placeOfView(ViewOp view) {
  const SmallVector<AffineExpr> sizes = shapeOf(view.getType());
  const unsigned symbols = view.getMap().getNumSymbols();
  auto through = [&](ArrayRef<AffineExpr> outer, ArrayRef<AffineExpr> inner) {
    auto results = llvm::map_to_vector(outer, [&](AffineExpr expr) { return expr.replaceDims(inner); });
    return simplifyInBounds(AffineMap::get(unsigned(sizes.size()), symbols, results, view.getContext()), sizes);
  };
  AffineMap map = view.getMap();
  Value source = view.getSource();
  while (auto before = source.getDefiningOp<ViewOp>()) {
    map = through(before.getMap().getResults(), map.getResults());
    source = before.getSource();
  }
  if (!isa_and_nonnull<linalg::GenericOp, MatmulOp>(source.getDefiningOp()))
    return std::nullopt;
  const AffineMap rows = contiguousLayout(cast<RankedTensorType>(source.getType()), symbols);
  return asStrided(through(rows.getResults(), map.getResults()), sizes);
}

SmallVector<AffineExpr> channelsLastStrides(ArrayRef<AffineExpr> sizes, MLIRContext* context) {
  SmallVector<AffineExpr> permuted = {sizes[0]};
  permuted.append(sizes.begin() + 2, sizes.end());
  permuted.push_back(sizes[1]);
  SmallVector<AffineExpr> dense = contiguousStrides(permuted, context), strides = {dense[0], dense.back()};
  strides.append(dense.begin() + 1, dense.end() - 1);
  return strides;
}

bool sameChannelsOrPlaces(RankedTensorType a, RankedTensorType b) {
  SmallVector<AffineExpr> first = shapeOf(a), second = shapeOf(b);
  return first[1] == second[1] || ArrayRef(first).drop_front(2) == ArrayRef(second).drop_front(2);
}

bool ChannelsLastForecast::operator()(Value value) {
  if (auto found = known_.find(value); found != known_.end())
    return found->second;
  bool answer = find(value);
  return known_[value] = answer;
}

bool ChannelsLastForecast::find(Value value) {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  if (!type || type.getRank() < 3 || type.getRank() > 5)
    return false;
  if (auto argument = dyn_cast<BlockArgument>(value)) {
    auto strides = graph_.getArgAttrOfType<AffineMapAttr>(argument.getArgNumber(), "zefuse.strides");
    SmallVector<AffineExpr> sizes = shapeOf(type);
    auto lies = [&](ArrayRef<AffineExpr> wanted) {
      return llvm::equal(strides.getValue().getResults(), wanted, sameValue);
    };
    return strides && lies(channelsLastStrides(sizes, value.getContext())) &&
           !lies(contiguousStrides(sizes, value.getContext()));
  }
  Operation* op = value.getDefiningOp();
  if (auto convolution = dyn_cast<ConvolutionOp>(op))
    return convolution.getKind() != "weights";
  if (auto view = dyn_cast<ViewOp>(op)) {
    const SmallVector<AffineExpr> sizes = shapeOf(type), wanted = channelsLastStrides(sizes, value.getContext());
    const auto place = placeOfView(view);
    return place && llvm::equal(place->strides, wanted, sameValue) &&
           !llvm::equal(place->strides, contiguousStrides(sizes, value.getContext()), sameValue);
  }
  if (!isa<linalg::GenericOp>(op))
    return false;
  // As layouts.cpp has it of kernels: one image lies so, and none of the result's own shape otherwise.
  bool found = false;
  for (Value input : cast<linalg::GenericOp>(op).getInputs()) {
    auto read = dyn_cast<RankedTensorType>(input.getType());
    if (!read || read.getRank() != type.getRank())
      continue;
    if ((*this)(input))
      found |= sameChannelsOrPlaces(read, type);
    else if (llvm::equal(shapeOf(read), shapeOf(type), sameValue) && !input.getDefiningOp<linalg::GenericOp>())
      return false;
  }
  return found;
}

}  // namespace zefuse
