#include "compiler/builder/scalar.h"

#include "compiler/builder/not_lowered.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;

namespace zefuse {
namespace {

Scalar compare(arith::CmpFPredicate floats, arith::CmpIPredicate integers, arith::CmpIPredicate bools, Scalar a,
               Scalar b) {
  ImplicitLocOpBuilder& builder = a.builder();
  if (a.isU8())
    return compare(floats, integers, bools, a.to(builder.getI16Type()), b.to(builder.getI16Type()));
  if (a.isFloat())
    return {builder, arith::CmpFOp::create(builder, floats, a.value(), b.value())};
  return {builder, arith::CmpIOp::create(builder, a.isBool() ? bools : integers, a.value(), b.value())};
}

// u8's bits as i8, which arith works on, and back.
Scalar reinterpret(Scalar x, Type type) {
  ImplicitLocOpBuilder& builder = x.builder();
  return {builder, UnrealizedConversionCastOp::create(builder, type, x.value()).getResult(0)};
}

template <typename FloatOp, typename IntOp, typename BoolOp> Scalar arithmetic(Scalar a, Scalar b) {
  ImplicitLocOpBuilder& builder = a.builder();
  if (a.isFloat())
    return {builder, FloatOp::create(builder, a.value(), b.value())};
  if (a.isBool())
    return {builder, BoolOp::create(builder, a.value(), b.value())};
  return {builder, IntOp::create(builder, a.value(), b.value())};
}

}  // namespace

Scalar constantScalar(ImplicitLocOpBuilder& builder, Type type, double number) {
  TypedAttr attribute;
  if (auto floating = dyn_cast<FloatType>(type))
    attribute = FloatAttr::get(floating, number);
  else if (type.isInteger(1))
    attribute = BoolAttr::get(builder.getContext(), number != 0);
  else
    return constantScalar(builder, type, static_cast<int64_t>(number));
  return {builder, arith::ConstantOp::create(builder, attribute)};
}

Scalar constantScalar(ImplicitLocOpBuilder& builder, Type type, int64_t number) {
  if (!isa<IntegerType>(type) || type.isInteger(1))
    return constantScalar(builder, type, static_cast<double>(number));
  if (type.isUnsignedInteger(8))
    return reinterpret(constantScalar(builder, builder.getI8Type(), number), type);
  APInt bits(64, static_cast<uint64_t>(number), /*isSigned=*/true);
  TypedAttr attribute = IntegerAttr::get(type, bits.trunc(type.getIntOrFloatBitWidth()));
  return {builder, arith::ConstantOp::create(builder, attribute)};
}

Scalar Scalar::constant(double number) const { return constantScalar(*builder_, type(), number); }

Scalar Scalar::to(Type target) const {
  Type source = type();
  if (source == target)
    return *this;
  ImplicitLocOpBuilder& b = *builder_;
  auto make = [&](Value value) { return Scalar(b, value); };
  if (target.isInteger(1))
    return *this != constant(0);
  if (isU8()) {
    Scalar bits = reinterpret(*this, b.getI8Type());
    if (target.isInteger(8))
      return bits;
    if (isa<IntegerType>(target))
      return make(arith::ExtUIOp::create(b, target, bits.value()));
    return make(arith::ExtUIOp::create(b, b.getI16Type(), bits.value())).to(target);
  }
  // c10::convert goes through i64 to u8, and to i8 and i16 compilers go through i32. One step would leave the choice of
  // what is out of range to the code generator: LLVM saturates vectors of f64. (f32 has no digits that i64 would save.)
  if (isFloat() && (target.isUnsignedInteger(8) || target.isInteger(8) || target.isInteger(16)))
    return to(source.isF64() && target.isUnsignedInteger(8) ? b.getI64Type() : b.getI32Type()).to(target);
  if (target.isUnsignedInteger(8))
    return reinterpret(to(b.getI8Type()), target);
  auto narrow = [](Type type) { return type.isF16() || type.isBF16(); };
  Type f32 = b.getF32Type();
  if (isFloat()) {
    if (narrow(source) && target != f32)
      return make(arith::ExtFOp::create(b, f32, value_)).to(target);
    if (isa<IntegerType>(target))
      return make(arith::FPToSIOp::create(b, target, value_));
    if (target.isF64() || narrow(source))
      return make(arith::ExtFOp::create(b, target, value_));
    if (source.isF64() && narrow(target))
      return make(arith::TruncFOp::create(b, f32, value_)).to(target);
    return make(arith::TruncFOp::create(b, target, value_));
  }
  if (narrow(target))
    return to(f32).to(target);
  if (isa<FloatType>(target)) {
    if (isBool())
      return make(arith::UIToFPOp::create(b, target, value_));
    return make(arith::SIToFPOp::create(b, target, value_));
  }
  if (isBool())
    return make(arith::ExtUIOp::create(b, target, value_));
  if (source.getIntOrFloatBitWidth() < target.getIntOrFloatBitWidth())
    return make(arith::ExtSIOp::create(b, target, value_));
  return make(arith::TruncIOp::create(b, target, value_));
}

Scalar operator+(Scalar a, Scalar b) { return arithmetic<arith::AddFOp, arith::AddIOp, arith::OrIOp>(a, b); }
Scalar operator-(Scalar a, Scalar b) { return arithmetic<arith::SubFOp, arith::SubIOp, arith::XOrIOp>(a, b); }
Scalar operator*(Scalar a, Scalar b) { return arithmetic<arith::MulFOp, arith::MulIOp, arith::AndIOp>(a, b); }
Scalar maximum(Scalar a, Scalar b) { return arithmetic<arith::MaximumFOp, arith::MaxSIOp, arith::OrIOp>(a, b); }
Scalar minimum(Scalar a, Scalar b) { return arithmetic<arith::MinimumFOp, arith::MinSIOp, arith::AndIOp>(a, b); }

// A NaN in x passes both comparisons; one in the limit wins. Known limits cost what a single max or min does.
static Scalar clampedTo(Scalar limit, Scalar outside, Scalar x) {
  Scalar clamped = select(outside, limit, x);
  FloatAttr known;
  if (matchPattern(limit.value(), m_Constant(&known)) && !known.getValue().isNaN())
    return clamped;
  return select(isNan(limit), limit, clamped);
}
Scalar atLeast(Scalar x, Scalar limit) { return x.isFloat() ? clampedTo(limit, limit > x, x) : maximum(x, limit); }
Scalar atMost(Scalar x, Scalar limit) { return x.isFloat() ? clampedTo(limit, limit < x, x) : minimum(x, limit); }

Scalar operator/(Scalar a, Scalar b) {
  if (!a.isFloat())
    throw NotLowered("its formula divides integers");
  return {a.builder(), arith::DivFOp::create(a.builder(), a.value(), b.value())};
}
Scalar operator-(Scalar a) {
  if (a.isFloat())
    return {a.builder(), arith::NegFOp::create(a.builder(), a.value())};
  return a.constant(0) - a;
}

#define ZEFUSE_COMPARE(OP, FLOATS, INTEGERS, BOOLS)                                                                    \
  Scalar operator OP(Scalar a, Scalar b) {                                                                             \
    return compare(arith::CmpFPredicate::FLOATS, arith::CmpIPredicate::INTEGERS, arith::CmpIPredicate::BOOLS, a, b);   \
  }
ZEFUSE_COMPARE(<, OLT, slt, ult)
ZEFUSE_COMPARE(>, OGT, sgt, ugt)
ZEFUSE_COMPARE(<=, OLE, sle, ule)
ZEFUSE_COMPARE(>=, OGE, sge, uge)
ZEFUSE_COMPARE(==, OEQ, eq, eq)
ZEFUSE_COMPARE(!=, UNE, ne, ne)
#undef ZEFUSE_COMPARE

Scalar operator&(Scalar a, Scalar b) { return {a.builder(), arith::AndIOp::create(a.builder(), a.value(), b.value())}; }
Scalar operator|(Scalar a, Scalar b) { return {a.builder(), arith::OrIOp::create(a.builder(), a.value(), b.value())}; }
Scalar operator^(Scalar a, Scalar b) { return {a.builder(), arith::XOrIOp::create(a.builder(), a.value(), b.value())}; }
Scalar operator~(Scalar a) { return a ^ (a.isBool() ? a.constant(1) : a.constant(-1)); }

Scalar select(Scalar condition, Scalar a, Scalar b) {
  Type i8 = a.builder().getI8Type();
  if (a.isU8())
    return reinterpret(select(condition, reinterpret(a, i8), reinterpret(b, i8)), a.type());
  return {a.builder(), arith::SelectOp::create(a.builder(), condition.value(), a.value(), b.value())};
}

Scalar isNan(Scalar x) {
  if (!x.isFloat())
    return constantScalar(x.builder(), x.builder().getI1Type(), 0.0);
  return {x.builder(), arith::CmpFOp::create(x.builder(), arith::CmpFPredicate::UNO, x.value(), x.value())};
}

Scalar bitcast(Scalar x, Type type) { return {x.builder(), arith::BitcastOp::create(x.builder(), type, x.value())}; }

Scalar abs(Scalar x) {
  if (x.isFloat())
    return {x.builder(), math::AbsFOp::create(x.builder(), x.value())};
  return x.isBool() ? x : Scalar(x.builder(), math::AbsIOp::create(x.builder(), x.value()));
}

#define ZEFUSE_UNARY(NAME, OP)                                                                                         \
  Scalar NAME(Scalar x) { return {x.builder(), math::OP::create(x.builder(), x.value())}; }
ZEFUSE_UNARY(exp, ExpOp)
ZEFUSE_UNARY(exp2, Exp2Op)
ZEFUSE_UNARY(expm1, ExpM1Op)
ZEFUSE_UNARY(log, LogOp)
ZEFUSE_UNARY(log2, Log2Op)
ZEFUSE_UNARY(log10, Log10Op)
ZEFUSE_UNARY(log1p, Log1pOp)
ZEFUSE_UNARY(sqrt, SqrtOp)
ZEFUSE_UNARY(erf, ErfOp)
ZEFUSE_UNARY(erfc, ErfcOp)
ZEFUSE_UNARY(sin, SinOp)
ZEFUSE_UNARY(cos, CosOp)
ZEFUSE_UNARY(tan, TanOp)
ZEFUSE_UNARY(asin, AsinOp)
ZEFUSE_UNARY(acos, AcosOp)
ZEFUSE_UNARY(atan, AtanOp)
ZEFUSE_UNARY(sinh, SinhOp)
ZEFUSE_UNARY(cosh, CoshOp)
ZEFUSE_UNARY(tanh, TanhOp)
ZEFUSE_UNARY(asinh, AsinhOp)
ZEFUSE_UNARY(acosh, AcoshOp)
ZEFUSE_UNARY(atanh, AtanhOp)
ZEFUSE_UNARY(floor, FloorOp)
ZEFUSE_UNARY(ceil, CeilOp)
ZEFUSE_UNARY(trunc, TruncOp)
ZEFUSE_UNARY(roundEven, RoundEvenOp)
#undef ZEFUSE_UNARY

Scalar atan2(Scalar y, Scalar x) { return {x.builder(), math::Atan2Op::create(x.builder(), y.value(), x.value())}; }
Scalar pow(Scalar x, Scalar y) { return {x.builder(), math::PowFOp::create(x.builder(), x.value(), y.value())}; }
Scalar copysign(Scalar magnitude, Scalar sign) {
  return {sign.builder(), math::CopySignOp::create(sign.builder(), magnitude.value(), sign.value())};
}
Scalar fmod(Scalar a, Scalar b) { return {a.builder(), arith::RemFOp::create(a.builder(), a.value(), b.value())}; }
Scalar multiplyAdd(Scalar a, Scalar b, Scalar c) {
  if (!a.isFloat())
    return a * b + c;
  return {a.builder(), math::FmaOp::create(a.builder(), a.value(), b.value(), c.value())};
}

}  // namespace zefuse
