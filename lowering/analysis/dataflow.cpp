#include "lowering/analysis/dataflow.h"

#include "lowering/analysis/product_form.h"
#include "lowering/dialect/shape.h"
#include "llvm/ADT/DenseSet.h"

using namespace mlir;

namespace zefuse {

bool isReduction(Operation* op) {
  auto generic = dyn_cast_or_null<linalg::GenericOp>(op);
  return generic && generic.getNumReductionLoops() > 0;
}

Combiner combinerOf(linalg::GenericOp reduction) {
  Block* body = reduction.getBody();
  Operation* op = body->getTerminator()->getOperand(0).getDefiningOp();
  if (!op || op->getBlock() != body || op->getNumOperands() != 2)
    return {};
  Value accumulator = body->getArgument(body->getNumArguments() - 1);
  if (!accumulator.hasOneUse())
    return {};
  if (op->getOperand(0) == accumulator)
    return {op, op->getOperand(1)};
  if (op->getOperand(1) == accumulator)
    return {op, op->getOperand(0)};
  return {};
}

Value initOf(linalg::GenericOp reduction) {
  auto fill = reduction.getDpsInits()[0].getDefiningOp<linalg::FillOp>();
  return fill ? fill.getInputs()[0] : Value();
}

// The dims that a scalar of a linalg body depends on: through what it loads and iterates.
static Dims dimsOfScalar(IndexSpace& space, Value scalar, AffineMap at) {
  Dims dims;
  llvm::DenseSet<std::pair<Value, AffineMap>> seen;
  SmallVector<Node> stack{{scalar, at}};
  while (!stack.empty()) {
    Node node = stack.pop_back_val();
    if (!seen.insert({node.value, node.at}).second)
      continue;
    if (isa<RankedTensorType>(node.value.getType()))
      dims |= space.dimsOf(node.at);
    else if (auto iteration = node.value.getDefiningOp<linalg::IndexOp>())
      dims |= space.dimsOf(node.at.getResult(iteration.getDim()));
    else
      forEachOperand(space, node, [&](Node operand) { stack.push_back(operand); });
  }
  return dims;
}

AffineExpr indexExpr(IndexSpace& space, Value index, AffineMap at) {
  Operation* op = index.getDefiningOp();
  auto constantValue = [](Value value) -> std::optional<int64_t> {
    IntegerAttr attribute;
    if (matchPattern(value, m_Constant(&attribute)))
      return attribute.getValue().getSExtValue();
    return std::nullopt;
  };
  if (auto value = constantValue(index))
    return space.constant(*value);
  if (auto iteration = dyn_cast_or_null<linalg::IndexOp>(op))
    return at.getResult(iteration.getDim());
  if (auto size = dyn_cast_or_null<SizeOp>(op))
    return size.getMap().getResult(0);
  // Narrowing casts may wrap: only casts between index and i64 are the identity.
  if (auto cast = dyn_cast_or_null<arith::IndexCastOp>(op)) {
    Type other = cast.getIn().getType().isIndex() ? cast.getType() : cast.getIn().getType();
    if (other.isInteger(64) && cast.getIn().getDefiningOp() &&
        isa<linalg::IndexOp, SizeOp, arith::ConstantOp, arith::AddIOp, arith::SubIOp, arith::MulIOp,
            arith::IndexCastOp>(cast.getIn().getDefiningOp()))
      return indexExpr(space, cast.getIn(), at);
  }
  if (auto add = dyn_cast_or_null<arith::AddIOp>(op); add && (add.getType().isIndex() || add.getType().isInteger(64)))
    return indexExpr(space, add.getLhs(), at) + indexExpr(space, add.getRhs(), at);
  if (auto sub = dyn_cast_or_null<arith::SubIOp>(op); sub && (sub.getType().isIndex() || sub.getType().isInteger(64)))
    return indexExpr(space, sub.getLhs(), at) - indexExpr(space, sub.getRhs(), at);
  if (auto mul = dyn_cast_or_null<arith::MulIOp>(op); mul && (mul.getType().isIndex() || mul.getType().isInteger(64)))
    if (auto factor = constantValue(mul.getRhs()))
      return indexExpr(space, mul.getLhs(), at) * *factor;
  return space.opaque(index, at, dimsOfScalar(space, index, at));
}

AffineMap extractIndices(IndexSpace& space, tensor::ExtractOp op, AffineMap at) {
  SmallVector<AffineExpr> exprs;
  for (Value index : op.getIndices())
    exprs.push_back(indexExpr(space, index, at));
  return space.indices(exprs);
}

SmallVector<Piece> piecesOf(tensor::ConcatOp op) {
  SmallVector<Piece> pieces;
  AffineExpr offset = getAffineConstantExpr(0, op.getContext());
  for (Value input : op.getInputs()) {
    AffineExpr size = shapeOf(cast<RankedTensorType>(input.getType()))[op.getDim()];
    pieces.push_back({input, offset, size});
    offset = offset + size;
  }
  return pieces;
}

AffineMap pieceIndices(IndexSpace& space, tensor::ConcatOp op, const Piece& piece, AffineMap at) {
  SmallVector<AffineExpr> exprs(at.getResults());
  exprs[op.getDim()] = exprs[op.getDim()] - piece.offset;
  return space.indices(exprs);
}

SmallVector<unsigned> paddedDims(PadOp op) {
  SmallVector<unsigned> dims;
  auto from = shapeOf(op.getSource().getType()), to = shapeOf(op.getType());
  for (unsigned dim = 0; dim < from.size(); ++dim)
    if (op.getLow()[dim] != 0 || from[dim] != to[dim])
      dims.push_back(dim);
  return dims;
}

AffineMap paddedIndices(IndexSpace& space, PadOp op, AffineMap at) {
  SmallVector<AffineExpr> exprs;
  for (auto [expr, low] : llvm::zip(at.getResults(), op.getLow()))
    exprs.push_back(expr - low);
  return space.indices(exprs);
}

Node bodyArgument(IndexSpace& space, BlockArgument argument, AffineMap at) {
  auto generic = cast<linalg::GenericOp>(argument.getOwner()->getParentOp());
  OpOperand& operand = generic->getOpOperand(argument.getArgNumber());
  return {operand.get(), space.apply(generic.getMatchingIndexingMap(&operand), at)};
}

bool forEachOperand(IndexSpace& space, Node node, llvm::function_ref<void(Node)> use) {
  if (auto argument = dyn_cast<BlockArgument>(node.value)) {
    if (isa<linalg::GenericOp>(argument.getOwner()->getParentOp()))
      use(bodyArgument(space, argument, node.at));
    return true;
  }
  Operation* op = node.value.getDefiningOp();
  if (isReduction(op) || isProduct(op) || isa<linalg::IndexOp, SizeOp>(op) || op->hasTrait<OpTrait::ConstantLike>())
    return true;
  if (auto generic = dyn_cast<linalg::GenericOp>(op)) {
    use({generic.getBody()->getTerminator()->getOperand(0), node.at});
    return true;
  }
  if (auto fill = dyn_cast<linalg::FillOp>(op)) {
    use({fill.getInputs()[0], space.indices({})});
    return true;
  }
  if (auto view = dyn_cast<ViewOp>(op)) {
    use({view.getSource(), space.apply(view.getMap(), node.at)});
    return true;
  }
  if (auto concat = dyn_cast<tensor::ConcatOp>(op)) {
    for (const Piece& piece : piecesOf(concat))
      use({piece.value, pieceIndices(space, concat, piece, node.at)});
    return true;
  }
  if (auto pad = dyn_cast<PadOp>(op)) {
    use({pad.getSource(), paddedIndices(space, pad, node.at)});
    return true;
  }
  if (auto scan = dyn_cast<ScanOp>(op)) {
    use({scan.getInput(), node.at});
    return true;
  }
  if (auto extract = dyn_cast<tensor::ExtractOp>(op)) {
    AffineMap at = extractIndices(space, extract, node.at);
    for (AffineExpr expr : at.getResults())
      expr.walk([&](AffineExpr part) {
        if (space.isOpaque(part))
          use({space.opaqueOf(part).value, space.opaqueOf(part).at});
      });
    use({extract.getTensor(), at});
    return true;
  }
  if (isa<RankedTensorType>(node.value.getType()) || op->getNumRegions() != 0)
    return false;
  bool in_body = isa<linalg::GenericOp>(op->getParentOp());
  for (Value operand : op->getOperands()) {
    Operation* definition = operand.getDefiningOp();
    bool operand_in_body =
        in_body && (definition ? definition->getBlock() : cast<BlockArgument>(operand).getOwner()) == op->getBlock();
    use({operand, operand_in_body ? node.at : space.indices({})});
  }
  return true;
}

}  // namespace zefuse
