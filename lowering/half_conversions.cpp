#include "lowering/half_conversions.h"

#include "common/toolchain/target_description.h"
#include "lowering/passes.h"
#include "lowering/spirv/math_builtins.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;

namespace zefuse {

#define GEN_PASS_DEF_HALFCONVERSIONS
#include "lowering/Passes.h.inc"

namespace {

bool isHalf(Type type) {
  Type scalar = getElementTypeOrSelf(type);
  return scalar.isBF16() || scalar.isF16();
}

Type withElement(Type type, Type element) {
  auto vector = dyn_cast<VectorType>(type);
  return vector ? Type(vector.clone(element)) : element;
}

/// Integer arithmetic on values of one shape.
class Integers {
public:
  Integers(OpBuilder& builder, Location loc, Type shape) : b_(builder), loc_(loc), shape_(shape) {}

  Value bf16ToF32(Value bits) const {
    Value wide = convert<arith::ExtUIOp>(b_.getI32Type(), bits);
    return asFloat(make<arith::ShLIOp>(wide, integer(16)));
  }
  /// Round to nearest even; a NaN stays one (adding could carry it to infinity or zero).
  Value f32ToBf16(Value value) const {
    Value bits = asBits(value);
    Value odd = make<arith::AndIOp>(make<arith::ShRUIOp>(bits, integer(16)), integer(1));
    Value rounded = make<arith::AddIOp>(bits, make<arith::AddIOp>(odd, integer(0x7fff)));
    Value high = make<arith::ShRUIOp>(rounded, integer(16));
    Value nan = arith::CmpFOp::create(b_, loc_, arith::CmpFPredicate::UNO, value, value);
    return convert<arith::TruncIOp>(b_.getI16Type(), select(nan, integer(0x7fc0), high));
  }
  /// Exponent and mantissa in f32's place are 2^-112 of the value, subnormals included; infinity and NaN get the
  /// exponent.
  Value f16ToF32(Value bits16) const {
    Value wide = convert<arith::ExtUIOp>(b_.getI32Type(), bits16);
    Value magnitude = make<arith::ShLIOp>(make<arith::AndIOp>(wide, integer(0x7fff)), integer(13));
    Value scaled = asBits(make<arith::MulFOp>(asFloat(magnitude), real(0x1p112)));
    Value special = compare(arith::CmpIPredicate::uge, magnitude, integer(0x7c00 << 13));
    Value finite = select(special, make<arith::OrIOp>(magnitude, integer(0x7f800000)), scaled);
    Value sign = make<arith::ShLIOp>(make<arith::AndIOp>(wide, integer(0x8000)), integer(16));
    return asFloat(make<arith::OrIOp>(finite, sign));
  }
  /// Round to nearest even: subnormal results by an addition that shifts the mantissa into place.
  Value f32ToF16(Value value) const {
    Value bits = asBits(value);
    Value magnitude = make<arith::AndIOp>(bits, integer(0x7fffffff));
    Value odd = make<arith::AndIOp>(make<arith::ShRUIOp>(magnitude, integer(13)), integer(1));
    Value rebased = make<arith::AddIOp>(magnitude, integer(int32_t(0xc8000fffu)));  // (15 - 127) << 23, + 0xfff
    Value normal = make<arith::ShRUIOp>(make<arith::AddIOp>(rebased, odd), integer(13));
    Value small = make<arith::SubIOp>(asBits(make<arith::AddFOp>(asFloat(magnitude), real(0.5))), integer(0x3f000000));
    Value nan = compare(arith::CmpIPredicate::ugt, magnitude, integer(0x7f800000));
    Value large = select(nan, integer(0x7e00), integer(0x7c00));
    Value result = select(compare(arith::CmpIPredicate::ult, magnitude, integer(113 << 23)), small, normal);
    result = select(compare(arith::CmpIPredicate::uge, magnitude, integer(143 << 23)), large, result);
    Value sign = make<arith::AndIOp>(make<arith::ShRUIOp>(bits, integer(16)), integer(0x8000));
    return convert<arith::TruncIOp>(b_.getI16Type(), make<arith::OrIOp>(result, sign));
  }

private:
  Value constant(TypedAttr scalar) const {
    auto vector = dyn_cast<VectorType>(shape_);
    TypedAttr attribute =
        vector ? TypedAttr(DenseElementsAttr::get(cast<ShapedType>(vector.clone(scalar.getType())), scalar)) : scalar;
    return arith::ConstantOp::create(b_, loc_, attribute);
  }
  Value integer(int32_t value) const { return constant(b_.getI32IntegerAttr(value)); }
  Value real(double value) const { return constant(b_.getF32FloatAttr(float(value))); }
  Value asBits(Value value) const { return convert<arith::BitcastOp>(b_.getI32Type(), value); }
  Value asFloat(Value value) const { return convert<arith::BitcastOp>(b_.getF32Type(), value); }
  Value compare(arith::CmpIPredicate predicate, Value lhs, Value rhs) const {
    return arith::CmpIOp::create(b_, loc_, predicate, lhs, rhs);
  }
  Value select(Value condition, Value yes, Value no) const {
    return arith::SelectOp::create(b_, loc_, condition, yes, no);
  }
  template <typename Op> Value make(Value lhs, Value rhs) const { return Op::create(b_, loc_, lhs, rhs); }
  template <typename Op> Value convert(Type element, Value value) const {
    return Op::create(b_, loc_, withElement(shape_, element), value);
  }

