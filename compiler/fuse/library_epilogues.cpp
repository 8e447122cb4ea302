#include "compiler/dialect/Zefuse.h"
#include "compiler/dialect/shape.h"
#include "compiler/fuse/graph.h"
#include "compiler/fuse/passes.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"

using namespace mlir;

namespace zefuse {
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

/// matmul -> view that only regroups dimensions -> activation: the activation can move before the view.
void fuseActivation(linalg::GenericOp activation, StringRef name) {
  Value source = activation.getDpsInputOperand(0)->get();
  auto view = source.getDefiningOp<ViewOp>();
  auto matmul = (view ? view.getSource() : source).getDefiningOp<MatmulOp>();
  if (!matmul || !matmul->hasOneUse() || (view && !view->hasOneUse()))
    return;
  auto element = cast<RankedTensorType>(activation.getResult(0).getType()).getElementType();
  if (element != matmul.getType().getElementType())
    return;
  SmallVector<Attribute> post_ops(matmul.getPostOps().getValue());
  OpBuilder builder(activation);
  post_ops.push_back(builder.getStringAttr(name));
  matmul.setPostOpsAttr(builder.getArrayAttr(post_ops));
  matmul->setLoc(builder.getFusedLoc({matmul.getLoc(), activation.getLoc()}));
  activation.getResult(0).replaceAllUsesWith(source);
  activation.erase();
}

}  // namespace

LogicalResult fuseLibraryEpilogues(func::FuncOp graph) {
  SmallVector<linalg::GenericOp> activations;
  graph.walk([&](linalg::GenericOp op) {
    if (activationOf(op))
      activations.push_back(op);
  });
  for (linalg::GenericOp op : activations)
    fuseActivation(op, *activationOf(op));
  return success();
}

}  // namespace zefuse
