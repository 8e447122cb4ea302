#include "lowering/rounded_math.h"

#include "lowering/schedule/core/builtin_call.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;

namespace zefuse {
namespace {

constexpr double log2_e = 1.4426950408889634;
constexpr unsigned longest_chain = 8;  // operations between a function and where its value is rounded

std::optional<double> constantOf(Value value) {
  FloatAttr scalar;
  DenseFPElementsAttr elements;
  if (matchPattern(value, m_Constant(&scalar)))
    return scalar.getValueAsDouble();
  if (matchPattern(value, m_Constant(&elements)) && elements.isSplat())
    return elements.getSplatValue<APFloat>().convertToDouble();
  return std::nullopt;
}

enum class Error : uint8_t { relative, absolute };  // that the uses keep small

// All that becomes of a value is rounded to 16 bits.
struct Rounding {
  bool always = true;
  bool bf16 = true;  // and never to f16
};

void follow(Value value, Error error, unsigned length, Rounding& rounding) {
  if (value.use_empty() || length > longest_chain)
    rounding.always = false;
  for (Operation* user : value.getUsers()) {
    if (!rounding.always)
      return;
    if (isa<arith::TruncFOp>(user)) {
      Type to = getElementTypeOrSelf(user->getResult(0).getType());
      rounding.always &= to.isBF16() || to.isF16();
      rounding.bf16 &= to.isBF16();
    } else if (isa<arith::MulFOp, arith::DivFOp, arith::NegFOp>(user) ||
               (error == Error::absolute && isa<arith::AddFOp, arith::SubFOp>(user))) {
      follow(user->getResult(0), error, length + 1, rounding);
    } else {
      rounding.always = false;
    }
  }
}

// To `op`, 1 or more (or -1 or less) is added, and only that is done with it.
bool isAddedToOne(Operation* op) {
  return !op->use_empty() && llvm::all_of(op->getUsers(), [&](Operation* user) {
    if (!isa<arith::AddFOp, arith::SubFOp>(user))
      return false;
    auto other = constantOf(user->getOperand(user->getOperand(0) == op->getResult(0) ? 1 : 0));
    return other && std::abs(*other) >= 1;
  });
}

class Approximation {
public:
  Approximation(ModuleOp module, const NativeOperations& native) : module_(module), native_(native) {}

  void run() {
    SmallVector<Operation*> found;
    module_.walk([&](Operation* op) {
      if (isa<arith::DivFOp, math::TanhOp, math::ErfOp>(op) && getElementTypeOrSelf(op->getResult(0).getType()).isF32())
        found.push_back(op);
    });
    for (Operation* op : found) {
      OpBuilder b(op);
      Value result = isa<arith::DivFOp>(op) ? quotient(b, cast<arith::DivFOp>(op))
                     : isa<math::ErfOp>(op) ? erf(b, op)
                                            : tanh(b, op);
      if (!result)
        continue;
      op->replaceAllUsesWith(ValueRange(result));
      op->erase();
    }
  }

private:
  Value quotient(OpBuilder& b, arith::DivFOp op) {
    Rounding rounding;
    follow(op.getResult(), Error::relative, 0, rounding);
    Value inverse = byOneAndPower(b, op, rounding);
    return inverse || !rounding.always ? inverse : roundedQuotient(b, op);
  }

  // Of numbers of any size: x / d = (x * s) * (1 / (d * s)), where s, a power of two, keeps the inverse away from what
  // an instruction takes for zero or infinity. Of elements that share a divisor one inverse remains.
  Value roundedQuotient(OpBuilder& b, arith::DivFOp op) {
    Location loc = op.getLoc();
    Value divisor = op.getRhs(), size = math::AbsFOp::create(b, loc, divisor);
    auto where = [&](arith::CmpFPredicate predicate, double limit, double scale, Value otherwise) {
      Value found = arith::CmpFOp::create(b, loc, predicate, size, real(b, divisor, limit));
      return arith::SelectOp::create(b, loc, found, real(b, divisor, scale), otherwise).getResult();
    };
    Value scale = where(arith::CmpFPredicate::OLT, 0x1p-64, 0x1p64, real(b, divisor, 1));
    scale = where(arith::CmpFPredicate::OGT, 0x1p64, 0x1p-64, scale);
    Value inverse = native(b, "native_recip", arith::MulFOp::create(b, loc, divisor, scale));
    return arith::MulFOp::create(b, loc, arith::MulFOp::create(b, loc, op.getLhs(), scale), inverse);
  }

