// Tensors made from numbers. Uninitialised ones (empty) are zeros, which costs nothing once fused.
#include "compiler/import/elementwise.h"
#include "compiler/import/op_table.h"

using namespace mlir;

namespace zefuse {
namespace {

Values emitNumber(Op& op, StringRef name) {
  return {elementwise(op, {op.operand(name)}, op.element(), [](Body&, ArrayRef<Scalar> in) { return in[0]; })};
}

Values emitConstant(Op& op, double value) { return {op.build.full(op.resultType(), value)}; }

bool isWhole(const fx::Argument& argument) {
  return argument.kind == fx::Argument::Kind::integer || argument.kind == fx::Argument::Kind::size ||
         (argument.kind == fx::Argument::Kind::real &&
          argument.real == static_cast<double>(static_cast<int64_t>(argument.real)));
}

// start + i * step, exactly where both are whole numbers; in a tensor of whole numbers eager cuts both to such first.
Values emitArange(Op& op, bool has_start, bool has_step) {
  TensorOrNumber start, step;
  start.number.kind = step.number.kind = fx::Argument::Kind::integer;
  step.number.integer = 1;
  if (has_start)
    start = op.operand("start");
  if (has_step)
    step = op.operand("step");
  Type element = op.element();
  Type compute = isa<IntegerType>(element) || (isWhole(start.number) && isWhole(step.number))
                     ? Type(op.build.b.getI64Type())
                     : (element.isF64() ? element : Type(op.build.b.getF32Type()));
  return {op.build.loop({}, op.resultType(), [&](Body& body, ArrayRef<Scalar>) {
    Scalar position = body.position(0).to(compute);
    return (loadNumber(body, start.number, compute) + position * loadNumber(body, step.number, compute)).to(element);
  })};
}

// The diagonal `offset` of the last two dimensions divides what is kept from zeros.
Values emitTriangle(Op& op, bool upper) {
  Value self = op.tensor("self");
  double offset = static_cast<double>(op.integer("diagonal"));
  int64_t rank = rankOf(self);
  return {op.build.loop({self}, op.resultType(), [&](Body& body, ArrayRef<Scalar> in) {
    Scalar distance = body.position(rank - 1) - body.position(rank - 2);
    return select(upper ? distance >= offset : distance <= offset, in[0], in[0].constant(0));
  })};
}

Values emitEye(Op& op) {
  Type element = op.element();
  return {op.build.loop({}, op.resultType(), [&](Body& body, ArrayRef<Scalar>) {
    return (body.position(0) == body.position(1)).to(element);
  })};
}

}  // namespace

void registerCreation(OpTable& table) {
  for (StringRef target : {"full.default", "full_like.default", "new_full.default"})
    table.add(("aten." + target).str(), [](Op& op) { return emitNumber(op, "fill_value"); });
  table.add("aten.scalar_tensor.default", [](Op& op) { return emitNumber(op, "s"); });
  for (StringRef target : {"fill.Scalar", "fill.Tensor"})
    table.add(("aten." + target).str(), [](Op& op) { return emitNumber(op, "value"); });
  for (StringRef target :
       {"zeros.default", "zeros_like.default", "new_zeros.default", "empty.memory_format", "empty_like.default",
        "new_empty.default", "new_empty_strided.default", "empty_strided.default"})
    table.add(("aten." + target).str(), [](Op& op) { return emitConstant(op, 0); });
  table.add("aten.empty_permuted.default", [](Op& op) { return emitConstant(op, 0); });
  for (StringRef target : {"ones.default", "ones_like.default", "new_ones.default"})
    table.add(("aten." + target).str(), [](Op& op) { return emitConstant(op, 1); });
  table.add("aten.arange.default", [](Op& op) { return emitArange(op, false, false); });
  table.add("aten.arange.start", [](Op& op) { return emitArange(op, true, false); });
  table.add("aten.arange.start_step", [](Op& op) { return emitArange(op, true, true); });
  table.add("aten.triu.default", [](Op& op) { return emitTriangle(op, true); });
  table.add("aten.tril.default", [](Op& op) { return emitTriangle(op, false); });
  table.add("aten.eye.default", emitEye);
  table.add("aten.eye.m", emitEye);
}

}  // namespace zefuse
