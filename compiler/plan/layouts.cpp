#include "compiler/plan/layouts.h"

#include "lowering/dialect/shape.h"

using namespace mlir;

namespace zefuse {
namespace {

unsigned numSymbols(func::FuncOp graph) { return graph->getAttrOfType<ArrayAttr>("zefuse.symbols").size(); }

}  // namespace

AffineMap layoutThrough(ViewOp view, AffineMap source) {
  AffineExpr element = source.getResult(0).replaceDims(view.getMap().getResults());
  AffineMap layout = AffineMap::get(view.getMap().getNumDims(), source.getNumSymbols(), element);
  return simplifyInBounds(layout, shapeOf(view.getType()));
}

AffineMap layoutOfArgument(func::FuncOp graph, unsigned number) {
  auto type = cast<RankedTensorType>(graph.getArgument(number).getType());
  SmallVector<AffineExpr> strides = contiguousStrides(shapeOf(type), graph.getContext());
  if (auto map = graph.getArgAttrOfType<AffineMapAttr>(number, "zefuse.strides"))
    strides.assign(map.getValue().getResults().begin(), map.getValue().getResults().end());
  return stridedLayout(strides, nullptr, numSymbols(graph), graph.getContext());
}

SmallVector<AffineMap> resultLayouts(Operation* call) {
  if (auto matmul = dyn_cast<MatmulOp>(call))
    return {*matmul.getResultLayout()};
  if (auto grouped = dyn_cast<GroupedMatmulOp>(call))
    return {*grouped.getResultLayout()};
  if (auto index = dyn_cast<GroupIndexOp>(call))
    return {*index.getResultLayout()};
  if (auto convolution = dyn_cast<ConvolutionOp>(call))
    return {*convolution.getResultLayout()};
  if (auto gradient = dyn_cast<AttentionGradientOp>(call))
    return llvm::to_vector(gradient.getResultLayouts()->getAsValueRange<AffineMapAttr>());
  if (auto recurrence = dyn_cast<RecurrenceOp>(call))
    return llvm::to_vector(recurrence.getResultLayouts()->getAsValueRange<AffineMapAttr>());
  auto attention = cast<AttentionOp>(call);
  SmallVector<AffineMap> layouts{*attention.getResultLayout()};
  if (attention.getLogSums())
    layouts.push_back(*attention.getLogSumsLayout());
  return layouts;
}

AffineMap ValueLayouts::of(Value value) {
  if (AffineMap known = known_.lookup(value))
    return known;
  AffineMap layout;
  if (auto argument = dyn_cast<BlockArgument>(value)) {
    layout = layoutOfArgument(graph_, argument.getArgNumber());
  } else if (auto view = value.getDefiningOp<ViewOp>()) {
    layout = layoutThrough(view, of(view.getSource()));
  } else {
    const unsigned number = cast<OpResult>(value).getResultNumber();
    if (auto kernel = value.getDefiningOp<KernelOp>()) {
      auto writes = kernel.getWrites();
      layout = writes && (*writes)[number] >= 0
                   ? of(graph_.getArgument((*writes)[number]))
                   : cast<AffineMapAttr>(kernel.getLayouts()[kernel.getInputs().size() + number]).getValue();
    } else if (auto aten = value.getDefiningOp<AtenOp>()) {
      auto strides = cast<AffineMapAttr>(aten.getResultStrides()[number]).getValue();
      layout = stridedLayout(strides.getResults(), nullptr, numSymbols(graph_), graph_.getContext());
    } else {
      layout = resultLayouts(value.getDefiningOp())[number];
    }
  }
  known_[value] = layout;
  return layout;
}

AffineMap ValueLayouts::fromFirst(Value value) {
  auto strided = asStrided(of(value), shapeOf(cast<RankedTensorType>(value.getType())));
  assert(strided && "layout assignment leaves only strided views outside kernels");
  return stridedLayout(strided->strides, nullptr, numSymbols(graph_), graph_.getContext());
}

}  // namespace zefuse
