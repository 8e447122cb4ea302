#include "lowering/schedule/products/epilogue.h"

#include "lowering/schedule/core/scalar_ops.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;

namespace zefuse {

Value emitPostOps(OpBuilder& b, Location loc, ArrayRef<StringRef> post_ops, Value value,
                  llvm::function_ref<Value(unsigned)> operand) {
  auto real = [&](double number) {
    return constantOfType(b, loc, b.getFloatAttr(getElementTypeOrSelf(value.getType()), number), lanesOf(value));
  };
  auto add = [&](Value x, Value y) -> Value { return arith::AddFOp::create(b, loc, x, y); };
  auto multiply = [&](Value x, Value y) -> Value { return arith::MulFOp::create(b, loc, x, y); };
  auto divide = [&](Value x, Value y) -> Value { return arith::DivFOp::create(b, loc, x, y); };
  auto sigmoidOf = [&](Value x) {
    Value e = math::ExpOp::create(b, loc, arith::NegFOp::create(b, loc, x));
    return divide(real(1), add(real(1), e));
  };
  auto clampZeroSix = [&](Value x) -> Value {  // keeps NaN
    Value below = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OLT, x, real(0));
    x = arith::SelectOp::create(b, loc, below, real(0), x);
    Value above = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OGT, x, real(6));
    return arith::SelectOp::create(b, loc, above, real(6), x);
  };
  unsigned taken = 0;
  for (StringRef name : post_ops) {
    if (name == "add") {
      value = add(value, operand(taken++));
    } else if (name == "mul") {
      value = multiply(value, operand(taken++));
    } else if (name == "relu") {
      Value negative = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OLT, value, real(0));
      value = arith::SelectOp::create(b, loc, negative, real(0), value);
    } else if (name == "relu6") {
      value = clampZeroSix(value);
    } else if (name == "hardswish") {
      value = divide(multiply(value, clampZeroSix(add(value, real(3)))), real(6));
    } else if (name == "gelu_erf") {
      Value e = math::ErfOp::create(b, loc, multiply(value, real(0.70710678118654752440)));
      value = multiply(multiply(value, real(0.5)), add(real(1), e));
    } else if (name == "gelu_tanh") {
      Value cube = multiply(multiply(value, value), value);
      Value inner = multiply(real(0.79788456080286535588), add(value, multiply(real(0.044715), cube)));
      value = multiply(multiply(value, real(0.5)), add(real(1), math::TanhOp::create(b, loc, inner)));
    } else if (name == "silu") {
      value = multiply(value, sigmoidOf(value));
    } else if (name == "tanh") {
      value = math::TanhOp::create(b, loc, value);
    } else {
      assert(name == "sigmoid" && "the op's verifier knows the names");
      value = sigmoidOf(value);
    }
  }
  return value;
}

}  // namespace zefuse
