#include "lowering/schedule/ordered/scatter_steps.h"

using namespace mlir;

namespace zefuse {

void ScatterSteps::fill() {
  if (Value value = e_.evaluate(form_.init()))
    e_.store(c_.outputs[0], offset(form_.init_at), value, element());
}

void ScatterSteps::update() {
  Value update = e_.evaluate(form_.update());
  if (!update)
    return;
  auto modify = [&] {
    e_.modify(c_.outputs[0], offset(form_.target), element(), [&](Value present) {
      return e_.emitBody(form_.op.getBody().front(), {present, splat(b_, update, lanesOf(present))});
    });
  };
  if (form_.in_place) {
    for (Value index : form_.op.getIndices())
      if (!e_.evaluate({index, form_.updates_at}))
        return;
    Value status = e_.status();
    if (!status)
      return modify();
    e_.toInnermost();
    Type word = b_.getI32Type();
    Value failed = LLVM::LoadOp::create(b_, loc_, word, status, 4);
    Value none = arith::ConstantOp::create(b_, loc_, b_.getI32IntegerAttr(0));
    e_.openIf(arith::CmpIOp::create(b_, loc_, arith::CmpIPredicate::eq, failed, none));
    modify();
    return e_.closeIf();
  }
  // A check that fails leaves index 0, and a result without elements has no place for that either.
  AffineExpr count = space_.simplify(numElements(cast<RankedTensorType>(form_.op.getType())));
  auto known = constantOf(count);
  if (known && *known != 0)
    return modify();
  for (Value index : form_.op.getIndices())
    if (!e_.evaluate({index, form_.updates_at}))
      return;
  if (known)
    return;
  Value elements = e_.index(count);
  e_.toInnermost();
  e_.openIf(arith::CmpIOp::create(b_, loc_, arith::CmpIPredicate::sgt, elements, constantIndex(b_, loc_, 0)));
  modify();
  e_.closeIf();
}

}  // namespace zefuse
