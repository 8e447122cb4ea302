#include "lowering/dialect/shape.h"
#include "lowering/schedule/core/evaluator.h"
#include "lowering/schedule/core/scalar_ops.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;

namespace zefuse {

// Whether an element lies inside is asked once for all lanes: then loads keep their form. Only a vector that crosses
// the border looks at each lane.
class Evaluator::PadEmitter {
public:
  PadEmitter(Evaluator& evaluator, PadOp op, AffineMap at)
      : e_(evaluator), op_(op), loc_(op.getLoc()), sizes_(shapeOf(op.getSource().getType())),
        exact_(paddedIndices(e_.space_, op, at)), lanes_(e_.lanes_.count),
        type_(withLanes(registerType(op.getType().getElementType()), lanes_)) {
    for (unsigned dim : paddedDims(op)) {
      AffineExpr index = exact_.getResult(dim);
      AffineExpr step = e_.dependsOnLanes(index) ? e_.laneStep(index) : e_.space_.constant(0);
      const auto known = step ? constantOf(step) : std::nullopt;
      (known == 0 ? whole_ : split_).push_back(dim);
      known_steps_ &= known && *known >= 0;
    }
  }

  Value emit() {
    if (llvm::is_contained(op_.getSource().getType().getShape(), 0))
      return outside();
    auto at_lanes = [&] { return atLanes(); };
    if (whole_.empty())
      return atLanes();
    Value inside = isInside(whole_, false);
    return inside ? e_.branch(loc_, inside, type_, at_lanes, [&] { return outside(); }) : Value();
  }

private:
  // The element, or the vector, where all dims of `whole_` are inside.
  Value atLanes() {
    if (split_.empty())
      return straight();
    if (!known_steps_)
      return crossing();
    Value inside = isInside(split_, true);
    return inside ? e_.branch(loc_, inside, type_, [&] { return straight(); }, [&] { return crossing(); }) : Value();
  }

  Value straight() { return e_.evaluate({op_.getSource(), exact_}); }

  Value outside() {
    e_.toInnermost();
    return constantOfType(e_.builder_, loc_, cast<TypedAttr>(op_.getValue()), lanes_);
  }

  // Lane by lane. Index 0 is no safe place in an empty source.
  Value crossing() {
    SmallVector<AffineExpr> unsure;
    for (unsigned dim : split_)
      if (!constantOf(sizes_[dim]))
        unsure.push_back(sizes_[dim]);
    if (unsure.empty())
      return laneByLane();
    Value some = e_.allPositive(loc_, unsure);
    return some ? e_.branch(loc_, some, type_, [&] { return laneByLane(); }, [&] { return outside(); }) : Value();
  }

  Value laneByLane() {
    SmallVector<AffineExpr> exprs(exact_.getResults());
    Value inside;
    for (unsigned dim : split_) {
      Placed position = e_.emitLaneIndex(exact_.getResult(dim));
      Value size = e_.index(sizes_[dim]);
      if (e_.failed())
        return {};
      e_.toInnermost();
      Value index = splat(e_.builder_, position.value, lanes_), limit = splat(e_.builder_, size, lanes_);
      Value mine = below(index, limit);
      inside = both(inside, mine);
      Value safe = arith::SelectOp::create(e_.builder_, loc_, mine, index, constantIndex(e_.builder_, loc_, 0, lanes_));
      Dims dims;
      dims.set(e_.lanes_.dim);
      AffineExpr opaque =
          e_.space_.opaque(op_.getResult(), e_.space_.indices({exact_.getResult(dim), e_.space_.constant(dim)}), dims);
      e_.bound_opaques_[opaque] = safe;
      exprs[dim] = opaque;
    }
    Value value = e_.evaluate({op_.getSource(), e_.space_.indices(exprs)});
    if (!value)
      return {};
    e_.toInnermost();
    return arith::SelectOp::create(e_.builder_, loc_, inside, splat(e_.builder_, value, lanes_),
                                   constantOfType(e_.builder_, loc_, cast<TypedAttr>(op_.getValue()), lanes_));
  }

  // Whether the first lane lies inside in these dims, and the last.
  Value isInside(ArrayRef<unsigned> dims, bool last_lane) {
    Value inside;
    for (unsigned dim : dims) {
      Value first = e_.index(exact_.getResult(dim)), size = e_.index(sizes_[dim]);
      if (e_.failed())
        return Value();
      e_.toInnermost();
      Value mine = below(first, size);
      if (last_lane) {
        Value reach = constantIndex(e_.builder_, loc_, (lanes_ - 1) * *constantOf(e_.laneStep(exact_.getResult(dim))));
        mine = both(mine, below(arith::AddIOp::create(e_.builder_, loc_, first, reach), size));
      }
      inside = both(inside, mine);
    }
    return inside;
  }

  // Negative indices are huge when unsigned.
  Value below(Value index, Value size) {
    return arith::CmpIOp::create(e_.builder_, loc_, arith::CmpIPredicate::ult, index, size);
  }

  Value both(Value one, Value other) {
    return one ? arith::AndIOp::create(e_.builder_, loc_, one, other).getResult() : other;
  }

  Evaluator& e_;
  PadOp op_;
  Location loc_;
  SmallVector<AffineExpr> sizes_;
  AffineMap exact_;
  unsigned lanes_;
  Type type_;
  SmallVector<unsigned> whole_, split_;  // padded dims on which all lanes agree, and the others
  bool known_steps_ = true;              // of lanes, in the others
};

Evaluator::Placed Evaluator::emitPad(PadOp op, AffineMap at) {
  Value value = PadEmitter(*this, op, at).emit();
  if (failed())
    return {};
  return {value, unsigned(scopes_.size() - 1)};
}

}  // namespace zefuse