  // x / (1 + exp(y))
  Value byOneAndPower(OpBuilder& b, arith::DivFOp op, const Rounding& rounding) {
    auto sum = op.getRhs().getDefiningOp<arith::AddFOp>();
    if (!sum)
      return {};
    auto exp = sum.getLhs().getDefiningOp<math::ExpOp>();
    auto one = constantOf(sum.getRhs());
    if (!exp) {
      exp = sum.getRhs().getDefiningOp<math::ExpOp>();
      one = constantOf(sum.getLhs());
    }
    if (!exp || !one || *one < 1 || !(rounding.always || native_.reciprocal))
      return {};
    if (rounding.always && exp->hasOneUse() && sum->hasOneUse()) {
      OpBuilder before(exp);
      exp.replaceAllUsesWith(native(before, "native_exp2", times(before, exp.getOperand(), log2_e)));
      exp.erase();
    }
    Value inverse = native(b, "native_recip", sum.getResult());
    if (constantOf(op.getLhs()) == 1.0)
      return inverse;
    return arith::MulFOp::create(b, op.getLoc(), op.getLhs(), inverse);
  }

  Value tanh(OpBuilder& b, Operation* op) {
    Value x = op->getOperand(0);
    const bool to_one = isAddedToOne(op);
    Rounding rounding;
    follow(op->getResult(0), to_one ? Error::absolute : Error::relative, 0, rounding);
    if (!rounding.always)
      return {};
    if (!to_one && rounding.bf16 && native_.tanh)
      return nativeTanh(b, x);
    // 1 - 2 / (1 + exp(2 |x|)); small ones cancel there.
    Value magnitude = math::AbsFOp::create(b, op->getLoc(), x);
    Value power = native(b, "native_exp2", times(b, magnitude, 2 * log2_e));
    Value inverse = native(b, "native_recip", arith::AddFOp::create(b, op->getLoc(), power, real(b, x, 1)));
    Value large = math::FmaOp::create(b, op->getLoc(), inverse, real(b, x, -2), real(b, x, 1));
    if (to_one)
      return math::CopySignOp::create(b, op->getLoc(), large, x);
    Value square = arith::MulFOp::create(b, op->getLoc(), x, x);
    Value series = polynomial(b, square, {62.0 / 2835, -17.0 / 315, 2.0 / 15, -1.0 / 3});
    Value small = math::FmaOp::create(b, op->getLoc(), arith::MulFOp::create(b, op->getLoc(), square, series), x, x);
    Value is_small = arith::CmpFOp::create(b, op->getLoc(), arith::CmpFPredicate::OLT, magnitude, real(b, x, 0.25));
    Value either = arith::SelectOp::create(b, op->getLoc(), is_small, small, large);
    return math::CopySignOp::create(b, op->getLoc(), either, x);  // the series is +0 of -0
  }

  // 1 - t P(t) exp(-x^2) with t = 1 / (1 + p |x|), and the sign.
  Value erf(OpBuilder& b, Operation* op) {
    Rounding rounding;
    if (isAddedToOne(op))
      follow(op->getResult(0), Error::absolute, 0, rounding);
    else
      rounding.always = false;
    if (!rounding.always)
      return {};
    Location loc = op->getLoc();
    Value x = op->getOperand(0);
    Value magnitude = math::AbsFOp::create(b, loc, x);
    Value t = native(b, "native_recip", math::FmaOp::create(b, loc, magnitude, real(b, x, 0.3275911), real(b, x, 1)));
    Value factors = polynomial(b, t, {1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592});
    Value power = native(b, "native_exp2", times(b, arith::MulFOp::create(b, loc, x, x), -log2_e));
    Value rest = arith::MulFOp::create(b, loc, arith::MulFOp::create(b, loc, factors, t), power);
    return math::CopySignOp::create(b, loc, arith::SubFOp::create(b, loc, real(b, x, 1), rest), x);
  }

  // The coefficient of the highest power first.
  Value polynomial(OpBuilder& b, Value x, ArrayRef<double> coefficients) {
    Value value = real(b, x, coefficients.front());
    for (double coefficient : coefficients.drop_front())
      value = math::FmaOp::create(b, x.getLoc(), value, x, real(b, x, coefficient));
    return value;
  }

  Value real(OpBuilder& b, Value like, double value) {
    TypedAttr scalar = b.getF32FloatAttr(float(value));
    auto vector = dyn_cast<VectorType>(like.getType());
    return arith::ConstantOp::create(b, like.getLoc(), vector ? DenseElementsAttr::get(vector, scalar) : scalar);
  }

  Value times(OpBuilder& b, Value x, double factor) {
    return arith::MulFOp::create(b, x.getLoc(), x, real(b, x, factor));
  }

  Value native(OpBuilder& b, StringRef name, Value x) {
    auto vector = dyn_cast<VectorType>(x.getType());
    std::string types = vector ? "Dv" + std::to_string(vector.getNumElements()) + "_f" : "f";
    return callBuiltin(b, module_, mangled(name, types), x.getType(), x);
  }

  Value nativeTanh(OpBuilder& b, Value x) {
    std::string name = kNativeTanh;
    if (auto vector = dyn_cast<VectorType>(x.getType()))
      name += std::to_string(vector.getNumElements());
    return callBuiltin(b, module_, name, x.getType(), x);
  }

  ModuleOp module_;
  const NativeOperations& native_;
};

}  // namespace

void approximateRoundedMath(ModuleOp module, const NativeOperations& native) { Approximation(module, native).run(); }

}  // namespace zefuse
