// Element-wise arithmetic, comparison, logic and elementary functions. Activations have a file of their own.
#include <cmath>
#include <limits>

#include "compiler/import/elementwise.h"
#include "compiler/import/op_table.h"
#include "lowering/dialect/Zefuse.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;

namespace zefuse {
namespace {
using In = ArrayRef<Scalar>;
using Formula = Scalar (*)(In);

enum class Compute : uint8_t {
  promoted,           // in the promoted type
  compared,           // so, and numbers are rounded to it
  multiplied,         // so, but the second number is not
  floating,           // integers and bool become f32 first
  divided,            // so, and of numbers the first one is rounded alone
  floats_only_change  // integers and bool are returned as they are (ceil, floor, ...)
};

Numbers numbersOf(Compute compute) {
  switch (compute) {
  case Compute::compared: return Numbers::rounded;
  case Compute::multiplied:
  case Compute::divided: return Numbers::first_rounded;
  default: return Numbers::as_given;
  }
}

void addFormula(OpTable& table, StringRef target, std::vector<std::string> arguments, Compute compute,
                Formula formula) {
  table.add(target, [=](Op& op) -> Values {
    SmallVector<TensorOrNumber> operands;
    for (const std::string& name : arguments)
      operands.push_back(op.operand(name));
    Type common = promote(operands, op.build.b.getContext());
    if (compute == Compute::floating || compute == Compute::divided)
      common = floatType(common);
    if (compute == Compute::floats_only_change && !isa<FloatType>(common))
      return {op.build.convert(operands[0].tensor, op.element())};
    return {elementwise(op, operands, common, [&](Body&, In in) { return formula(in); }, numbersOf(compute))};
  });
}

void addUnary(OpTable& table, StringRef target, Compute compute, Formula formula) {
  addFormula(table, target, {"self"}, compute, formula);
}

// The overloads of a binary operator that differ in what may be a number.
void addBinary(OpTable& table, StringRef name, std::initializer_list<StringRef> overloads, Compute compute,
               Formula formula) {
  for (StringRef overload : overloads)
    addFormula(table, ("aten." + name + "." + overload).str(), {"self", "other"}, compute, formula);
}

bool isNumber(const fx::Argument& argument, double value) {
  if (argument.kind == fx::Argument::Kind::real)
    return argument.real == value;
  return argument.kind == fx::Argument::Kind::integer && static_cast<double>(argument.integer) == value;
}

// self + alpha * other and its reversed and negated forms.
Values emitAddSub(Op& op, bool subtract, bool reverse) {
  TensorOrNumber self = op.operand("self"), other = op.operand("other");
  if (reverse)
    std::swap(self, other);
  for (const TensorOrNumber& operand : {self, other})
    if (subtract && promote({operand}, op.build.b.getContext()).isInteger(1))
      op.refuse("subtraction of truth values is an error of eager's");
  SmallVector<TensorOrNumber> operands = {self, other};
  bool scaled = !isNumber(op.argument("alpha"), 1);
  if (scaled)
    operands.push_back(op.operand("alpha"));
  Type common = promote({self, other}, op.build.b.getContext());
  return {elementwise(
      op, operands, common,
      [&](Body&, In in) {
        if (scaled && in[1].isFloat())
          return multiplyAdd(in[1], subtract ? -in[2] : in[2], in[0]);
        Scalar right = scaled ? in[1] * in[2] : in[1];
        return subtract ? in[0] - right : in[0] + right;
      },
      Numbers::rounded)};
}

Scalar floorRemainder(Scalar a, Scalar b) {  // torch.remainder: the divisor's sign
  Scalar rest = fmod(a, b);
  return select(((rest != 0) & ((rest < 0) ^ (b < 0))), rest + b, rest);
}

// The type that eager rounds each step of a quotient to: that of 16 bits, unless the divisor is one number, for which
// it computes in f32.
Type roundedSteps(const TensorOrNumber& divisor, Type common) {
  const bool one = !divisor.tensor || isConstant(numElements(typeOf(divisor.tensor)), 1);
  return one || !(common.isF16() || common.isBF16()) ? Type() : common;
}

Scalar rounded(Scalar value, Type to) { return to ? value.to(to).to(value.type()) : value; }

// c10::div_floor_floating, so that rounding agrees with eager to the last bit. The remainder is exact.
Scalar floorDivide(Scalar a, Scalar b, Type step) {
  Scalar rest = fmod(a, b), exact = rounded(a / b, step);
  Scalar quotient = rounded(rounded(a - rest, step) / b, step);
  quotient = select((rest != 0) & ((b < 0) ^ (rest < 0)), rounded(quotient - 1, step), quotient);
  Scalar floored = floor(quotient);
  floored = select(rounded(quotient - floored, step) > 0.5, rounded(floored + 1, step), floored);
  Scalar whole = select(quotient != 0, floored, copysign(a.constant(0), exact));
  return select(b == 0, exact, whole);
}

// A tensor of divisors may hold zeros: eager raises, so the divisor goes through a check.
Scalar checkedDivisor(Body& body, Scalar divisor) {
  Scalar zero = divisor == 0;
  Scalar number =
      select(zero, constantScalar(body.b, body.b.getI64Type(), -1.0), constantScalar(body.b, body.b.getI64Type(), 0.0));
  Value none = body.checkedIndex(number, getAffineConstantExpr(1, body.b.getContext()), false, "runtime_error",
                                 "ZeroDivisionError");
  Scalar nothing(body.b, arith::IndexCastOp::create(body.b, body.b.getI64Type(), none));
  return select(zero, divisor.constant(1), divisor) + nothing.to(divisor.type());
}

// The least integer divided by -1 wraps (lowering/schedule/scalar_ops guards it).
Scalar integerQuotient(Body& body, Scalar a, Scalar by, bool floor) {
  if (floor)
    return {body.b, arith::FloorDivSIOp::create(body.b, a.value(), by.value())};
  return {body.b, arith::DivSIOp::create(body.b, a.value(), by.value())};
}

// Integers: body(dividend, divisor that is not zero).
Values divideIntegers(Op& op, const TensorOrNumber& self, const TensorOrNumber& other, Type common,
                      llvm::function_ref<Scalar(Body&, Scalar, Scalar)> formula) {
  const bool known = !other.tensor && other.number.kind != fx::Argument::Kind::size;
  // Eager divides by the number as an element: of eight bits 256 is 0.
  if (known && APInt(64, other.number.integer).trunc(common.getIntOrFloatBitWidth()).isZero())
    op.refuse("integer division by zero");
  return {elementwise(op, {self, other}, common, [&](Body& body, In in) {
    return formula(body, in[0], other.tensor ? checkedDivisor(body, in[1]) : in[1]);
  })};
}

Values emitDivMode(Op& op) {
  TensorOrNumber self = op.operand("self"), other = op.operand("other");
  bool exact = op.isNone("rounding_mode");
  StringRef mode = exact ? "" : op.text("rounding_mode");
  if (!exact && mode != "floor" && mode != "trunc")
    op.refuse("argument rounding_mode='" + mode + "' is not lowered");
  Type common = promote({self, other}, op.build.b.getContext());
  if (exact || isa<FloatType>(common)) {
    common = floatType(common);
    const Type step = roundedSteps(other, common);
    return {elementwise(
        op, {self, other}, common,
        [&](Body&, In in) {
          return exact             ? in[0] / in[1]
                 : mode == "floor" ? floorDivide(in[0], in[1], step)
                                   : trunc(rounded(in[0] / in[1], step));
        },
        Numbers::first_rounded)};
  }
  if (common.isInteger(1))
    op.refuse("division of bool is not lowered");
  return divideIntegers(op, self, other, common,
                        [&](Body& body, Scalar a, Scalar by) { return integerQuotient(body, a, by, mode == "floor"); });
}

Values emitFloorDivide(Op& op) {
  TensorOrNumber self = op.operand("self"), other = op.operand("other");
  Type common = promote({self, other}, op.build.b.getContext());
  if (isa<FloatType>(common)) {
    const Type step = roundedSteps(other, common);
    return {elementwise(
        op, {self, other}, common, [&](Body&, In in) { return floorDivide(in[0], in[1], step); },
        Numbers::first_rounded)};
  }
  if (common.isInteger(1))
    op.refuse("division of bool is not lowered");
  return divideIntegers(op, self, other, common,
                        [](Body& body, Scalar a, Scalar by) { return integerQuotient(body, a, by, true); });
}

Values emitRemainder(Op& op, bool floor) {
  TensorOrNumber self = op.operand("self"), other = op.operand("other");
  Type common = promote({self, other}, op.build.b.getContext());
  if (isa<FloatType>(common))
    return {elementwise(
        op, {self, other}, common,
        [&](Body&, In in) { return floor ? floorRemainder(in[0], in[1]) : fmod(in[0], in[1]); }, Numbers::rounded)};
  if (common.isInteger(1))
    op.refuse("a remainder of bool is not lowered");
  return divideIntegers(op, self, other, common,
                        [&](Body& body, Scalar a, Scalar by) { return a - integerQuotient(body, a, by, floor) * by; });
}

Scalar integerPower(Scalar base, int64_t exponent) {
  Scalar result = base.constant(1);
  bool started = false;
  for (; exponent > 0; exponent >>= 1) {
    if (exponent & 1) {
      result = started ? result * base : base;
      started = true;
    }
    if (exponent > 1)
      base = base * base;
  }
  return result;
}

// The exponents that eager computes without pow, in the same way.
Values emitPowNumber(Op& op) {
  TensorOrNumber self = op.operand("self"), exponent = op.operand("exponent");
  Type common = promote({self, exponent}, op.build.b.getContext());
  const fx::Argument& number = exponent.number;
  if (isa<FloatType>(common)) {
    return {elementwise(
        op, {self, exponent}, common,
        [&](Body&, In in) {
          Scalar x = in[0];
          if (isNumber(number, 0))
            return x.constant(1);
          if (isNumber(number, 1))
            return x;
          if (isNumber(number, 2))
            return x * x;
          if (isNumber(number, 3))
            return x * x * x;
          if (isNumber(number, 0.5) || isNumber(number, -0.5)) {
            // Eager takes the root itself, but of f16: there pow(-0, 0.5) is 0 and pow(-inf, 0.5) is inf, as in C.
            Scalar root = common.isF16() ? select(x == -HUGE_VAL, -x, sqrt(select(x == 0, x.constant(0), x))) : sqrt(x);
            return number.real < 0 ? 1.0 / root : root;
          }
          if (isNumber(number, -1))
            return 1.0 / x;
          if (isNumber(number, -2))
            return 1.0 / (x * x);
          return pow(x, in[1]);
        },
        Numbers::rounded)};
  }
  if (number.kind != fx::Argument::Kind::integer || number.integer < 0)
    op.refuse("an integer to a power that is not a constant of at least 0 is not lowered");
  return {elementwise(op, {self}, common, [&](Body&, In in) { return integerPower(in[0], number.integer); })};
}

Values emitPowTensor(Op& op) {
  TensorOrNumber self = op.operand("self"), exponent = op.operand("exponent");
  Type common = promote({self, exponent}, op.build.b.getContext());
  if (!isa<FloatType>(common))
    op.refuse("an integer to a power given as a tensor is not lowered");
  return {elementwise(op, {self, exponent}, common, [](Body&, In in) { return pow(in[0], in[1]); }, Numbers::rounded)};
}

Values emitClamp(Op& op) {
  SmallVector<TensorOrNumber> operands = {op.operand("self")};
  bool low = !op.isNone("min"), high = !op.isNone("max");
  if (low)
    operands.push_back(op.operand("min"));
  if (high)
    operands.push_back(op.operand("max"));
  Type common = promote(operands, op.build.b.getContext());
  return {elementwise(op, operands, common, [&](Body&, In in) {
    Scalar x = low ? atLeast(in[0], in[1]) : in[0];
    return high ? atMost(x, in.back()) : x;
  })};
}

Values emitClampBound(Op& op, StringRef bound, bool low) {
  TensorOrNumber self = op.operand("self"), limit = op.operand(bound);
  return {elementwise(op, {self, limit}, promote({self, limit}, op.build.b.getContext()),
                      [&](Body&, In in) { return low ? atLeast(in[0], in[1]) : atMost(in[0], in[1]); })};
}

// condition ? self : other, with `self` and `other` numbers or tensors.
Values emitWhere(Op& op) {
  Value condition = op.tensor("condition");
  TensorOrNumber self = op.operand("self"), other = op.operand("other");
  Type common = promote({self, other}, op.build.b.getContext());
  Value mask = op.build.convert(condition, op.build.b.getI1Type());
  // The condition is an operand too, but takes no part in promotion: it comes back as a comparison.
  SmallVector<Operand> tensors = {mask};
  if (self.tensor)
    tensors.emplace_back(op.build.convert(self.tensor, common));
  if (other.tensor)
    tensors.emplace_back(op.build.convert(other.tensor, common));
  RankedTensorType result = op.resultType();
  auto number = [&](Body& body, const TensorOrNumber& operand) { return loadNumber(body, operand.number, common); };
  return {op.build.loop(tensors, result, [&](Body& body, In in) {
    Scalar a = self.tensor ? in[1] : number(body, self);
    Scalar b = other.tensor ? in.back() : number(body, other);
    return select(in[0], a, b).to(result.getElementType());
  })};
}

Values emitMaskedFill(Op& op) {
  Value self = op.tensor("self"), mask = op.tensor("mask");
  TensorOrNumber value = op.operand("value");
  SmallVector<Operand> tensors = {mask, self};
  if (value.tensor)
    tensors.emplace_back(value.tensor);
  Type element = op.element();
  return {op.build.loop(tensors, op.resultType(), [&](Body& body, In in) {
    Scalar fill = value.tensor ? in[2].to(element) : loadNumber(body, value.number, element);
    return select(in[0], fill, in[1].to(element));
  })};
}

// The number takes no part in promotion: between integers its fraction is lost first, as in eager.
Values emitAddCmul(Op& op) {
  SmallVector<TensorOrNumber> operands = {op.operand("self"), op.operand("tensor1"), op.operand("tensor2")};
  Type common = promote(operands, op.build.b.getContext());
  operands.push_back(op.operand("value"));
  return {elementwise(op, operands, common, [](Body&, In in) { return multiplyAdd(in[3] * in[1], in[2], in[0]); })};
}

Values emitAddCDiv(Op& op) {
  SmallVector<TensorOrNumber> operands = {op.operand("self"), op.operand("tensor1"), op.operand("tensor2")};
  Type common = promote(operands, op.build.b.getContext());
  if (!isa<FloatType>(common))
    op.refuse("eager has none of integers");  // and raises
  operands.push_back(op.operand("value"));
  return {elementwise(op, operands, common, [](Body&, In in) { return in[0] + in[3] * in[1] / in[2]; })};
}

Values emitLogical(Op& op, Scalar (*combine)(Scalar, Scalar)) {
  TensorOrNumber self = op.operand("self"), other = op.operand("other");
  Type common = promote({self, other}, op.build.b.getContext());
  return {elementwise(op, {self, other}, common, [&](Body& body, In in) {
    Type boolean = body.b.getI1Type();
    return combine(in[0].to(boolean), in[1].to(boolean));
  })};
}

// Shifts by the width or more, or by a negative amount: eager gives 0 (or the sign for >>).
Values emitShift(Op& op, bool left) {
  TensorOrNumber self = op.operand("self"), other = op.operand("other");
  Type common = promote({self, other}, op.build.b.getContext());
  if (isa<FloatType>(common) || common.isInteger(1))
    op.refuse("shifts of " + fx::dtypeName(common) + " are not lowered");
  int64_t width = common.getIntOrFloatBitWidth();
  return {elementwise(op, {self, other}, common, [&](Body& body, In in) {
    Scalar amount = in[1];
    Scalar outside = (amount < 0) | (amount >= static_cast<double>(width));
    bool is_signed = !common.isUnsignedInteger();  // of u8 nothing is left
    Scalar safe = select(outside, amount.constant(left ? 0 : is_signed ? width - 1 : width), amount);
    if (left) {
      Scalar shifted(body.b, arith::ShLIOp::create(body.b, in[0].value(), safe.value()));
      return select(outside, in[0].constant(0), shifted);
    }
    return Scalar(body.b, arith::ShRSIOp::create(body.b, in[0].value(), safe.value()));
  })};
}

Scalar signOf(In in) {
  Scalar x = in[0];
  if (x.isBool())
    return x;
  Scalar sign = select(x > 0, x.constant(1), select(x < 0, x.constant(-1), x.constant(0)));
  return sign;
}

void registerArithmetic(OpTable& table) {
  for (StringRef overload : {"Tensor", "Scalar"}) {
    table.add(("aten.add." + overload).str(), [](Op& op) { return emitAddSub(op, false, false); });
    table.add(("aten.sub." + overload).str(), [](Op& op) { return emitAddSub(op, true, false); });
    table.add(("aten.rsub." + overload).str(), [](Op& op) { return emitAddSub(op, true, true); });
    table.add(("aten.remainder." + overload).str(), [](Op& op) { return emitRemainder(op, true); });
    table.add(("aten.fmod." + overload).str(), [](Op& op) { return emitRemainder(op, false); });
    table.add(("aten.div." + overload + "_mode").str(), emitDivMode);
  }
  table.add("aten.remainder.Scalar_Tensor", [](Op& op) { return emitRemainder(op, true); });
  addBinary(table, "mul", {"Tensor", "Scalar"}, Compute::multiplied, [](In in) { return in[0] * in[1]; });
  addBinary(table, "div", {"Tensor", "Scalar"}, Compute::divided, [](In in) { return in[0] / in[1]; });
  addBinary(table, "true_divide", {"Tensor", "Scalar"}, Compute::divided, [](In in) { return in[0] / in[1]; });
  table.add("aten.floor_divide.default", emitFloorDivide);
  addBinary(table, "maximum", {"default"}, Compute::promoted, [](In in) { return maximum(in[0], in[1]); });
  addBinary(table, "minimum", {"default"}, Compute::promoted, [](In in) { return minimum(in[0], in[1]); });
  addBinary(table, "fmax", {"default"}, Compute::promoted,
            [](In in) { return select((in[0] >= in[1]) | isNan(in[1]), in[0], in[1]); });
  addBinary(table, "fmin", {"default"}, Compute::promoted,
            [](In in) { return select((in[0] <= in[1]) | isNan(in[1]), in[0], in[1]); });
  addBinary(table, "atan2", {"default"}, Compute::floating, [](In in) { return atan2(in[0], in[1]); });
  addBinary(table, "copysign", {"Tensor", "Scalar"}, Compute::floating, [](In in) { return copysign(in[0], in[1]); });
  table.add("aten.pow.Scalar", emitPowTensor);
  table.add("aten.pow.Tensor_Scalar", emitPowNumber);
  table.add("aten.pow.Tensor_Tensor", emitPowTensor);
  for (StringRef overload : {"Scalar", "Tensor"}) {
    addFormula(table, ("aten.lerp." + overload).str(), {"self", "end", "weight"}, Compute::promoted, [](In in) {
      Scalar small = abs(in[2]) < 0.5;  // so that both ends are met exactly
      return multiplyAdd(select(small, in[2], in[2] - 1), in[1] - in[0], select(small, in[0], in[1]));
    });
  }
  table.add("aten.addcmul.default", emitAddCmul);
  // Of zefuse.llm: rounded once.
  addFormula(table, "zefuse_llm.multiply_add.default", {"a", "b", "c"}, Compute::promoted,
             [](In in) { return multiplyAdd(in[0], in[1], in[2]); });
  // Of zefuse.llm, of i32 alone: dot products of four bytes, and a word of four numbers.
  addFormula(table, "zefuse_llm.dot4.default", {"a", "b", "sum"}, Compute::promoted, [](In in) {
    ImplicitLocOpBuilder& b = in[0].builder();
    return Scalar(b, Dot4Op::create(b, in[0].type(), in[0].value(), in[1].value(), in[2].value()));
  });
  addFormula(table, "zefuse_llm.pack4.default", {"a", "b", "c", "d"}, Compute::promoted, [](In in) {
    ImplicitLocOpBuilder& b = in[0].builder();
    Scalar word = in[0] & in[0].constant(255);
    for (int byte = 1; byte < 4; ++byte) {
      Scalar low = byte < 3 ? in[byte] & in[byte].constant(255) : in[byte];
      word = word | Scalar(b, arith::ShLIOp::create(b, low.value(), in[0].constant(8.0 * byte).value()));
    }
    return word;
  });
  table.add("aten.addcdiv.default", emitAddCDiv);
  table.add("aten.clamp.default", emitClamp);
  table.add("aten.clamp.Tensor", emitClamp);
  for (StringRef overload : {"default", "Tensor"}) {
    table.add(("aten.clamp_min." + overload).str(), [](Op& op) { return emitClampBound(op, "min", true); });
    table.add(("aten.clamp_max." + overload).str(), [](Op& op) { return emitClampBound(op, "max", false); });
  }
}

void registerComparison(OpTable& table) {
  addBinary(table, "eq", {"Tensor", "Scalar"}, Compute::compared, [](In in) { return in[0] == in[1]; });
  addBinary(table, "ne", {"Tensor", "Scalar"}, Compute::compared, [](In in) { return in[0] != in[1]; });
  addBinary(table, "lt", {"Tensor", "Scalar"}, Compute::compared, [](In in) { return in[0] < in[1]; });
  addBinary(table, "le", {"Tensor", "Scalar"}, Compute::compared, [](In in) { return in[0] <= in[1]; });
  addBinary(table, "gt", {"Tensor", "Scalar"}, Compute::compared, [](In in) { return in[0] > in[1]; });
  addBinary(table, "ge", {"Tensor", "Scalar"}, Compute::compared, [](In in) { return in[0] >= in[1]; });
  table.add("aten.logical_and.default",
            [](Op& op) { return emitLogical(op, [](Scalar a, Scalar b) { return a & b; }); });
  table.add("aten.logical_or.default",
            [](Op& op) { return emitLogical(op, [](Scalar a, Scalar b) { return a | b; }); });
  table.add("aten.logical_xor.default",
            [](Op& op) { return emitLogical(op, [](Scalar a, Scalar b) { return a ^ b; }); });
  addUnary(table, "aten.logical_not.default", Compute::promoted, [](In in) { return in[0] == 0; });
  addUnary(table, "aten.bitwise_not.default", Compute::promoted, [](In in) { return ~in[0]; });
  addBinary(table, "bitwise_and", {"Tensor", "Scalar"}, Compute::promoted, [](In in) { return in[0] & in[1]; });
  addBinary(table, "bitwise_or", {"Tensor", "Scalar"}, Compute::promoted, [](In in) { return in[0] | in[1]; });
  addBinary(table, "bitwise_xor", {"Tensor", "Scalar"}, Compute::promoted, [](In in) { return in[0] ^ in[1]; });
  for (StringRef overload : {"Tensor", "Tensor_Scalar"}) {
    table.add(("aten.bitwise_left_shift." + overload).str(), [](Op& op) { return emitShift(op, true); });
    table.add(("aten.bitwise_right_shift." + overload).str(), [](Op& op) { return emitShift(op, false); });
  }
  for (StringRef overload : {"Tensor", "Scalar"}) {
    table.add(("aten.__lshift__." + overload).str(), [](Op& op) { return emitShift(op, true); });
    table.add(("aten.__rshift__." + overload).str(), [](Op& op) { return emitShift(op, false); });
  }
  for (StringRef overload : {"self", "ScalarSelf", "ScalarOther", "Scalar"})
    table.add(("aten.where." + overload).str(), emitWhere);
  for (StringRef overload : {"Scalar", "Tensor"})
    table.add(("aten.masked_fill." + overload).str(), emitMaskedFill);
  addUnary(table, "aten.isnan.default", Compute::promoted, [](In in) { return isNan(in[0]); });
  addUnary(table, "aten.isinf.default", Compute::floating, [](In in) { return abs(in[0]) == HUGE_VAL; });
  addUnary(table, "aten.isfinite.default", Compute::floating, [](In in) { return abs(in[0]) < HUGE_VAL; });
}

void registerFunctions(OpTable& table) {
  const std::pair<const char*, Formula> functions[] = {
      {"exp", [](In in) { return exp(in[0]); }},
      {"exp2", [](In in) { return exp2(in[0]); }},
      {"expm1", [](In in) { return expm1(in[0]); }},
      {"log", [](In in) { return log(in[0]); }},
      {"log2", [](In in) { return log2(in[0]); }},
      {"log10", [](In in) { return log10(in[0]); }},
      {"log1p", [](In in) { return log1p(in[0]); }},
      {"sqrt", [](In in) { return sqrt(in[0]); }},
      {"rsqrt", [](In in) { return 1.0 / sqrt(in[0]); }},
      {"reciprocal", [](In in) { return 1.0 / in[0]; }},
      {"erf", [](In in) { return erf(in[0]); }},
      {"erfc", [](In in) { return erfc(in[0]); }},
      {"sin", [](In in) { return sin(in[0]); }},
      {"cos", [](In in) { return cos(in[0]); }},
      {"tan", [](In in) { return tan(in[0]); }},
      {"asin", [](In in) { return asin(in[0]); }},
      {"acos", [](In in) { return acos(in[0]); }},
      {"atan", [](In in) { return atan(in[0]); }},
      {"sinh", [](In in) { return sinh(in[0]); }},
      {"cosh", [](In in) { return cosh(in[0]); }},
      {"asinh", [](In in) { return asinh(in[0]); }},
      {"acosh", [](In in) { return acosh(in[0]); }},
      {"atanh", [](In in) { return atanh(in[0]); }},
      {"deg2rad", [](In in) { return in[0] * (M_PI / 180.0); }},
      {"rad2deg", [](In in) { return in[0] * (180.0 / M_PI); }},
  };
  for (auto [name, formula] : functions)
    addUnary(table, ("aten." + StringRef(name) + ".default").str(), Compute::floating, formula);
  const std::pair<const char*, Formula> roundings[] = {
      {"ceil", [](In in) { return ceil(in[0]); }},
      {"floor", [](In in) { return floor(in[0]); }},
      {"trunc", [](In in) { return trunc(in[0]); }},
      {"round", [](In in) { return roundEven(in[0]); }},
  };
  for (auto [name, formula] : roundings)
    addUnary(table, ("aten." + StringRef(name) + ".default").str(), Compute::floats_only_change, formula);
  addUnary(table, "aten.frac.default", Compute::promoted, [](In in) { return in[0] - trunc(in[0]); });
  addUnary(table, "aten.neg.default", Compute::promoted, [](In in) { return -in[0]; });
  addUnary(table, "aten.abs.default", Compute::promoted, [](In in) { return abs(in[0]); });
  addUnary(table, "aten.square.default", Compute::promoted, [](In in) { return in[0] * in[0]; });
  addUnary(table, "aten.sign.default", Compute::promoted, signOf);
  addUnary(table, "aten.sgn.default", Compute::promoted, signOf);
  addUnary(table, "aten.relu.default", Compute::promoted, [](In in) { return atLeast(in[0], 0); });
}

}  // namespace

void registerPointwise(OpTable& table) {
  registerArithmetic(table);
  registerComparison(table);
  registerFunctions(table);
}

}  // namespace zefuse
