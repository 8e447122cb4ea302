#include "lowering/dialect/shape.h"
#include "lowering/schedule/core/evaluator.h"
#include "lowering/schedule/core/scalar_ops.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;

namespace zefuse {

// Whether an element lies inside is asked once for all lanes: then loads keep their form. Only a vector that crosses
// the border looks at each lane.
Evaluator::Placed Evaluator::emitPad(PadOp op, AffineMap at) {
  Location loc = op.getLoc();
  auto sizes = shapeOf(op.getSource().getType());
  AffineMap exact = paddedIndices(space_, op, at);
  SmallVector<unsigned> whole, split;  // padded dims on which all lanes agree, and the others
  bool known_steps = true;
  for (unsigned dim : paddedDims(op)) {
    AffineExpr index = exact.getResult(dim);
    AffineExpr step = dependsOnLanes(index) ? laneStep(index) : space_.constant(0);
    bool uniform = step && constantOf(step) == 0;
    (uniform ? whole : split).push_back(dim);
    known_steps &= step && constantOf(step) && *constantOf(step) >= 0;
  }
  unsigned lanes = lanes_.count;
  Type element = registerType(op.getType().getElementType()), type = withLanes(element, lanes);

  // Negative indices are huge when unsigned.
  auto below = [&](Value index, Value size) -> Value {
    return arith::CmpIOp::create(builder_, loc, arith::CmpIPredicate::ult, index, size);
  };
  auto all = [&](ArrayRef<unsigned> dims, bool last_lane) {
    Value inside;
    for (unsigned dim : dims) {
      Value first = index(exact.getResult(dim)), size = index(sizes[dim]);
      if (failed())
        return Value();
      toInnermost();
      Value mine = below(first, size);
      if (last_lane) {
        Value reach = constantIndex(builder_, loc, (lanes - 1) * *constantOf(laneStep(exact.getResult(dim))));
        Value last = below(arith::AddIOp::create(builder_, loc, first, reach), size);
        mine = arith::AndIOp::create(builder_, loc, mine, last);
      }
      inside = inside ? arith::AndIOp::create(builder_, loc, inside, mine).getResult() : mine;
    }
    return inside;
  };
  auto outside = [&] {
    toInnermost();
    return constantOfType(builder_, loc, cast<TypedAttr>(op.getValue()), lanes);
  };
  auto straight = [&] { return evaluate({op.getSource(), exact}); };
  auto laneByLane = [&]() -> Value {
    SmallVector<AffineExpr> exprs(exact.getResults());
    Value inside;
    for (unsigned dim : split) {
      Placed position = emitLaneIndex(exact.getResult(dim));
      Value size = index(sizes[dim]);
      if (failed())
        return {};
      toInnermost();
      Value index = splat(builder_, position.value, lanes), limit = splat(builder_, size, lanes);
      Value mine = below(index, limit);
      inside = inside ? arith::AndIOp::create(builder_, loc, inside, mine).getResult() : mine;
      Value safe = arith::SelectOp::create(builder_, loc, mine, index, constantIndex(builder_, loc, 0, lanes));
      Dims dims;
      dims.set(lanes_.dim);
      AffineExpr opaque =
          space_.opaque(op.getResult(), space_.indices({exact.getResult(dim), space_.constant(dim)}), dims);
      bound_opaques_[opaque] = safe;
      exprs[dim] = opaque;
    }
    Value value = evaluate({op.getSource(), space_.indices(exprs)});
    if (!value)
      return {};
    toInnermost();
    return arith::SelectOp::create(builder_, loc, inside, splat(builder_, value, lanes),
                                   constantOfType(builder_, loc, cast<TypedAttr>(op.getValue()), lanes));
  };
  // Index 0 is no safe place in an empty source.
  auto readable = [&](llvm::function_ref<Value()> read) -> Value {
    SmallVector<AffineExpr> unsure;
    for (unsigned dim : split)
      if (!constantOf(sizes[dim]))
        unsure.push_back(sizes[dim]);
    if (unsure.empty())
      return read();
    Value some = allPositive(loc, unsure);
    return some ? branch(loc, some, type, read, outside) : Value();
  };
  auto crossing = [&] { return readable(laneByLane); };
  auto laned = [&]() -> Value {
    if (split.empty())
      return straight();
    if (!known_steps)
      return crossing();
    Value inside = all(split, true);
    return inside ? branch(loc, inside, type, straight, crossing) : Value();
  };

  if (llvm::is_contained(op.getSource().getType().getShape(), 0))
    return {outside(), unsigned(scopes_.size() - 1)};
  Value value;
  if (whole.empty()) {
    value = laned();
  } else {
    Value inside = all(whole, false);
    value = inside ? branch(loc, inside, type, laned, outside) : Value();
  }
  if (failed())
    return {};
  return {value, unsigned(scopes_.size() - 1)};
}

}  // namespace zefuse
