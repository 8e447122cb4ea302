#include "compiler/fuse/layout_readers.h"

#include "compiler/fuse/graph.h"
#include "lowering/analysis/index_space.h"
#include "lowering/analysis/product_form.h"
#include "lowering/dialect/shape.h"

using namespace mlir;

namespace zefuse {

bool readByLibraryConvolution(Value value) {
  return llvm::any_of(value.getUses(), [](OpOperand& use) {
    return isa<ConvolutionOp>(use.getOwner()) && use.getOwner()->hasAttr(in_library) && use.getOperandNumber() < 2;
  });
}

bool stepsForward(AffineExpr index) {
  bool forward = true;
  index.walk([&](AffineExpr part) {
    auto product = dyn_cast<AffineBinaryOpExpr>(part);
    if (product && product.getKind() == AffineExprKind::Mul && !product.isSymbolicOrConstant())
      forward &= neverNegative(product.getLHS()) && neverNegative(product.getRHS());
  });
  return forward;
}

bool readsWhole(const LayoutReader& reader, RankedTensorType type) {
  return reader.view.isIdentity() && llvm::equal(reader.sizes, shapeOf(type), sameValue);
}

ConvolutionOp convolutionOf(Value value, RankedTensorType type) {
  auto convolution = value.getDefiningOp<ConvolutionOp>();
  if (auto kernel = value.getDefiningOp<KernelOp>())
    for (auto inner : kernel.getBody().getOps<ConvolutionOp>())
      if (sameShape(inner.getType(), type))
        convolution = inner;
  const bool has_places = convolution && (convolution.getKind() != "weights" || convolution->hasAttr(in_library));
  return has_places ? convolution : ConvolutionOp();
}

}  // namespace zefuse
