// Sorting and what follows from it: zefuse.sort is stable, so that what eager leaves open (the order of equal elements)
// has one answer.
#include "compiler/import/op_table.h"

using namespace mlir;

namespace zefuse {
namespace {

Values sorted(Op& op, int64_t dim, AffineExpr count, bool descending) {
  Value self = op.tensor("self");
  constexpr int64_t longest = int64_t(1) << 31;
  if (auto size = dyn_cast<AffineConstantExpr>(shapeOf(typeOf(self))[dim]); size && size.getValue() >= longest)
    op.refuse("a row of " + Twine(size.getValue()) + " elements is not lowered");
  if (isConstant(numElements(typeOf(self)), 0))
    return {op.build.full(op.resultType(), 0), op.build.full(op.resultType(1), 0)};
  auto [values, positions] = op.build.sort(self, dim, count, descending);
  return {values, positions};
}

Values emitSort(Op& op) {
  Value self = op.tensor("self");
  if (rankOf(self) == 0)
    return {self, op.build.full(op.resultType(1), 0)};
  int64_t dim = op.dim("dim", rankOf(self));
  return sorted(op, dim, shapeOf(typeOf(self))[dim], op.boolean("descending"));
}

// Its results are in order, whether they need be or not.
Values emitTopk(Op& op) {
  Value self = op.tensor("self");
  if (rankOf(self) == 0) {
    if (!isConstant(op.size("k"), 1))
      op.refuse("argument k of a 0-d tensor is not 1");
    return {self, op.build.full(op.resultType(1), 0)};
  }
  return sorted(op, op.dim("dim", rankOf(self)), op.size("k"), op.boolean("largest"));
}

}  // namespace

void registerSorts(OpTable& table) {
  table.add("aten.sort.default", emitSort);
  table.add("aten.sort.stable", emitSort);
  table.add("aten.topk.default", emitTopk);
}

}  // namespace zefuse
