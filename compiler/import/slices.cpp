#include "compiler/import/slices.h"

using namespace mlir;

namespace zefuse {

Value sumOfSlices(TensorBuilder& build, Value partial, Value bias, Type element) {
  partial.getDefiningOp()->setAttr(
      "zefuse.note", build.b.getStringAttr("k in " + Twine(typeOf(partial).getShape().front()) +
                                           " slices, which the next kernel adds: too few tiles otherwise"));
  Type compute = elementOf(partial);
  Value sum = build.reduce(partial, {0}, Combiner::add);
  if (bias)
    sum = build.loop({sum, bias}, typeOf(sum), [&](Body&, ArrayRef<Scalar> in) { return in[0] + in[1].to(compute); });
  return build.convert(sum, element);
}

}  // namespace zefuse
