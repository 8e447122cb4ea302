// What stands around a library call and can be done on its way in or out: zero padding, activations, and for
// convolutions whatever is x * scale + shift + residual with a scale and a shift per channel (bias, batch norm in
// inference, layer scale, skip connections).
//
// A batch norm becomes a scale and a shift, not another weight: a folded weight would have to be made anew whenever one
// of five parameters may have changed, and the two post-ops cost little beside the convolution (docs/convolution.md).
// The two vectors are computed by a kernel at each call, so they are never stale. (Where a GPU's library computes it,
// zefuse-fold-batch-norms makes another weight.)
#include "compiler/fuse/channel_affine.h"
#include "compiler/fuse/graph.h"
#include "compiler/fuse/passes.h"
#include "lowering/analysis/product_form.h"
#include "lowering/dialect/Zefuse.h"
#include "lowering/dialect/shape.h"
#include "lowering/dialect/simplify.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"

using namespace mlir;

namespace zefuse {

#define GEN_PASS_DEF_FUSELIBRARYEPILOGUES
#include "compiler/fuse/Passes.h.inc"

namespace {

/// The importer marks a pointwise operation that is one of oneDNN's activations (docs/ir.md).
std::optional<StringRef> activationOf(linalg::GenericOp op) {
  auto name = op->getAttrOfType<StringAttr>("zefuse.activation");
  if (!name || op.getNumDpsInputs() != 1 || op.getNumReductionLoops() != 0)
    return std::nullopt;
  for (AffineMap map : op.getIndexingMapsArray())
    if (!map.isIdentity())
      return std::nullopt;
  return name.getValue();
}

Type elementOf(Value tensor) { return cast<RankedTensorType>(tensor.getType()).getElementType(); }

void appendPostOp(PostOpsOpInterface call, StringRef name, Value operand = {}) { call.appendPostOp(name, operand); }

/// The call takes over what `op` computes: `op` goes, its readers read `result`.
void absorb(Operation* call, linalg::GenericOp op, Value result) {
  call->setLoc(FusedLoc::get(call->getContext(), {call->getLoc(), op.getLoc()}));
  op.getResult(0).replaceAllUsesWith(result);
  op.erase();
}

/// matmul -> view that only regroups dimensions -> activation: the activation can move before the view.
void fuseActivation(linalg::GenericOp activation, StringRef name) {
  Value source = activation.getDpsInputOperand(0)->get();
  auto view = source.getDefiningOp<ViewOp>();
  auto matmul = (view ? view.getSource() : source).getDefiningOp<MatmulOp>();
  if (!matmul || matmul->hasAttr(in_kernel) || !matmul->hasOneUse() || (view && !view->hasOneUse()) ||
      elementOf(activation.getResult(0)) != matmul.getType().getElementType())
    return;
  appendPostOp(matmul, name);
  absorb(matmul, activation, source);
}

/// The vector that `op` adds to each row of `rows`; null where it does anything else.
Value addedToRows(linalg::GenericOp op, Value rows) {
  auto sum = dyn_cast<arith::AddFOp>(op.getBody()->front());
  if (!sum || op.getNumDpsInputs() != 2 || op.getNumReductionLoops() != 0 || !llvm::hasNItems(*op.getBody(), 2) ||
      op.getBody()->getTerminator()->getOperand(0) != sum.getResult() || op.getResult(0).getType() != rows.getType())
    return {};
  const unsigned at = op.getDpsInputOperand(0)->get() == rows ? 0 : 1;
  auto maps = op.getIndexingMapsArray();
  const unsigned last = maps[at].getNumDims() - 1;
  const bool adds_both = llvm::is_contained(sum->getOperands(), op.getBody()->getArgument(0)) &&
                         llvm::is_contained(sum->getOperands(), op.getBody()->getArgument(1));
  if (!adds_both || op.getDpsInputOperand(at)->get() != rows || !maps[at].isIdentity() || !maps[2].isIdentity() ||
      maps[1 - at].getNumResults() != 1 || maps[1 - at].getResult(0) != getAffineDimExpr(last, op.getContext()))
    return {};
  return op.getDpsInputOperand(1 - at)->get();
}

/// matmul -> view that regroups rows -> sum with a vector, as torch writes a linear layer of a permuted image: its
/// bias. Of f32, as a sum of fewer bits would be rounded once where eager rounds twice.
void fuseBias(MatmulOp matmul) {
  if (matmul->hasAttr(in_kernel) || matmul.getBias() || !matmul.getPostOps().empty() || !matmul->hasOneUse() ||
      matmul.getType().getRank() != 2 || !elementOf(matmul).isF32())
    return;
  auto view = dyn_cast<ViewOp>(*matmul->user_begin());
  Value rows = view ? view.getResult() : matmul.getResult();
  auto next = rows.hasOneUse() ? dyn_cast<linalg::GenericOp>(*rows.user_begin()) : nullptr;
  if (view) {
    AffineMap map = view.getMap();
    const unsigned rank = map.getNumDims();
    if (rank == 0 || map.getResult(1) != getAffineDimExpr(rank - 1, view.getContext()) ||
        map.getResult(0).isFunctionOfDim(rank - 1) ||
        view.getType().getShape().back() != matmul.getType().getShape().back())
      return;
  }
  Value bias = next ? addedToRows(next, rows) : Value();
  if (!bias || !elementOf(bias).isF32() || matmul.getType().isDynamicDim(1))
    return;
  matmul->moveBefore(next);  // the vector may be made after the product
  if (view)
    view->moveBefore(next);
  matmul.getBiasMutable().assign(bias);
  absorb(matmul, next, rows);
}

/// The call computes what reads it too, where that is x * scale + shift + residual.
bool fuseAffine(ConvolutionOp call, linalg::GenericOp op) {
  Value scale, shift, residual;
  {
    ChannelAffine affine(call.getResult(), op);
    if (!affine.found())
      return false;
    scale = affine.perChannel(affine.scale());
    shift = affine.perChannel(affine.shift());
    residual = affine.residual();
  }
  // What it reads now may stand after the call; nobody else reads the call's result.
  call->moveBefore(op);
  if (scale)
    appendPostOp(call, "mul", scale);
  if (shift)
    appendPostOp(call, "add", shift);
  if (residual)
    appendPostOp(call, "add", residual);
  absorb(call, op, call.getResult());
  return true;
}

/// Zeros around an image before the convolution are padding of the convolution, as long as no window lies in the
/// padding alone (oneDNN's quick implementations want that).
void takePadding(ConvolutionOp call) {
  auto pad = call.getInput().getDefiningOp<PadOp>();
  auto number = pad ? dyn_cast<FloatAttr>(pad.getValue()) : nullptr;
  if (!number || !number.getValue().isPosZero())
    return;
  ArrayRef<int64_t> low = pad.getLow();
  SmallVector<AffineExpr> inner = shapeOf(cast<RankedTensorType>(pad.getSource().getType())),
                          outer = shapeOf(cast<RankedTensorType>(pad.getType())),
                          kernel = shapeOf(call.getWeight().getType());
  SmallVector<int64_t> padding(call.getPadding());
  for (size_t dim = 0; dim < inner.size(); ++dim) {
    auto after = dyn_cast<AffineConstantExpr>(
        simplifyAffine(outer[dim] - inner[dim] - low[dim], 0, numSymbols(cast<RankedTensorType>(pad.getType()))));
    if (!after)
      return;
    if (after.getValue() < 0)  // cut off, and not to be seen by the convolution
      return;
    if (low[dim] == 0 && after.getValue() == 0)
      continue;
    auto size = dim < 2 ? nullptr : dyn_cast<AffineConstantExpr>(kernel[dim]);
    if (!size)
      return;
    int64_t& begin = padding[dim - 2];
    if (begin + std::max(low[dim], after.getValue()) > (size.getValue() - 1) * call.getDilation()[dim - 2])
      return;
    begin += low[dim];
  }
  call.setPadding(padding);
  call.getInputMutable().set(pad.getSource());
  call->setLoc(FusedLoc::get(call->getContext(), {pad.getLoc(), call.getLoc()}));
}

/// The elementwise operations that read the call's result, behind views, and how many operations read it at all.
size_t readersOf(Value result, SmallVectorImpl<linalg::GenericOp>& elementwise) {
  size_t count = 0;
  for (Operation* user : result.getUsers()) {
    if (auto view = dyn_cast<ViewOp>(user)) {
      count += readersOf(view.getResult(), elementwise);
      continue;
    }
    ++count;
    if (auto generic = dyn_cast<linalg::GenericOp>(user); generic && generic.getNumReductionLoops() == 0)
      elementwise.push_back(generic);
  }
  return count;
}

/// Says at the call why an elementwise operation that reads its result is not its epilogue.
void explainWhatIsLeft(PostOpsOpInterface call) {
  SmallVector<linalg::GenericOp> elementwise;
  size_t readers = readersOf(call->getResult(0), elementwise);
  if (elementwise.empty())
    return;
  std::string name = "an elementwise operation";
  if (auto origins = originsOf(elementwise.front().getLoc()); !origins.empty())
    name = origins.front().op;
  std::string reason;
  if (readers > 1)
    reason = "its result has " + std::to_string(readers) + " readers, which all need it as it is";
  else if (isa<MatmulOp>(call.getOperation()))
    reason = activationOf(elementwise.front())
                 ? "another type, or a view of part of the result, stands between"
                 : "the library's epilogue of a product is an activation; a kernel does the rest";
  else
    reason = "it is no activation, and not x * scale + shift + residual with a scale and a shift per channel";
  call->setAttr("zefuse.left_out", StringAttr::get(call->getContext(), name + " is not its epilogue: " + reason));
}

void fuseConvolution(ConvolutionOp call) {
  while (call->hasOneUse()) {
    auto next = dyn_cast<linalg::GenericOp>(*call->user_begin());
    if (!next || next.getResult(0).getType() != call.getType())
      return;
    if (auto name = activationOf(next)) {
      appendPostOp(call, *name);
      absorb(call, next, call.getResult());
    } else if (!fuseAffine(call, next)) {
      return;
    }
  }
}

void fuseLibraryEpilogues(func::FuncOp graph) {
  SmallVector<MatmulOp> products;
  graph.walk([&](MatmulOp op) { products.push_back(op); });
  for (MatmulOp op : products)
    fuseBias(op);
  SmallVector<linalg::GenericOp> activations;
  graph.walk([&](linalg::GenericOp op) {
    if (activationOf(op))
      activations.push_back(op);
  });
  for (linalg::GenericOp op : activations)
    fuseActivation(op, *activationOf(op));
  SmallVector<ConvolutionOp> convolutions;
  graph.walk([&](ConvolutionOp op) {
    if (op.getKind() != "weights")
      convolutions.push_back(op);
  });
  for (ConvolutionOp op : convolutions) {
    if (op.getKind() == "forward")
      takePadding(op);
    if (op->hasAttr(in_kernel))
      continue;
    fuseConvolution(op);
    explainWhatIsLeft(op);
  }
  graph.walk([](MatmulOp op) {
    if (!op->hasAttr(in_kernel))
      explainWhatIsLeft(op);
  });
}

class FuseLibraryEpilogues : public impl::FuseLibraryEpiloguesBase<FuseLibraryEpilogues> {
  void runOnOperation() override { fuseLibraryEpilogues(getOperation()); }
};

}  // namespace
}  // namespace zefuse
