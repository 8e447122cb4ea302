// Greatest common divisors. A loop body has no loops of its own: both algorithms run for as many steps as the type's
// largest operands need, which change nothing once one operand is zero, and lanes go through them side by side.
#include "compiler/import/elementwise.h"
#include "compiler/import/op_table.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;

namespace zefuse {
namespace {

// Euclid's, in f64: exact for operands below 2^32, whose quotients are too far from the next integer to be rounded to
// it. Lame: 1.4405 steps for each bit of the smaller operand.
Scalar euclid(Scalar a, Scalar b, int64_t bits) {
  ImplicitLocOpBuilder& builder = a.builder();
  Scalar x = abs(a.to(builder.getF64Type())), y = abs(b.to(builder.getF64Type()));
  for (int64_t step = 0; step < (bits * 1441 + 999) / 1000 + 3; ++step) {
    Scalar done = y == 0, rest = x - trunc(x / y) * y;
    x = select(done, x, y);
    y = select(done, y, rest);
    if (step == 0)
      y = select(done, y.constant(0), y);
  }
  return x.to(builder.getI64Type()).to(a.type());
}

// Stein's (1967), which subtracts and halves, with one operand kept odd: each step takes a bit from one of the two.
// Values are unsigned: the least integer is its own absolute value.
Scalar binary(Scalar a, Scalar b, int64_t bits) {
  ImplicitLocOpBuilder& builder = a.builder();
  auto number = [&](int64_t value) { return constantScalar(builder, a.type(), value); };
  auto shifted = [&](Scalar x, int64_t by) {
    return Scalar(builder, arith::ShRUIOp::create(builder, x.value(), number(by).value()));
  };
  Scalar x = abs(a), y = abs(b), none = y == 0, either = x | y, twos = either & -either, whole = x;
  for (int64_t by = 32; by > 0; by /= 2)
    if (by <= bits)
      y = select((y & number((int64_t{1} << by) - 1)) == 0, shifted(y, by), y);
  for (int64_t step = 0; step < 2 * (bits + 1); ++step) {
    Scalar odd = (x & number(1)) != 0;
    Scalar smaller(builder, arith::CmpIOp::create(builder, arith::CmpIPredicate::ult, x.value(), y.value()));
    Scalar difference = x - y, next = select(smaller, -difference, difference);
    y = select(odd & smaller, x, y);
    x = shifted(select(odd, next, x), 1);
  }
  return select(none, whole, y * twos);
}

int64_t bitsOf(Type integer) { return integer.getIntOrFloatBitWidth() - (integer.isUnsignedInteger() ? 0 : 1); }

void addDivisor(OpTable& table, StringRef name, bool multiple) {
  table.add(("aten." + name + ".default").str(), [=](Op& op) -> Values {
    TensorOrNumber self = op.operand("self"), other = op.operand("other");
    Type common = promote({self, other}, op.build.b.getContext());
    if (isa<FloatType>(common) || common.isInteger(1))
      op.refuse("operands of " + fx::dtypeName(common) + " are not lowered");
    const int64_t bits = bitsOf(common);
    auto by = [&](Scalar (*algorithm)(Scalar, Scalar, int64_t)) -> Values {
      return {elementwise(op, {self, other}, common, [&](Body& body, ArrayRef<Scalar> in) {
        Scalar common_divisor = algorithm(in[0], in[1], bits);
        if (!multiple)
          return common_divisor;
        Scalar none = common_divisor == 0, safe = select(none, common_divisor.constant(1), common_divisor);
        Scalar quotient(body.b, arith::DivSIOp::create(body.b, in[0].value(), safe.value()));
        // C++ multiplies narrow integers as int.
        Type wide = common.getIntOrFloatBitWidth() < 32 ? body.b.getI32Type() : in[0].type();
        return select(none, in[0].constant(0), abs(quotient.to(wide) * in[1].to(wide)).to(in[0].type()));
      })};
    };
    if (bits >= 32)
      return by(binary);
    return op.alternatives({[&] { return by(euclid); }, [&] { return by(binary); }});
  });
}

}  // namespace

void registerDivisors(OpTable& table) {
  addDivisor(table, "gcd", false);
  addDivisor(table, "lcm", true);
}

}  // namespace zefuse
