// Running sums, products and extremes: zefuse.scan, in the type eager accumulates in (f64 for f32, f32 for f16 and
// bf16; on a device without double precision f32 for f32 too, as eager does there).
#include <cmath>

#include "compiler/import/op_table.h"

using namespace mlir;

namespace zefuse {
namespace {

// `self` converted to the result's dtype first, as eager does for its dtype argument and for integers.
Values emitScan(Op& op, double initial, TensorBuilder::Combine combine) {
  Value self = op.build.convert(op.tensor("self"), op.element());
  if (rankOf(self) == 0)
    return {self};
  auto accumulated = [&](Type type) -> Values {
    Value scanned = op.build.scan(op.build.convert(self, type), op.dim("dim", rankOf(self)), initial, combine);
    return {op.build.convert(scanned, op.element())};
  };
  if (!op.element().isF32())
    return accumulated(fx::computeType(op.element()));
  return op.alternatives({[&] { return accumulated(op.build.b.getF64Type()); },  //
                          [&] { return accumulated(op.element()); }});
}

Values emitLogSum(Op& op) {
  if (!isa<FloatType>(op.element()))
    op.refuse("a result of " + fx::dtypeName(op.element()) + " is not lowered");
  // log(exp(a) + exp(b)); of two equal infinities the one itself.
  return emitScan(op, -HUGE_VAL, [](Scalar sum, Scalar x) {
    Scalar low = minimum(sum, x), high = maximum(sum, x);
    Scalar finite = abs(low) < HUGE_VAL;
    return select((low != high) | finite, log1p(exp(low - high)) + high, x);
  });
}

// Values and where each was found: the last of equal ones, and the last NaN.
Values emitRunningExtreme(Op& op, bool largest) {
  TensorBuilder& build = op.build;
  Value self = op.tensor("self");
  if (rankOf(self) == 0)
    return {self, build.full(op.resultType(1), 0)};
  int64_t dim = op.dim("dim", rankOf(self));
  Value values = build.convert(self, fx::computeType(elementOf(self)));
  if (elementOf(values).isInteger(1))
    op.refuse("a running extreme of bool is not lowered");
  auto combine = [&](Scalar before, Scalar x) { return largest ? maximum(before, x) : minimum(before, x); };
  Value extreme = build.scan(values, dim, largest ? -HUGE_VAL : HUGE_VAL, combine);
  Values results = {build.convert(extreme, op.element())};
  if (op.used(1)) {
    Type i64 = build.b.getI64Type();
    Value found = build.loop({values, extreme}, withElement(typeOf(values), i64), [&](Body& body, ArrayRef<Scalar> in) {
      Scalar mine = in[0] == in[1];
      if (in[0].isFloat())
        mine = mine | isNan(in[0]);
      return select(mine, body.position(dim), constantScalar(body.b, i64, int64_t(0)));
    });
    results.push_back(build.scan(found, dim, 0, [](Scalar before, Scalar x) { return maximum(before, x); }));
  }
  return results;
}

}  // namespace

void registerScans(OpTable& table) {
  table.add("aten.cumsum.default", [](Op& op) { return emitScan(op, 0, [](Scalar a, Scalar b) { return a + b; }); });
  table.add("aten.cumprod.default", [](Op& op) { return emitScan(op, 1, [](Scalar a, Scalar b) { return a * b; }); });
  table.add("aten.logcumsumexp.default", emitLogSum);
  table.add("aten.cummax.default", [](Op& op) { return emitRunningExtreme(op, true); });
  table.add("aten.cummin.default", [](Op& op) { return emitRunningExtreme(op, false); });
}

}  // namespace zefuse
