#include "lowering/schedule/core/scalar_ops.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/ADT/StringSwitch.h"

using namespace mlir;

namespace zefuse {

static bool isLowPrecision(Type type) { return type.isBF16() || type.isF16(); }

Type withLanes(Type scalar, unsigned lanes) {
  return lanes == 1 ? scalar : Type(VectorType::get({int64_t(lanes)}, scalar));
}

unsigned lanesOf(Value value) {
  auto vector = dyn_cast<VectorType>(value.getType());
  return vector ? vector.getNumElements() : 1;
}

Value constantOfType(OpBuilder& builder, Location loc, TypedAttr value, unsigned lanes) {
  if (isLowPrecision(value.getType())) {
    APInt bits = cast<FloatAttr>(value).getValue().bitcastToAPInt();
    value = builder.getIntegerAttr(builder.getI16Type(), bits);
  }
  if (lanes == 1)
    return arith::ConstantOp::create(builder, loc, value);
  auto type = cast<ShapedType>(withLanes(value.getType(), lanes));
  return arith::ConstantOp::create(builder, loc, DenseElementsAttr::get(type, Attribute(value)));
}

Value constantIndex(OpBuilder& builder, Location loc, int64_t value, unsigned lanes) {
  return constantOfType(builder, loc, builder.getIndexAttr(value), lanes);
}

Value splat(OpBuilder& builder, Value scalar, unsigned lanes) {
  if (lanes == 1 || lanesOf(scalar) == lanes)
    return scalar;
  if (auto constant = scalar.getDefiningOp<arith::ConstantOp>())
    return constantOfType(builder, scalar.getLoc(), constant.getValue(), lanes);
  return vector::BroadcastOp::create(builder, scalar.getLoc(), withLanes(scalar.getType(), lanes), scalar);
}

namespace {

/// Small helper: arithmetic on values that all have the same lanes.
struct Build {
  OpBuilder& b;
  Location loc;
  unsigned lanes;

  Type lanesOf(Type scalar) const { return withLanes(scalar, lanes); }
  Value integer(unsigned width, int64_t value) const {
    return constantOfType(b, loc, b.getIntegerAttr(b.getIntegerType(width), value), lanes);
  }
  Value like(Value other, int64_t value) const {
    Type scalar = getElementTypeOrSelf(other.getType());
    return constantOfType(b, loc, b.getIntegerAttr(scalar, value), lanes);
  }
  Value compare(arith::CmpIPredicate predicate, Value lhs, Value rhs) const {
    return arith::CmpIOp::create(b, loc, predicate, lhs, rhs);
  }
  Value compare(arith::CmpFPredicate predicate, Value lhs, Value rhs) const {
    return arith::CmpFOp::create(b, loc, predicate, lhs, rhs);
  }
  Value select(Value condition, Value yes, Value no) const {
    return arith::SelectOp::create(b, loc, condition, yes, no);
  }
  template <typename Op> Value make(Value lhs, Value rhs) const { return Op::create(b, loc, lhs, rhs); }
  template <typename Op> Value convert(Type scalar, Value value) const {
    return Op::create(b, loc, lanesOf(scalar), value);
  }

  // The bits of a bf16 or f16 (element_types.h). half_conversions.cpp says how a target converts.
  Value widen(Value bits, Type type) const {
    return convert<arith::ExtFOp>(b.getF32Type(), convert<arith::BitcastOp>(type, bits));
  }
  Value narrow(Value value, Type type) const {
    return convert<arith::BitcastOp>(b.getI16Type(), convert<arith::TruncFOp>(type, value));
  }

  // NaN-propagating: fmax of the back end would drop a NaN.
  Value extremum(arith::CmpFPredicate better, Value lhs, Value rhs) const {
    Value chosen = select(compare(better, lhs, rhs), lhs, rhs);
    return select(compare(arith::CmpFPredicate::UNO, lhs, lhs), lhs, chosen);
  }
  Value numericExtremum(arith::CmpFPredicate better, Value lhs, Value rhs) const {
    Value chosen = select(compare(better, lhs, rhs), lhs, rhs);
    return select(compare(arith::CmpFPredicate::UNO, rhs, rhs), lhs, chosen);
  }

  // A zero divisor and INT_MIN / -1 trap on x86; tensor data must not end the process. They give the dividend's
  // quotient by 1, respectively the wrapped negation.
  template <typename Op> Value dividedBy(Value lhs, Value rhs, bool remainder) const {
    Value zero = like(rhs, 0), minus_one = like(rhs, -1), one = like(rhs, 1);
    Value is_zero = compare(arith::CmpIPredicate::eq, rhs, zero);
    if constexpr (std::is_same_v<Op, arith::DivUIOp> || std::is_same_v<Op, arith::RemUIOp>) {
      return make<Op>(lhs, select(is_zero, one, rhs));
    } else {
      Value is_minus_one = compare(arith::CmpIPredicate::eq, rhs, minus_one);
      Value safe = select(make<arith::OrIOp>(is_zero, is_minus_one), one, rhs);
      Value plain = make<Op>(lhs, safe);
      return remainder ? plain : select(is_minus_one, make<arith::SubIOp>(zero, lhs), plain);
    }
  }

