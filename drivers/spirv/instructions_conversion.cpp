// Conversions between types and their rounding.
#include "drivers/spirv/reader.h"

#include <spirv/unified1/spirv.hpp>

namespace zefuse::spirv {

// Rounds a float to an integral value as the FPRoundingMode decoration says; towards zero is the conversion's own.
llvm::Value* Reader::roundForConversion(const SpirvInst& inst, llvm::Value* v) {
  const Decoration* d = decoration(inst.result_id, spv::DecorationFPRoundingMode);
  if (!d || d->operands.empty())
    return v;
  switch (d->operands[0]) {
  case spv::FPRoundingModeRTE: return builder_.CreateUnaryIntrinsic(llvm::Intrinsic::roundeven, v);
  case spv::FPRoundingModeRTP: return builder_.CreateUnaryIntrinsic(llvm::Intrinsic::ceil, v);
  case spv::FPRoundingModeRTN: return builder_.CreateUnaryIntrinsic(llvm::Intrinsic::floor, v);
  default: return v;
  }
}

// Narrowing of floats: nearest-even by the hardware, the directed modes by one step of correction.
llvm::Value* Reader::convertWithRounding(const SpirvInst& inst, llvm::Value* v, llvm::Type* to,
                                         uint32_t rounding_mode) {
  auto* from = v->getType();
  if (to->getScalarSizeInBits() >= from->getScalarSizeInBits())
    return builder_.CreateFPCast(v, to);
  llvm::Value* r = builder_.CreateFPTrunc(v, to);
  if (rounding_mode == spv::FPRoundingModeRTE)
    return r;
  llvm::Value* back = builder_.CreateFPExt(r, from);
  auto* bits_type = to->isVectorTy()
                        ? llvm::cast<llvm::Type>(llvm::VectorType::getInteger(llvm::cast<llvm::VectorType>(to)))
                        : builder_.getIntNTy(to->getScalarSizeInBits());
  llvm::Value* bits = builder_.CreateBitCast(r, bits_type);
  auto* one = llvm::ConstantInt::get(bits_type, 1);
  auto* zero = llvm::ConstantInt::get(bits_type, 0);
  llvm::Value* negative = builder_.CreateFCmpOLT(v, llvm::ConstantFP::get(from, 0.0));
  llvm::Value* too_high = builder_.CreateFCmpOGT(back, v);
  llvm::Value* too_low = builder_.CreateFCmpOLT(back, v);
  // One step towards zero makes the magnitude's bits smaller by one, away from zero larger by one. A nearest-even
  // result of zero with a directed mode away from it becomes the smallest denormal of the value's sign.
  auto* sign = llvm::ConstantInt::get(bits_type, llvm::APInt::getSignMask(to->getScalarSizeInBits()));
  llvm::Value* magnitude = builder_.CreateAnd(bits, builder_.CreateNot(sign));
  llvm::Value* sign_bits = builder_.CreateSelect(negative, sign, zero);
  llvm::Value* shrink = builder_.CreateSelect(negative, too_low, too_high);
  llvm::Value* grow = builder_.CreateSelect(negative, too_high, too_low);
  auto* none = llvm::ConstantInt::getFalse(shrink->getType());
  switch (rounding_mode) {
  case spv::FPRoundingModeRTZ: grow = none; break;
  case spv::FPRoundingModeRTP:
    shrink = builder_.CreateAnd(negative, too_low);
    grow = builder_.CreateAnd(builder_.CreateNot(negative), too_low);
    break;
  case spv::FPRoundingModeRTN:
    shrink = builder_.CreateAnd(builder_.CreateNot(negative), too_high);
    grow = builder_.CreateAnd(negative, too_high);
    break;
  default: fail(inst, "unknown rounding mode");
  }
  llvm::Value* fixed =
      builder_.CreateSelect(shrink, builder_.CreateSub(magnitude, one),
                            builder_.CreateSelect(grow, builder_.CreateAdd(magnitude, one), magnitude));
  llvm::Value* changed = builder_.CreateOr(shrink, grow);
  llvm::Value* result = builder_.CreateSelect(changed, builder_.CreateOr(fixed, sign_bits), bits);
  return builder_.CreateBitCast(result, to);
}

void Reader::readConversion(const SpirvInst& inst) {
  llvm::Value* a = value(inst, inst.op(0));
  llvm::Type* to = valueType(inst, inst.type_id);
  llvm::Type* from = a->getType();
  refuseHandles(inst, type(inst, inst.type_id));
  refuseHandles(inst, typeOfValue(inst, inst.op(0)));
  auto count = [](llvm::Type* t) {
    auto* v = llvm::dyn_cast<llvm::FixedVectorType>(t);
    return v ? v->getNumElements() : 0u;
  };
  auto* to_scalar = to->getScalarType();
  auto* from_scalar = from->getScalarType();
  auto need = [&](bool from_ok, bool to_ok) {
    if (!from_ok || !to_ok || count(from) != count(to))
      fail(inst, "operand and result types do not fit the conversion");
  };
  bool saturated = decoration(inst.result_id, spv::DecorationSaturatedConversion) != nullptr;
  bool fi = from_scalar->isIntegerTy(), ff = from_scalar->isFloatingPointTy();
  bool ti = to_scalar->isIntegerTy(), tf = to_scalar->isFloatingPointTy();
  llvm::Value* v = nullptr;
  switch (inst.opcode) {
  case spv::OpConvertFToU:
  case spv::OpConvertFToS: {
    need(ff, ti);
    bool s = inst.opcode == spv::OpConvertFToS;
    a = roundForConversion(inst, a);
    if (saturated)
      v = builder_.CreateIntrinsic(s ? llvm::Intrinsic::fptosi_sat : llvm::Intrinsic::fptoui_sat, {to, from}, {a});
    else  // out of range is an undefined value, not poison
      v = builder_.CreateFreeze(s ? builder_.CreateFPToSI(a, to) : builder_.CreateFPToUI(a, to));
    break;
  }
  case spv::OpConvertSToF:
  case spv::OpConvertUToF:
    need(fi, tf);
    if (const Decoration* d = decoration(inst.result_id, spv::DecorationFPRoundingMode);
        d && !d->operands.empty() && d->operands[0] != spv::FPRoundingModeRTE)
      fail(inst,
           "rounding mode " + std::to_string(d->operands[0]) + " of an integer to float conversion is not supported");
    v = inst.opcode == spv::OpConvertSToF ? builder_.CreateSIToFP(a, to) : builder_.CreateUIToFP(a, to);
    break;
  case spv::OpUConvert:
  case spv::OpSConvert: {
    need(fi, ti);
    bool s = inst.opcode == spv::OpSConvert;
    if (saturated && to_scalar->getIntegerBitWidth() < from_scalar->getIntegerBitWidth()) {
      unsigned w = to_scalar->getIntegerBitWidth(), fw = from_scalar->getIntegerBitWidth();
      if (s) {
        a = builder_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, a,
                                           llvm::ConstantInt::get(from, llvm::APInt::getSignedMaxValue(w).sext(fw)));
        a = builder_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, a,
                                           llvm::ConstantInt::get(from, llvm::APInt::getSignedMinValue(w).sext(fw)));
      } else {
        a = builder_.CreateBinaryIntrinsic(llvm::Intrinsic::umin, a,
                                           llvm::ConstantInt::get(from, llvm::APInt::getMaxValue(w).zext(fw)));
      }
    }
    v = s ? builder_.CreateSExtOrTrunc(a, to) : builder_.CreateZExtOrTrunc(a, to);
    break;
  }
  case spv::OpSatConvertSToU:
  case spv::OpSatConvertUToS: {
    need(fi, ti);
    unsigned w = to_scalar->getIntegerBitWidth(), fw = from_scalar->getIntegerBitWidth();
    bool from_signed = inst.opcode == spv::OpSatConvertSToU;
    if (from_signed)
      a = builder_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, a, llvm::ConstantInt::get(from, 0));
    unsigned keep = from_signed ? w : w - 1;
    if (keep < fw)
      a = builder_.CreateBinaryIntrinsic(llvm::Intrinsic::umin, a,
                                         llvm::ConstantInt::get(from, llvm::APInt::getLowBitsSet(fw, keep)));
    v = builder_.CreateZExtOrTrunc(a, to);
    break;
  }
  case spv::OpFConvert: {
    need(ff, tf);
    const Decoration* d = decoration(inst.result_id, spv::DecorationFPRoundingMode);
    v = convertWithRounding(inst, a, to, d && !d->operands.empty() ? d->operands[0] : spv::FPRoundingModeRTE);
    break;
  }
  case spv::OpQuantizeToF16: {
    need(ff, tf);
    auto* half = from->getWithNewType(builder_.getHalfTy());
    v = builder_.CreateFPExt(builder_.CreateFPTrunc(a, half), from);
    break;
  }
  case spv::OpConvertPtrToU:
    need(from->isPointerTy(), ti && !to->isVectorTy());
    v = builder_.CreatePtrToInt(a, to);
    break;
  case spv::OpConvertUToPtr:
    need(fi && !from->isVectorTy(), to->isPointerTy());
    v = builder_.CreateIntToPtr(a, to);
    break;
  case spv::OpBitcast:
    if (from->isPointerTy() && to->isPointerTy()) {
      v = a;
    } else if (from->isPointerTy() && to->isIntegerTy(64)) {
      v = builder_.CreatePtrToInt(a, to);
    } else if (to->isPointerTy() && from->isIntegerTy(64)) {
      v = builder_.CreateIntToPtr(a, to);
    } else {
      if (!(fi || ff) || !(ti || tf) || from->getPrimitiveSizeInBits() != to->getPrimitiveSizeInBits())
        fail(inst, "operand and result differ in size");
      v = builder_.CreateBitCast(a, to);
    }
    break;
  default: fail(inst, "unsupported conversion");
  }
  setValue(inst, v);
}

}  // namespace zefuse::spirv
