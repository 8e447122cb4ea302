// How the operands and results of a plan's steps may lie in memory (Interfaces.td).
#include "lowering/dialect/Zefuse.h"
#include "lowering/dialect/shape.h"

using namespace mlir;

#include "lowering/dialect/Interfaces.cpp.inc"

namespace zefuse {

static ArrayAttr layoutsAttr(MLIRContext* context, ArrayRef<AffineMap> layouts) {
  return ArrayAttr::get(
      context, llvm::map_to_vector(layouts, [](AffineMap map) -> Attribute { return AffineMapAttr::get(map); }));
}

LogicalResult verifyPostOps(Operation* op) {
  auto call = cast<PostOpsOpInterface>(op);
  size_t taken = 0;
  for (StringRef post_op : call.getPostOps().getAsValueRange<StringAttr>()) {
    if (post_op == "add" || post_op == "mul")
      ++taken;
    else if (!isActivation(post_op))
      return op->emitOpError("unknown post-op '") << post_op << "'";
  }
  if (taken != call.getPostOperands().size())
    return op->emitOpError("has ") << call.getPostOperands().size() << " operands for " << taken
                                   << " add and mul post-ops";
  return success();
}

//===-- matmul -------------------------------------------------------------------------------===//

OperandRule MatmulOp::getOperandRule(unsigned) { return OperandRule::matrix; }

bool MatmulOp::keepsRowsOf(unsigned) { return true; }

void MatmulOp::setLayouts(ArrayRef<AffineMap>, ArrayRef<AffineMap> results) {
  setResultLayoutAttr(AffineMapAttr::get(results[0]));
}

//===-- grouped_matmul -----------------------------------------------------------------------===//

OperandRule GroupIndexOp::getOperandRule(unsigned) { return OperandRule::strided; }

void GroupIndexOp::setLayouts(ArrayRef<AffineMap>, ArrayRef<AffineMap> results) {
  setResultLayoutAttr(AffineMapAttr::get(results[0]));
}

OperandRule GroupedMatmulOp::getOperandRule(unsigned operand) {
  return operand < 2 ? OperandRule::matrix : OperandRule::strided;
}

bool GroupedMatmulOp::keepsRowsOf(unsigned) { return true; }

void GroupedMatmulOp::setLayouts(ArrayRef<AffineMap>, ArrayRef<AffineMap> results) {
  setResultLayoutAttr(AffineMapAttr::get(results[0]));
}

//===-- convolution --------------------------------------------------------------------------===//

OperandRule ConvolutionOp::getOperandRule(unsigned operand) {
  // The weight is reordered once, or in scratch, from any strides; per-channel vectors are small.
  Value value = getOperation()->getOperand(operand);
  bool image = operand == 0 || (operand == 1 && getKind() == "weights");
  bool full =
      operand > 1 && value != getBias() && shapeOf(cast<RankedTensorType>(value.getType())) == shapeOf(getType());
  return image || full ? OperandRule::channels_last : OperandRule::strided;
}

void ConvolutionOp::setLayouts(ArrayRef<AffineMap>, ArrayRef<AffineMap> results) {
  setResultLayoutAttr(AffineMapAttr::get(results[0]));
}

//===-- attention ----------------------------------------------------------------------------===//

OperandRule AttentionOp::getOperandRule(unsigned operand) {
  return operand < 3 ? OperandRule::rows : OperandRule::strided;  // a mask is copied where it is used
}

bool AttentionOp::keepsRowsOf(unsigned result) { return result == 0; }

void AttentionOp::setLayouts(ArrayRef<AffineMap>, ArrayRef<AffineMap> results) {
  setResultLayoutAttr(AffineMapAttr::get(results[0]));
  if (getLogSums())
    setLogSumsLayoutAttr(AffineMapAttr::get(results[1]));
}

// Sums of rows may lie in any way.
OperandRule AttentionGradientOp::getOperandRule(unsigned operand) {
  return operand < 4 ? OperandRule::rows : OperandRule::strided;
}

bool AttentionGradientOp::keepsRowsOf(unsigned) { return true; }

void AttentionGradientOp::setLayouts(ArrayRef<AffineMap>, ArrayRef<AffineMap> results) {
  setResultLayoutsAttr(layoutsAttr(getContext(), results));
}

//===-- recurrence ---------------------------------------------------------------------------===//

OperandRule RecurrenceOp::getOperandRule(unsigned operand) {
  // The weights, whose sizes are those of no sequence or state, are packed from dense rows, and the bias is one.
  auto type = cast<RankedTensorType>(getInputs()[operand].getType());
  const bool weight = operand == (getGradient() && getCell().starts_with("lstm") ? 2u : 1u) ||
                      (getProjected() && operand == (getGradient() ? 6u : 5u));
  return type.getRank() > 1 && type.hasStaticShape() && !weight ? OperandRule::rows : OperandRule::fixed;
}

AffineMap RecurrenceOp::getFixedOperandStrides(unsigned operand) {
  if (getOperandRule(operand) != OperandRule::fixed)
    return {};
  SmallVector<AffineExpr> sizes = shapeOf(cast<RankedTensorType>(getInputs()[operand].getType()));
  const unsigned symbols = numSymbols(cast<RankedTensorType>(getInputs()[operand].getType()));
  return AffineMap::get(0, symbols, contiguousStrides(sizes, getContext()), getContext());
}

bool RecurrenceOp::keepsRowsOf(unsigned) { return true; }

void RecurrenceOp::setLayouts(ArrayRef<AffineMap>, ArrayRef<AffineMap> results) {
  setResultLayoutsAttr(layoutsAttr(getContext(), results));
}

//===-- aten ---------------------------------------------------------------------------------===//

OperandRule AtenOp::getOperandRule(unsigned) { return OperandRule::fixed; }

AffineMap AtenOp::getFixedOperandStrides(unsigned operand) {
  return cast<AffineMapAttr>(getOperandStrides()[operand]).getValue();
}

AffineMap AtenOp::getFixedResultStrides(unsigned result) {
  return cast<AffineMapAttr>(getResultStrides()[result]).getValue();
}

void AtenOp::setLayouts(ArrayRef<AffineMap>, ArrayRef<AffineMap>) {}  // they are eager's

//===-- kernel -------------------------------------------------------------------------------===//

OperandRule KernelOp::getOperandRule(unsigned operand) {
  // What the evaluator computes it finds anywhere. An image's elements are loaded once per tap of the kernel: as quick
  // implementations want them.
  auto isImage = [](OpOperand& use) {
    auto convolution = dyn_cast<ConvolutionOp>(use.getOwner());
    return convolution && convolution.getOperandRule(use.getOperandNumber()) == OperandRule::channels_last;
  };
  return llvm::any_of(getBody().getArgument(operand).getUses(), isImage) ? OperandRule::channels_last
                                                                         : OperandRule::any;
}

void KernelOp::setLayouts(ArrayRef<AffineMap> operands, ArrayRef<AffineMap> results) {
  SmallVector<AffineMap> all(operands);
  llvm::append_range(all, results);
  setLayoutsAttr(layoutsAttr(getContext(), all));
}

}  // namespace zefuse