  // The quotient rounded down (or up): truncation, corrected where the remainder is not zero and the signs say so.
  Value roundedDivision(Value lhs, Value rhs, bool up) const {
    Value quotient = dividedBy<arith::DivSIOp>(lhs, rhs, false);
    Value remainder = dividedBy<arith::RemSIOp>(lhs, rhs, true);
    Value zero = like(rhs, 0);
    Value inexact = compare(arith::CmpIPredicate::ne, remainder, zero);
    Value signs = compare(arith::CmpIPredicate::slt, make<arith::XOrIOp>(remainder, rhs), zero);
    if (up)
      signs = make<arith::XOrIOp>(signs, integer(1, 1));
    Value corrected = make<arith::AddIOp>(quotient, like(rhs, up ? 1 : -1));
    return select(make<arith::AndIOp>(inexact, signs), corrected, quotient);
  }

  // Exponentiation by squaring over the exponent's bits: no loop, so vectors stay vectors. A negative exponent
  // gives what torch gives: 1, -1 or 0.
  Value integerPower(Value base, Value exponent, unsigned width) const {
    Value zero = like(base, 0), one = like(base, 1);
    Value result = one, square = base;
    for (unsigned bit = 0; bit + 1 < width && bit < 6; ++bit) {
      // For |base| >= 2 exponents of 64 and more give 0 modulo 2^64; for 0, 1 and -1 only the lowest bit and
      // "not zero" matter. So six bits and one test are enough.
      Value set = compare(arith::CmpIPredicate::ne, make<arith::AndIOp>(exponent, like(base, int64_t(1) << bit)), zero);
      result = select(set, make<arith::MulIOp>(result, square), result);
      square = make<arith::MulIOp>(square, square);
    }
    Value odd = compare(arith::CmpIPredicate::ne, make<arith::AndIOp>(exponent, one), zero);
    Value is_one = compare(arith::CmpIPredicate::eq, base, one);
    Value is_minus_one = compare(arith::CmpIPredicate::eq, base, like(base, -1));
    Value unit = select(is_one, one, select(is_minus_one, select(odd, base, one), zero));
    Value large = compare(arith::CmpIPredicate::ugt, exponent, like(base, 63));  // negative ones too
    return width <= 6 ? result : select(large, unit, result);
  }
};

}  // namespace

Value toRegister(OpBuilder& builder, Location loc, Value loaded, Type type) {
  if (!type.isInteger(1))
    return loaded;
  Build build{builder, loc, lanesOf(loaded)};
  return build.compare(arith::CmpIPredicate::ne, loaded, build.integer(8, 0));
}

Value toMemory(OpBuilder& builder, Location loc, Value value, Type type) {
  if (!type.isInteger(1))
    return value;
  return arith::ExtUIOp::create(builder, loc, withLanes(builder.getI8Type(), lanesOf(value)), value);
}

Value widenToF32(OpBuilder& builder, Location loc, Value bits, Type type) {
  return Build{builder, loc, lanesOf(bits)}.widen(bits, type);
}

Value narrowFromF32(OpBuilder& builder, Location loc, Value value, Type type) {
  return Build{builder, loc, lanesOf(value)}.narrow(value, type);
}

Value emitScalarOp(OpBuilder& builder, Operation* op, ValueRange operands, unsigned lanes) {
  if (isa<UnrealizedConversionCastOp>(op))  // ui8 and i8 are the same bits
    return operands[0];
  Build build{builder, op->getLoc(), lanes};
  Type result = op->getResult(0).getType();
  if (auto constant = dyn_cast<arith::ConstantOp>(op))
    return constantOfType(builder, op->getLoc(), constant.getValue(), lanes);
  if (isa<arith::ExtFOp>(op) && isLowPrecision(op->getOperand(0).getType())) {
    Value wide = build.widen(operands[0], op->getOperand(0).getType());
    return result.isF64() ? build.convert<arith::ExtFOp>(result, wide) : wide;
  }
  if (isa<arith::TruncFOp>(op) && isLowPrecision(result)) {
    Value narrow = operands[0];
    if (op->getOperand(0).getType().isF64())
      narrow = build.convert<arith::TruncFOp>(builder.getF32Type(), narrow);
    return build.narrow(narrow, result);
  }
  using Predicate = arith::CmpFPredicate;
  if (isa<arith::MaximumFOp>(op))
    return build.extremum(Predicate::OGT, operands[0], operands[1]);
  if (isa<arith::MinimumFOp>(op))
    return build.extremum(Predicate::OLT, operands[0], operands[1]);
  if (isa<arith::MaxNumFOp>(op))
    return build.numericExtremum(Predicate::OGT, operands[0], operands[1]);
  if (isa<arith::MinNumFOp>(op))
    return build.numericExtremum(Predicate::OLT, operands[0], operands[1]);
  if (isa<math::ClampFOp>(op))  // clampf(value, low, high): NaN stays
    return build.extremum(Predicate::OLT, build.extremum(Predicate::OGT, operands[0], operands[1]), operands[2]);
  if (isa<arith::DivSIOp>(op))
    return build.dividedBy<arith::DivSIOp>(operands[0], operands[1], false);
  if (isa<arith::RemSIOp>(op))
    return build.dividedBy<arith::RemSIOp>(operands[0], operands[1], true);
  if (isa<arith::DivUIOp>(op))
    return build.dividedBy<arith::DivUIOp>(operands[0], operands[1], false);
  if (isa<arith::RemUIOp>(op))
    return build.dividedBy<arith::RemUIOp>(operands[0], operands[1], true);
  if (isa<arith::FloorDivSIOp>(op))
    return build.roundedDivision(operands[0], operands[1], false);
  if (isa<arith::CeilDivSIOp>(op))
    return build.roundedDivision(operands[0], operands[1], true);
  if (isa<math::IPowIOp>(op))
    return build.integerPower(operands[0], operands[1], result.getIntOrFloatBitWidth());
  if (isa<math::AbsIOp>(op)) {
    Value negative = build.compare(arith::CmpIPredicate::slt, operands[0], build.like(operands[0], 0));
    return build.select(negative, build.make<arith::SubIOp>(build.like(operands[0], 0), operands[0]), operands[0]);
  }
  if (isa<math::IsNaNOp>(op))
    return build.compare(Predicate::UNO, operands[0], operands[0]);
  if (isa<math::IsInfOp, math::IsFiniteOp>(op)) {
    auto type = cast<FloatType>(op->getOperand(0).getType());
    Value infinity = constantOfType(builder, op->getLoc(),
                                    builder.getFloatAttr(type, APFloat::getInf(type.getFloatSemantics())), lanes);
    Value magnitude = math::AbsFOp::create(builder, op->getLoc(), operands[0]);
    return build.compare(isa<math::IsInfOp>(op) ? Predicate::OEQ : Predicate::OLT, magnitude, infinity);
  }
  // max/min and arithmetic of i1 are logic: the back end has no integer arithmetic on OpTypeBool.
  if (result.isInteger(1)) {
    Value lhs = operands[0], rhs = operands.size() > 1 ? operands[1] : Value();
    if (isa<arith::MaxSIOp, arith::MinUIOp, arith::MulIOp>(op))  // signed: true is -1
      return build.make<arith::AndIOp>(lhs, rhs);
    if (isa<arith::MinSIOp, arith::MaxUIOp>(op))
      return build.make<arith::OrIOp>(lhs, rhs);
    if (isa<arith::AddIOp, arith::SubIOp>(op))
      return build.make<arith::XOrIOp>(lhs, rhs);
    if (auto compare = dyn_cast<arith::CmpIOp>(op); compare && compare.getLhs().getType().isInteger(1)) {
      bool is_signed =
          compare.getPredicate() >= arith::CmpIPredicate::slt && compare.getPredicate() <= arith::CmpIPredicate::sge;
      auto widen = [&](Value value) {
        return is_signed ? build.convert<arith::ExtSIOp>(builder.getI8Type(), value)
                         : build.convert<arith::ExtUIOp>(builder.getI8Type(), value);
      };
      return build.compare(compare.getPredicate(), widen(lhs), widen(rhs));
    }
    if (isa<arith::TruncIOp>(op))
      return build.compare(arith::CmpIPredicate::ne, build.make<arith::AndIOp>(lhs, build.like(lhs, 1)),
                           build.like(lhs, 0));
  }
  // Low-precision floats compare as f32.
  if (auto compare = dyn_cast<arith::CmpFOp>(op); compare && isLowPrecision(compare.getLhs().getType())) {
    Type type = compare.getLhs().getType();
    return build.compare(compare.getPredicate(), build.widen(operands[0], type), build.widen(operands[1], type));
  }
  OperationState state(op->getLoc(), op->getName());
  state.addOperands(operands);
  state.addAttributes(op->getAttrs());
  state.addTypes(withLanes(registerType(result), lanes));
  return builder.create(state)->getResult(0);
}

}  // namespace zefuse
