// One element inside a linalg.generic body, with C++ operators: a formula in an emitter reads as in a paper.
#pragma once

#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "mlir/IR/Value.h"

namespace zefuse {

// Valid while its Body is. Both sides of an operator have the same type; a C++ number takes the other side's type. u8
// (ui8) only converts, compares and is selected: emitters compute in fx::computeType, which is i16 for it.
class Scalar {
public:
  Scalar(mlir::ImplicitLocOpBuilder& builder, mlir::Value value) : builder_(&builder), value_(value) {}

  mlir::Value value() const { return value_; }
  mlir::Type type() const { return value_.getType(); }
  mlir::ImplicitLocOpBuilder& builder() const { return *builder_; }
  bool isFloat() const { return llvm::isa<mlir::FloatType>(type()); }
  bool isBool() const { return type().isInteger(1); }
  bool isU8() const { return type().isUnsignedInteger(8); }

  // A constant of the same type: rounds for floats, wraps for integers, != 0 for bool.
  Scalar constant(double number) const;
  // As torch converts: float to bool is x != 0, bool to a number 0 or 1, float to integer truncates, and out of an
  // integer's range does what x86 does for eager: the smallest i32 or i64, of which narrower ones keep the low bits.
  Scalar to(mlir::Type type) const;

private:
  mlir::ImplicitLocOpBuilder* builder_;
  mlir::Value value_;
};

Scalar constantScalar(mlir::ImplicitLocOpBuilder& builder, mlir::Type type, double number);
Scalar constantScalar(mlir::ImplicitLocOpBuilder& builder, mlir::Type type, int64_t number);

// On bool, + is or, * and min are and, max is or: torch's arithmetic of torch.bool. Integer division is not here: it
// traps on zero.
Scalar operator+(Scalar a, Scalar b);
Scalar operator-(Scalar a, Scalar b);
Scalar operator*(Scalar a, Scalar b);
Scalar operator/(Scalar a, Scalar b);  // floats
Scalar operator-(Scalar a);
Scalar operator<(Scalar a, Scalar b);
Scalar operator>(Scalar a, Scalar b);
Scalar operator<=(Scalar a, Scalar b);
Scalar operator>=(Scalar a, Scalar b);
Scalar operator==(Scalar a, Scalar b);
Scalar operator!=(Scalar a, Scalar b);  // true when either is NaN
Scalar operator&(Scalar a, Scalar b);
Scalar operator|(Scalar a, Scalar b);
Scalar operator^(Scalar a, Scalar b);
Scalar operator~(Scalar a);

#define ZEFUSE_WITH_NUMBER(OP)                                                                                         \
  inline Scalar operator OP(Scalar a, double b) { return a OP a.constant(b); }                                         \
  inline Scalar operator OP(double a, Scalar b) { return b.constant(a) OP b; }
ZEFUSE_WITH_NUMBER(+)
ZEFUSE_WITH_NUMBER(-)
ZEFUSE_WITH_NUMBER(*)
ZEFUSE_WITH_NUMBER(/)
ZEFUSE_WITH_NUMBER(<)
ZEFUSE_WITH_NUMBER(>)
ZEFUSE_WITH_NUMBER(<=)
ZEFUSE_WITH_NUMBER(>=)
ZEFUSE_WITH_NUMBER(==)
ZEFUSE_WITH_NUMBER(!=)
#undef ZEFUSE_WITH_NUMBER

Scalar select(Scalar condition, Scalar a, Scalar b);
Scalar maximum(Scalar a, Scalar b);  // propagates NaN
Scalar minimum(Scalar a, Scalar b);
// As eager clamps: x where it equals the limit, so that the sign of a zero stays; NaN when either is.
Scalar atLeast(Scalar x, Scalar limit);
Scalar atMost(Scalar x, Scalar limit);
inline Scalar atLeast(Scalar x, double limit) { return atLeast(x, x.constant(limit)); }
inline Scalar atMost(Scalar x, double limit) { return atMost(x, x.constant(limit)); }
Scalar isNan(Scalar x);
Scalar abs(Scalar x);
Scalar bitcast(Scalar x, mlir::Type type);  // of equal width; no f16, bf16, u8

// math dialect, floats only.
Scalar exp(Scalar x);
Scalar exp2(Scalar x);
Scalar expm1(Scalar x);
Scalar log(Scalar x);
Scalar log2(Scalar x);
Scalar log10(Scalar x);
Scalar log1p(Scalar x);
Scalar sqrt(Scalar x);
Scalar erf(Scalar x);
Scalar erfc(Scalar x);
Scalar sin(Scalar x);
Scalar cos(Scalar x);
Scalar tan(Scalar x);
Scalar asin(Scalar x);
Scalar acos(Scalar x);
Scalar atan(Scalar x);
Scalar sinh(Scalar x);
Scalar cosh(Scalar x);
Scalar tanh(Scalar x);
Scalar asinh(Scalar x);
Scalar acosh(Scalar x);
Scalar atanh(Scalar x);
Scalar floor(Scalar x);
Scalar ceil(Scalar x);
Scalar trunc(Scalar x);
Scalar roundEven(Scalar x);
Scalar atan2(Scalar y, Scalar x);
Scalar pow(Scalar x, Scalar y);
Scalar copysign(Scalar magnitude, Scalar sign);
Scalar fmod(Scalar a, Scalar b);  // exact, with a's sign
// a * b + c: of floats rounded once, as eager's kernels do, whose compiler joins the two.
Scalar multiplyAdd(Scalar a, Scalar b, Scalar c);

inline Scalar sigmoid(Scalar x) { return 1.0 / (1.0 + exp(-x)); }

}  // namespace zefuse
