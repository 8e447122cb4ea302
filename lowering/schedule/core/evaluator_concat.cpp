// Tensors laid one after the other: of which piece an element is.
#include "lowering/dialect/shape.h"
#include "lowering/schedule/core/evaluator.h"
#include "lowering/schedule/core/scalar_ops.h"
#include "lowering/schedule/core/short_pieces.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;

namespace zefuse {

bool Evaluator::isEmitted(Node node) const {
  return llvm::any_of(scopes_, [&](const Scope& scope) { return scope.values.contains({node.value, node.at}); });
}

Evaluator::Placed Evaluator::emitConcat(tensor::ConcatOp op, AffineMap at) {
  SmallVector<Piece> pieces =
      llvm::filter_to_vector(piecesOf(op), [](const Piece& piece) { return constantOf(piece.size) != 0; });
  if (pieces.empty())
    return nothing(op, registerType(op.getResultType().getElementType()));
  // What part of a tensor is written over (slice_scatter) is read at this same index in every branch: once, before
  // them. In each, the code of several such writes, one into the result of the other, would double with every one.
  for (const Piece& piece : pieces)
    if (Node whole = behindViews(space_, graph_, {piece.value, pieceIndices(space_, op, piece, at)});
        whole.at == at && shapeOf(cast<RankedTensorType>(whole.value.getType())) == shapeOf(op.getResultType())) {
      emit(whole);
      if (failed())
        return {};
    }
  const unsigned depth = scopes_.size() - 1;
  const AffineExpr along = at.getResult(op.getDim());
  const Value value = lanesShareAPiece(along, pieces)  ? pieceOfAllLanes(op, pieces, at)
                      : mostShareAPiece(along, pieces) ? pieceOfMostLanes(op, pieces, at)
                                                       : pieceOfEachLane(op, pieces, at);
  return failed() ? Placed() : Placed{value, depth};
}

bool Evaluator::lanesShareAPiece(AffineExpr along, ArrayRef<Piece> pieces) {
  const AffineExpr step = dependsOnLanes(along) ? laneStep(along) : space_.constant(0);
  if (step && constantOf(step) == 0)
    return true;
  // Lanes stopped at a limit have no step, and are of the piece of those before it.
  return lanes_.aligned &&
         llvm::none_of(space_.linear(along).terms,
                       [&](const LinearForm::Term& term) {
                         return term.atom != space_.dim(lanes_.dim) && dependsOnLanes(term.atom);
                       }) &&
         vectorsAreOfOnePiece(space_, along, pieces, lanes_.dim, lanes_.count);
}

// A branch picks the piece, and loads in it keep their form.
Value Evaluator::pieceOfAllLanes(tensor::ConcatOp op, ArrayRef<Piece> pieces, AffineMap at) {
  Location loc = op.getLoc();
  const Type type = withLanes(registerType(op.getResultType().getElementType()), lanes_.count);
  Placed position = emitIndex(at.getResult(op.getDim()));
  if (failed())
    return {};
  auto from = [&](auto&& self, unsigned number) -> Value {
    auto piece = [&] { return evaluate({pieces[number].value, pieceIndices(space_, op, pieces[number], at)}); };
    toInnermost();
    if (number + 1 == pieces.size()) {
      Value value = piece();
      toInnermost();
      return value ? splat(builder_, value, lanes_.count) : Value();
    }
    Value bound = index(pieces[number + 1].offset);
    toInnermost();
    Value inside = arith::CmpIOp::create(builder_, loc, arith::CmpIPredicate::slt, position.value, bound);
    return branch(loc, inside, type, piece, [&] { return self(self, number + 1); });
  };
  return from(from, 0);
}

// Lanes side by side, most of whose vectors lie in a piece although some lie across the border of two.
bool Evaluator::mostShareAPiece(AffineExpr along, ArrayRef<Piece> pieces) {
  constexpr size_t most_pieces = 8;  // each is written twice
  return pieces.size() <= most_pieces && dependsOnLanes(along) && constantOf(laneStep(along)) == 1 &&
         llvm::all_of(pieces, [&](const Piece& piece) {
           auto size = constantOf(piece.size);
           return size && constantOf(piece.offset) && *size >= int64_t(whole_piece) * lanes_.count;
         });
}

// As pieceOfAllLanes, and where lanes lie in two pieces as pieceOfEachLane.
Value Evaluator::pieceOfMostLanes(tensor::ConcatOp op, ArrayRef<Piece> pieces, AffineMap at) {
  Location loc = op.getLoc();
  const Type type = withLanes(registerType(op.getResultType().getElementType()), lanes_.count);
  Placed position = emitIndex(at.getResult(op.getDim()));
  if (failed())
    return {};
  auto from = [&](auto&& self, unsigned number) -> Value {
    if (number == pieces.size()) {
      Value value = pieceOfEachLane(op, pieces, at);
      toInnermost();
      return value;
    }
    auto piece = [&] {
      Value value = evaluate({pieces[number].value, pieceIndices(space_, op, pieces[number], at)});
      toInnermost();
      return value ? splat(builder_, value, lanes_.count) : Value();
    };
    const int64_t begin = *constantOf(pieces[number].offset), end = begin + *constantOf(pieces[number].size);
    toInnermost();
    // Below zero for what lies before the piece: as an unsigned number beyond all.
    Value within = arith::SubIOp::create(builder_, loc, position.value, constantIndex(builder_, loc, begin));
    Value bound = constantIndex(builder_, loc, end - begin - lanes_.count + 1);
    Value inside = arith::CmpIOp::create(builder_, loc, arith::CmpIPredicate::ult, within, bound);
    return branch(loc, inside, type, piece, [&] { return self(self, number + 1); });
  };
  return from(from, 0);
}

// Each piece at indices clamped into it, and of each lane the one that it is of.
Value Evaluator::pieceOfEachLane(tensor::ConcatOp op, ArrayRef<Piece> pieces, AffineMap at) {
  Location loc = op.getLoc();
  const Type element = registerType(op.getResultType().getElementType());
  const unsigned lanes = lanes_.count;
  Placed position = emitLaneIndex(at.getResult(op.getDim()));
  if (failed())
    return {};
  Value result;
  auto select = [&](Value value, Value offset, Value size) {
    toInnermost();
    value = splat(builder_, value, lanes);
    if (!result) {
      result = value;
      return;
    }
    Value end = arith::AddIOp::create(builder_, loc, splat(builder_, offset, lanes), splat(builder_, size, lanes));
    Value mine = arith::CmpIOp::create(builder_, loc, arith::CmpIPredicate::slt, position.value, end);
    result = arith::SelectOp::create(builder_, loc, mine, value, result);
  };
  for (const Piece& piece : llvm::reverse(pieces)) {
    Value offset = index(piece.offset), size = index(piece.size);
    toInnermost();
    Value zero = constantIndex(builder_, loc, 0, lanes);
    Value shifted = arith::SubIOp::create(builder_, loc, position.value, splat(builder_, offset, lanes));
    Value last =
        arith::SubIOp::create(builder_, loc, splat(builder_, size, lanes), constantIndex(builder_, loc, 1, lanes));
    Value low = arith::MaxSIOp::create(builder_, loc, shifted, zero);
    Value clamped = arith::MinSIOp::create(builder_, loc, low, last);
    AffineMap exact = pieceIndices(space_, op, piece, at);
    if (Node whole = behindViews(space_, graph_, {piece.value, exact});
        isEmitted(whole)) {  // so it exists in all lanes
      select(evaluate(whole), offset, size);
      continue;
    }
    Dims dims;
    dims.set(lanes_.dim);
    AffineExpr opaque = space_.opaque(piece.value, exact, dims);
    bound_opaques_[opaque] = clamped;
    SmallVector<AffineExpr> exprs(exact.getResults());
    exprs[op.getDim()] = opaque;
    auto read = [&] { return evaluate({piece.value, space_.indices(exprs)}); };
    auto nothing = [&] { return constantOfType(builder_, loc, builder_.getZeroAttr(element), lanes); };
    Value value;
    if (constantOf(piece.size))
      value = read();
    else if (Value some = allPositive(loc, piece.size))  // it may be empty: then nothing may be read
      value = branch(loc, some, withLanes(element, lanes), read, nothing);
    if (failed())
      return {};
    select(value, offset, size);
  }
  return result;
}

}  // namespace zefuse
