#include "compiler/import/elementwise.h"

using namespace mlir;

namespace zefuse {
namespace {

// The larger category (bool, integer, float) wins; within a category the higher-priority type does.
int category(Type type) { return !type ? -1 : isa<FloatType>(type) ? 2 : type.isInteger(1) ? 0 : 1; }
Type combineCategories(Type higher, Type lower) {
  if (category(lower) > category(higher))
    return lower;
  return higher;
}

// As `common` converts it, in the type to compute in.
Scalar loadNumber(Body& body, const fx::Argument& number, Type common, Type compute, bool round) {
  return common.isUnsignedInteger() || round ? loadNumber(body, number, common).to(compute)
                                             : loadNumber(body, number, compute);
}

}  // namespace

Scalar loadNumber(Body& body, const fx::Argument& number, Type type) {
  switch (number.kind) {
  case fx::Argument::Kind::formula: return bitcast(body.size(number.size), body.b.getF64Type()).to(type);
  case fx::Argument::Kind::real: return body.constant(type, number.real);
  case fx::Argument::Kind::size: return body.size(number.size).to(type);
  default: return constantScalar(body.b, type, number.integer);
  }
}

Type promote(ArrayRef<TensorOrNumber> operands, MLIRContext* context) {
  Type dimensioned, scalars, numbers;
  for (const TensorOrNumber& operand : operands) {
    if (!operand.tensor)
      numbers = fx::promoteTypes(numbers, operand.numberType(context));
    else if (rankOf(operand.tensor) == 0)
      scalars = fx::promoteTypes(scalars, elementOf(operand.tensor));
    else
      dimensioned = fx::promoteTypes(dimensioned, elementOf(operand.tensor));
  }
  return combineCategories(combineCategories(dimensioned, scalars), numbers);
}

Type floatType(Type type) { return isa<FloatType>(type) ? type : Float32Type::get(type.getContext()); }

Value elementwise(Op& op, ArrayRef<TensorOrNumber> operands, Type common, BodyFunction body, Numbers numbers) {
  Type compute = fx::computeType(common);
  SmallVector<Operand> tensors;
  for (const TensorOrNumber& operand : operands)
    if (operand.tensor)
      tensors.emplace_back(operand.tensor);
  RankedTensorType result = op.resultType();
  return op.build.loop(tensors, result, [&](Body& inside, ArrayRef<Scalar> elements) {
    SmallVector<Scalar> values;
    for (const TensorOrNumber& operand : operands) {
      const bool first = values.empty();
      if (operand.tensor) {
        const bool keeps_digits = numbers == Numbers::first_rounded && !first && rankOf(operand.tensor) == 0;
        values.push_back((keeps_digits ? elements.front() : elements.front().to(common)).to(compute));
        elements = elements.drop_front();
      } else {
        const bool round = numbers == Numbers::rounded || (numbers == Numbers::first_rounded && first);
        values.push_back(loadNumber(inside, operand.number, common, compute, round));
      }
    }
    return body(inside, values).to(result.getElementType());
  });
}

}  // namespace zefuse
