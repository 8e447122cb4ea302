// A batch norm of given statistics behind a convolution that a GPU vendor's library computes: the library's call takes
// a bias, a residual and relu, but no scale. So the weight is scaled, and the call does all that follows. Done where
// what is made of parameters alone is kept from call to call; made in each, the weights would cost what is won.
#include "compiler/builder/tensor_builder.h"
#include "compiler/fuse/channel_affine.h"
#include "compiler/fuse/graph.h"
#include "compiler/fuse/passes.h"
#include "lowering/analysis/product_form.h"
#include "lowering/dialect/Zefuse.h"

using namespace mlir;

namespace zefuse {

#define GEN_PASS_DEF_FOLDBATCHNORMS
#include "compiler/fuse/Passes.h.inc"

namespace {

/// The tensor that `weight` is rounded from, so that it is rounded once; or itself.
Value unrounded(Value weight) {
  auto cast = weight.getDefiningOp<linalg::GenericOp>();
  if (!cast || cast.getNumDpsInputs() != 1 || cast.getNumReductionLoops() != 0 ||
      !llvm::all_of(cast.getIndexingMapsArray(), [](AffineMap map) { return map.isIdentity(); }))
    return weight;
  auto rounding = cast.getBody()->getTerminator()->getOperand(0).getDefiningOp<arith::TruncFOp>();
  return rounding && rounding.getIn() == cast.getBody()->getArgument(0) ? cast.getDpsInputOperand(0)->get() : weight;
}

void fold(ConvolutionOp op, unsigned num_symbols) {
  if (op.getKind() != "forward" || !op->hasAttr(in_library) || !op->hasOneUse() || !op.getPostOps().empty() ||
      !isOfParameters(op.getWeight()) || (op.getBias() && !isOfParameters(op.getBias())))
    return;
  auto next = dyn_cast<linalg::GenericOp>(*op->user_begin());
  if (!next)
    return;
  Value scale, shift;
  {
    ChannelAffine affine(op.getResult(), next);
    if (!affine.found() || affine.residual() || !llvm::all_of(affine.channelInputs(), isOfParameters))
      return;
    if (affine.scale())
      scale = affine.vector(affine.scale());
    if (affine.shift())
      shift = affine.vector(affine.shift());
  }
  OpBuilder builder(next);
  TensorBuilder build(next.getLoc(), builder, num_symbols);
  const RankedTensorType weight_type = op.getWeight().getType();
  const Type element = weight_type.getElementType(), wide = builder.getF32Type();
  if (scale) {
    const AffineMap channel = build.map(weight_type.getRank(), {build.dim(0)});
    const Value weight = build.loop({unrounded(op.getWeight()), Operand(scale, channel)}, weight_type,
                                    [&](Body&, ArrayRef<Scalar> in) { return (in[0].to(wide) * in[1]).to(element); });
    op.getWeightMutable().assign(weight);
  }
  // Of nothing but a scale the bias is zero: the call has code for relu behind one.
  SmallVector<Operand> terms;
  const Value before = op.getBias();
  for (Value term : {before, before ? scale : Value(), shift})
    if (term)
      terms.emplace_back(term);
  const RankedTensorType bias_type = build.type({build.constant(weight_type.getDimSize(0))}, element);
  if (terms.empty()) {
    op.getBiasMutable().assign(build.full(bias_type, 0));
  } else {
    op.getBiasMutable().assign(build.loop(terms, bias_type, [&](Body&, ArrayRef<Scalar> in) {
      Scalar sum = in[0].to(wide);
      if (before && scale)
        sum = sum * in[1];
      return (before && shift ? sum + in.back() : sum).to(element);
    }));
  }
  op->moveBefore(next);
  op->setLoc(FusedLoc::get(op.getContext(), {op.getLoc(), next.getLoc()}));
  next.getResult(0).replaceAllUsesWith(op.getResult());
  next.erase();
}

class FoldBatchNorms : public impl::FoldBatchNormsBase<FoldBatchNorms> {
  void runOnOperation() override {
    func::FuncOp graph = getOperation();
    if (!graph->hasAttr(kept_weights))
      return;
    Block& block = graph.getBody().front();
    for (ConvolutionOp op : llvm::make_early_inc_range(block.getOps<ConvolutionOp>()))
      fold(op, graphSymbolsOf(graph));
    eraseDead(block);
  }
};

}  // namespace
}  // namespace zefuse