  OpBuilder& b_;
  Location loc_;
  Type shape_;  // of any element
};

class Expansion {
public:
  Expansion(ModuleOp module, const NativeOperations& native) : module_(module), native_(native) {}

  LogicalResult run() {
    SmallVector<Operation*> conversions;
    module_.walk([&](Operation* op) {
      if ((isa<arith::ExtFOp>(op) && isHalf(op->getOperand(0).getType())) ||
          (isa<arith::TruncFOp>(op) && isHalf(op->getResult(0).getType())))
        conversions.push_back(op);
    });
    for (Operation* op : conversions)
      expand(op);
    dropCasts();
    WalkResult left = module_.walk([&](Operation* op) {
      for (Type type : llvm::concat<const Type>(op->getOperandTypes(), op->getResultTypes()))
        if (isHalf(type) && !(getElementTypeOrSelf(type).isF16() && native_.f16)) {
          op->emitError() << "computes with " << type << ", which the target does not have";
          return WalkResult::interrupt();
        }
      return WalkResult::advance();
    });
    return failure(left.wasInterrupted());
  }

private:
  void expand(Operation* op) {
    const Type from = op->getOperand(0).getType(), to = op->getResult(0).getType();
    const bool widens = isa<arith::ExtFOp>(op), bf16 = getElementTypeOrSelf(widens ? from : to).isBF16();
    if (!bf16 && native_.f16)
      return;  // an instruction
    OpBuilder b(op);
    const Location loc = op->getLoc();
    const Type bits = withElement(from, b.getI16Type());
    const Integers integers(b, loc, from);
    Value operand = op->getOperand(0), result;
    if (widens) {
      operand = arith::BitcastOp::create(b, loc, bits, operand);
      result = bf16 ? integers.bf16ToF32(operand) : integers.f16ToF32(operand);
    } else {
      result = !bf16                      ? integers.f32ToF16(operand)
               : native_.bf16_conversions ? bfloatConversion(b, loc, operand, bits)
                                          : integers.f32ToBf16(operand);
      result = arith::BitcastOp::create(b, loc, to, result);
    }
    op->replaceAllUsesWith(ValueRange(result));
    op->erase();
  }

  Value bfloatConversion(OpBuilder& b, Location loc, Value value, Type bits) {
    std::string name = kConvertBfloat16;
    if (auto vector = dyn_cast<VectorType>(bits))
      name += std::to_string(vector.getNumElements());
    LLVM::LLVMFuncOp callee = declareBuiltin(module_, name, bits, value.getType());
    auto call = LLVM::CallOp::create(b, loc, callee, value);
    call.setCConv(LLVM::CConv::SPIR_FUNC);
    return call.getResult();
  }

  /// Casts to a half-sized type and back, which conversions leave.
  void dropCasts() {
    SmallVector<arith::BitcastOp> casts;
    module_.walk([&](arith::BitcastOp cast) { casts.push_back(cast); });
    for (arith::BitcastOp cast : casts)
      if (auto inner = cast.getIn().getDefiningOp<arith::BitcastOp>();
          inner && inner.getIn().getType() == cast.getType())
        cast.replaceAllUsesWith(inner.getIn());
    for (arith::BitcastOp cast : llvm::reverse(casts))
      if (cast->use_empty())
        cast->erase();
  }

  ModuleOp module_;
  const NativeOperations& native_;
};

class HalfConversions : public impl::HalfConversionsBase<HalfConversions> {
public:
  using HalfConversionsBase::HalfConversionsBase;
  void runOnOperation() override {
    auto description = TargetDescription::named(target);
    if (!description) {
      getOperation().emitError() << "'" << target << "' is no target; `zefuse targets` lists what there is";
      return signalPassFailure();
    }
    if (failed(expandHalfConversions(getOperation(), description->native)))
      signalPassFailure();
  }
};

}  // namespace

LogicalResult expandHalfConversions(ModuleOp module, const NativeOperations& native) {
  return Expansion(module, native).run();
}

}  // namespace zefuse
