// Arithmetic, logic, bits, comparisons, selection and conversions.
#include "runtime/cpu_driver/codegen/reader.h"

#include <spirv/unified1/spirv.hpp>

namespace zefuse::cpu {
namespace {

using llvm::CmpInst;
using llvm::Instruction;

enum class Kind : uint8_t { int_binary, float_binary, int_compare, float_compare };
struct Row { uint16_t opcode; Kind kind; unsigned llvm; };

constexpr Row kRows[] = {
    {spv::OpIAdd, Kind::int_binary, Instruction::Add},
    {spv::OpISub, Kind::int_binary, Instruction::Sub},
    {spv::OpIMul, Kind::int_binary, Instruction::Mul},
    {spv::OpBitwiseAnd, Kind::int_binary, Instruction::And},
    {spv::OpBitwiseOr, Kind::int_binary, Instruction::Or},
    {spv::OpBitwiseXor, Kind::int_binary, Instruction::Xor},
    {spv::OpLogicalAnd, Kind::int_binary, Instruction::And},
    {spv::OpLogicalOr, Kind::int_binary, Instruction::Or},
    {spv::OpFAdd, Kind::float_binary, Instruction::FAdd},
    {spv::OpFSub, Kind::float_binary, Instruction::FSub},
    {spv::OpFMul, Kind::float_binary, Instruction::FMul},
    {spv::OpFDiv, Kind::float_binary, Instruction::FDiv},
    {spv::OpFRem, Kind::float_binary, Instruction::FRem},
    {spv::OpIEqual, Kind::int_compare, CmpInst::ICMP_EQ},
    {spv::OpINotEqual, Kind::int_compare, CmpInst::ICMP_NE},
    {spv::OpLogicalEqual, Kind::int_compare, CmpInst::ICMP_EQ},
    {spv::OpLogicalNotEqual, Kind::int_compare, CmpInst::ICMP_NE},
    {spv::OpUGreaterThan, Kind::int_compare, CmpInst::ICMP_UGT},
    {spv::OpSGreaterThan, Kind::int_compare, CmpInst::ICMP_SGT},
    {spv::OpUGreaterThanEqual, Kind::int_compare, CmpInst::ICMP_UGE},
    {spv::OpSGreaterThanEqual, Kind::int_compare, CmpInst::ICMP_SGE},
    {spv::OpULessThan, Kind::int_compare, CmpInst::ICMP_ULT},
    {spv::OpSLessThan, Kind::int_compare, CmpInst::ICMP_SLT},
    {spv::OpULessThanEqual, Kind::int_compare, CmpInst::ICMP_ULE},
    {spv::OpSLessThanEqual, Kind::int_compare, CmpInst::ICMP_SLE},
    {spv::OpFOrdEqual, Kind::float_compare, CmpInst::FCMP_OEQ},
    {spv::OpFUnordEqual, Kind::float_compare, CmpInst::FCMP_UEQ},
    {spv::OpFOrdNotEqual, Kind::float_compare, CmpInst::FCMP_ONE},
    {spv::OpLessOrGreater, Kind::float_compare, CmpInst::FCMP_ONE},
    {spv::OpFUnordNotEqual, Kind::float_compare, CmpInst::FCMP_UNE},
    {spv::OpFOrdLessThan, Kind::float_compare, CmpInst::FCMP_OLT},
    {spv::OpFUnordLessThan, Kind::float_compare, CmpInst::FCMP_ULT},
    {spv::OpFOrdGreaterThan, Kind::float_compare, CmpInst::FCMP_OGT},
    {spv::OpFUnordGreaterThan, Kind::float_compare, CmpInst::FCMP_UGT},
    {spv::OpFOrdLessThanEqual, Kind::float_compare, CmpInst::FCMP_OLE},
    {spv::OpFUnordLessThanEqual, Kind::float_compare, CmpInst::FCMP_ULE},
    {spv::OpFOrdGreaterThanEqual, Kind::float_compare, CmpInst::FCMP_OGE},
    {spv::OpFUnordGreaterThanEqual, Kind::float_compare, CmpInst::FCMP_UGE},
    {spv::OpOrdered, Kind::float_compare, CmpInst::FCMP_ORD},
    {spv::OpUnordered, Kind::float_compare, CmpInst::FCMP_UNO},
};

const Row* findRow(uint16_t opcode) {
  for (const Row& r : kRows)
    if (r.opcode == opcode)
      return &r;
  return nullptr;
}

}  // namespace

void Reader::applyFastMath(const SpirvInst& inst, llvm::Value* v) {
  auto* i = llvm::dyn_cast<llvm::Instruction>(v);
  if (!i || inst.result_id == 0)
    return;
  if (llvm::isa<llvm::FPMathOperator>(i)) {
    if (const Decoration* d = decoration(inst.result_id, spv::DecorationFPFastMathMode);
        d && !d->operands.empty()) {
      uint32_t m = d->operands[0];
      llvm::FastMathFlags f;
      if (m & spv::FPFastMathModeFastMask)
        f.setFast();
      f.setNoNaNs(f.noNaNs() || (m & spv::FPFastMathModeNotNaNMask));
      f.setNoInfs(f.noInfs() || (m & spv::FPFastMathModeNotInfMask));
      f.setNoSignedZeros(f.noSignedZeros() || (m & spv::FPFastMathModeNSZMask));
      f.setAllowReciprocal(f.allowReciprocal() || (m & spv::FPFastMathModeAllowRecipMask));
      f.setAllowContract(f.allowContract() || (m & 0x10000));
      f.setAllowReassoc(f.allowReassoc() || (m & 0x20000));
      i->setFastMathFlags(f);
    }
  }
  if (llvm::isa<llvm::OverflowingBinaryOperator>(i)) {
    if (decoration(inst.result_id, spv::DecorationNoSignedWrap))
      i->setHasNoSignedWrap(true);
    if (decoration(inst.result_id, spv::DecorationNoUnsignedWrap))
      i->setHasNoUnsignedWrap(true);
  }
}

// A division that traps on the CPU (by zero, or the smallest integer by -1) has an undefined value in SPIR-V, not an
// undefined behaviour: the divisor becomes 1 there.
llvm::Value* Reader::integerDivision(const SpirvInst& inst, llvm::Value* a, llvm::Value* b) {
  requireInt(inst, a);
  requireSame(inst, a, b);
  bool is_signed = inst.opcode == spv::OpSDiv || inst.opcode == spv::OpSRem || inst.opcode == spv::OpSMod;
  auto* ty = a->getType();
  unsigned bits = ty->getScalarSizeInBits();
  auto* one = llvm::ConstantInt::get(ty, 1);
  llvm::Value* bad = builder_.CreateICmpEQ(b, llvm::ConstantInt::get(ty, 0));
  if (is_signed) {
    auto* smallest = llvm::ConstantInt::get(ty, llvm::APInt::getSignedMinValue(bits));
    bad = builder_.CreateOr(bad, builder_.CreateAnd(builder_.CreateICmpEQ(a, smallest),
                                                    builder_.CreateICmpEQ(b, llvm::Constant::getAllOnesValue(ty))));
  }
  llvm::Value* d = builder_.CreateSelect(bad, one, builder_.CreateFreeze(b));
  if (auto* c = llvm::dyn_cast<llvm::Constant>(b); c && !c->containsUndefOrPoisonElement()) {
    bool safe = true;
    unsigned n = ty->isVectorTy() ? llvm::cast<llvm::FixedVectorType>(ty)->getNumElements() : 1;
    for (unsigned i = 0; i < n; ++i) {
      auto* e = ty->isVectorTy() ? c->getAggregateElement(i) : c;
      auto* k = llvm::dyn_cast_or_null<llvm::ConstantInt>(e);
      safe &= k && !k->isZero() && !k->isMinusOne();
    }
    if (safe)
      d = b;
  }
  switch (inst.opcode) {
  case spv::OpUDiv: return builder_.CreateUDiv(a, d);
  case spv::OpSDiv: return builder_.CreateSDiv(a, d);
  case spv::OpUMod: return builder_.CreateURem(a, d);
  case spv::OpSRem: return builder_.CreateSRem(a, d);
  default: {  // OpSMod: the sign of the divisor
    llvm::Value* r = builder_.CreateSRem(a, d);
    llvm::Value* zero = llvm::ConstantInt::get(ty, 0);
    llvm::Value* differs = builder_.CreateICmpSLT(builder_.CreateXor(r, d), zero);
    llvm::Value* fix = builder_.CreateAnd(builder_.CreateICmpNE(r, zero), differs);
    return builder_.CreateSelect(fix, builder_.CreateAdd(r, d), r);
  }
  }
}

bool Reader::readArith(const SpirvInst& inst) {
  auto arg = [&](size_t i) { return value(inst, inst.op(i)); };
  llvm::Value* v = nullptr;
  if (const Row* row = findRow(inst.opcode)) {
    llvm::Value *a = arg(0), *b = arg(1);
    requireSame(inst, a, b);
    switch (row->kind) {
    case Kind::int_binary:
      requireInt(inst, a);
      v = builder_.CreateBinOp(static_cast<Instruction::BinaryOps>(row->llvm), a, b);
      break;
    case Kind::float_binary:
      requireFloat(inst, a);
      v = builder_.CreateBinOp(static_cast<Instruction::BinaryOps>(row->llvm), a, b);
      break;
    case Kind::int_compare:
      requireInt(inst, a);
      v = builder_.CreateICmp(static_cast<CmpInst::Predicate>(row->llvm), a, b);
      break;
    case Kind::float_compare:
      requireFloat(inst, a);
      v = builder_.CreateFCmp(static_cast<CmpInst::Predicate>(row->llvm), a, b);
      break;
    }
    applyFastMath(inst, v);
    setValue(inst, v);
    return true;
  }
  switch (inst.opcode) {
  case spv::OpUDiv: case spv::OpSDiv: case spv::OpUMod: case spv::OpSRem: case spv::OpSMod:
    v = integerDivision(inst, arg(0), arg(1));
    break;
  case spv::OpFMod: {
    llvm::Value *a = arg(0), *b = arg(1);
    requireSame(inst, a, b);
    requireFloat(inst, a);
    llvm::Value* r = builder_.CreateFRem(a, b);
    llvm::Value* zero = llvm::ConstantFP::get(a->getType(), 0.0);
    llvm::Value* differs = builder_.CreateXor(builder_.CreateFCmpOLT(r, zero), builder_.CreateFCmpOLT(b, zero));
    v = builder_.CreateSelect(builder_.CreateAnd(differs, builder_.CreateFCmpUNE(r, zero)),
                              builder_.CreateFAdd(r, b), r);
    break;
  }
  case spv::OpSNegate:
    requireInt(inst, arg(0));
    v = builder_.CreateNeg(arg(0));
    break;
  case spv::OpFNegate:
    requireFloat(inst, arg(0));
    v = builder_.CreateFNeg(arg(0));
    applyFastMath(inst, v);
    break;
  case spv::OpNot: case spv::OpLogicalNot:
    requireInt(inst, arg(0));
    v = builder_.CreateNot(arg(0));
    break;
  case spv::OpVectorTimesScalar: {
    llvm::Value *a = arg(0), *s = arg(1);
    auto* vec = llvm::dyn_cast<llvm::FixedVectorType>(a->getType());
    if (!vec || vec->getElementType() != s->getType() || !s->getType()->isFloatingPointTy())
      fail(inst, "operands are not a vector and its scalar");
    v = builder_.CreateFMul(a, builder_.CreateVectorSplat(vec->getNumElements(), s));
    break;
  }
  case spv::OpDot: {
    llvm::Value *a = arg(0), *b = arg(1);
    requireSame(inst, a, b);
    requireFloat(inst, a);
    auto* vec = llvm::dyn_cast<llvm::FixedVectorType>(a->getType());
    if (!vec)
      fail(inst, "operand is not a vector");
    llvm::Value* p = builder_.CreateFMul(a, b);
    v = builder_.CreateExtractElement(p, uint64_t{0});
    for (unsigned i = 1; i < vec->getNumElements(); ++i)
      v = builder_.CreateFAdd(v, builder_.CreateExtractElement(p, i));
    break;
  }
  case spv::OpShiftLeftLogical: case spv::OpShiftRightLogical: case spv::OpShiftRightArithmetic: {
    llvm::Value *a = arg(0), *b = arg(1);
    requireInt(inst, a);
    requireInt(inst, b);
    if (a->getType()->isVectorTy() != b->getType()->isVectorTy() ||
        (a->getType()->isVectorTy() &&
         llvm::cast<llvm::FixedVectorType>(a->getType())->getNumElements() !=
             llvm::cast<llvm::FixedVectorType>(b->getType())->getNumElements()))
      fail(inst, "shift amount does not fit the base");
    b = builder_.CreateZExtOrTrunc(b, a->getType());
    // Amounts beyond the width are undefined values in SPIR-V but poison in LLVM, which could spread to branches.
    b = builder_.CreateAnd(b, llvm::ConstantInt::get(a->getType(), a->getType()->getScalarSizeInBits() - 1));
    v = inst.opcode == spv::OpShiftLeftLogical    ? builder_.CreateShl(a, b)
        : inst.opcode == spv::OpShiftRightLogical ? builder_.CreateLShr(a, b)
                                                  : builder_.CreateAShr(a, b);
    break;
  }
  case spv::OpBitCount:
    requireInt(inst, arg(0));
    v = builder_.CreateUnaryIntrinsic(llvm::Intrinsic::ctpop, arg(0));
    v = builder_.CreateZExtOrTrunc(v, valueType(inst, inst.type_id)->isVectorTy() == v->getType()->isVectorTy()
                                          ? valueType(inst, inst.type_id)
                                          : v->getType());
    break;
  case spv::OpBitReverse:
    requireInt(inst, arg(0));
    v = builder_.CreateUnaryIntrinsic(llvm::Intrinsic::bitreverse, arg(0));
    break;
  case spv::OpIAddCarry: case spv::OpISubBorrow: case spv::OpUMulExtended: case spv::OpSMulExtended: {
    llvm::Value *a = arg(0), *b = arg(1);
    requireSame(inst, a, b);
    requireInt(inst, a);
    const Type& t = type(inst, inst.type_id);
    auto* st = llvm::dyn_cast_or_null<llvm::StructType>(t.llvm);
    if (!st || st->getNumElements() != 2 || st->getElementType(0) != a->getType() ||
        st->getElementType(1) != a->getType())
      fail(inst, "result is not a struct of two values of the operands' type");
    llvm::Value *lo, *hi;
    if (inst.opcode == spv::OpIAddCarry) {
      lo = builder_.CreateAdd(a, b);
      hi = builder_.CreateZExt(builder_.CreateICmpULT(lo, a), a->getType());
    } else if (inst.opcode == spv::OpISubBorrow) {
      lo = builder_.CreateSub(a, b);
      hi = builder_.CreateZExt(builder_.CreateICmpULT(a, b), a->getType());
    } else {
      auto* wide = a->getType()->getExtendedType();
      bool s = inst.opcode == spv::OpSMulExtended;
      llvm::Value* p = builder_.CreateMul(s ? builder_.CreateSExt(a, wide) : builder_.CreateZExt(a, wide),
                                          s ? builder_.CreateSExt(b, wide) : builder_.CreateZExt(b, wide));
      lo = builder_.CreateTrunc(p, a->getType());
      hi = builder_.CreateTrunc(
          builder_.CreateLShr(p, llvm::ConstantInt::get(wide, a->getType()->getScalarSizeInBits())), a->getType());
    }
    v = builder_.CreateInsertValue(builder_.CreateInsertValue(llvm::PoisonValue::get(st), lo, 0), hi, 1);
    break;
  }
  case spv::OpAny: case spv::OpAll: {
    llvm::Value* a = arg(0);
    requireInt(inst, a);
    if (!a->getType()->isVectorTy())
      fail(inst, "operand is not a vector");
    if (!a->getType()->isIntOrIntVectorTy(1))  // clang-22 passes OpenCL C's integers: the sign bit counts
      a = builder_.CreateICmpSLT(a, llvm::ConstantInt::get(a->getType(), 0));
    v = inst.opcode == spv::OpAny ? builder_.CreateOrReduce(a) : builder_.CreateAndReduce(a);
    break;
  }
  case spv::OpIsNan: case spv::OpIsInf: case spv::OpIsFinite: case spv::OpIsNormal: case spv::OpSignBitSet: {
    llvm::Value* a = arg(0);
    requireFloat(inst, a);
    auto* ty = a->getType();
    if (inst.opcode == spv::OpSignBitSet) {
      auto* int_type = ty->isVectorTy()
                           ? static_cast<llvm::Type*>(llvm::VectorType::getInteger(llvm::cast<llvm::VectorType>(ty)))
                           : builder_.getIntNTy(ty->getScalarSizeInBits());
      v = builder_.CreateICmpSLT(builder_.CreateBitCast(a, int_type), llvm::ConstantInt::get(int_type, 0));
      break;
    }
    llvm::Value* abs = builder_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, a);
    auto* inf = llvm::ConstantFP::getInfinity(ty);
    if (inst.opcode == spv::OpIsNan) {
      v = builder_.CreateFCmpUNO(a, a);
    } else if (inst.opcode == spv::OpIsInf) {
      v = builder_.CreateFCmpOEQ(abs, inf);
    } else if (inst.opcode == spv::OpIsFinite) {
      v = builder_.CreateFCmpOLT(abs, inf);
    } else {
      auto* smallest = llvm::ConstantFP::get(
          ty, llvm::APFloat::getSmallestNormalized(ty->getScalarType()->getFltSemantics()));
      v = builder_.CreateAnd(builder_.CreateFCmpOLT(abs, inf), builder_.CreateFCmpOGE(abs, smallest));
    }
    break;
  }
  case spv::OpSelect: {
    llvm::Value *c = arg(0), *a = arg(1), *b = arg(2);
    requireBool(inst, c);
    requireSame(inst, a, b);
    if (auto* cv = llvm::dyn_cast<llvm::FixedVectorType>(c->getType())) {
      auto* av = llvm::dyn_cast<llvm::FixedVectorType>(a->getType());
      if (!av || av->getNumElements() != cv->getNumElements())
        fail(inst, "condition does not fit the operands");
    }
    v = builder_.CreateSelect(c, a, b);
    break;
  }
  case spv::OpCopyObject: case spv::OpExpectKHR:
    v = arg(0);
    break;
  case spv::OpAssumeTrueKHR:
    return true;
  case spv::OpConvertFToU: case spv::OpConvertFToS: case spv::OpConvertSToF: case spv::OpConvertUToF:
  case spv::OpUConvert: case spv::OpSConvert: case spv::OpFConvert: case spv::OpQuantizeToF16:
  case spv::OpSatConvertSToU: case spv::OpSatConvertUToS: case spv::OpBitcast:
  case spv::OpConvertPtrToU: case spv::OpConvertUToPtr:
    readConversion(inst);
    return true;
  default:
    return false;
  }
  setValue(inst, v);
  return true;
}

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
  auto* bits_type = to->isVectorTy() ? llvm::cast<llvm::Type>(llvm::VectorType::getInteger(
                                           llvm::cast<llvm::VectorType>(to)))
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
  llvm::Value* fixed = builder_.CreateSelect(shrink, builder_.CreateSub(magnitude, one),
                                             builder_.CreateSelect(grow, builder_.CreateAdd(magnitude, one), magnitude));
  llvm::Value* changed = builder_.CreateOr(shrink, grow);
  llvm::Value* result = builder_.CreateSelect(changed, builder_.CreateOr(fixed, sign_bits), bits);
  return builder_.CreateBitCast(result, to);
}

void Reader::readConversion(const SpirvInst& inst) {
  llvm::Value* a = value(inst, inst.op(0));
  llvm::Type* to = valueType(inst, inst.type_id);
  llvm::Type* from = a->getType();
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
  case spv::OpConvertFToU: case spv::OpConvertFToS: {
    need(ff, ti);
    bool s = inst.opcode == spv::OpConvertFToS;
    a = roundForConversion(inst, a);
    if (saturated)
      v = builder_.CreateIntrinsic(s ? llvm::Intrinsic::fptosi_sat : llvm::Intrinsic::fptoui_sat, {to, from}, {a});
    else  // out of range is an undefined value, not poison
      v = builder_.CreateFreeze(s ? builder_.CreateFPToSI(a, to) : builder_.CreateFPToUI(a, to));
    break;
  }
  case spv::OpConvertSToF: case spv::OpConvertUToF:
    need(fi, tf);
    if (const Decoration* d = decoration(inst.result_id, spv::DecorationFPRoundingMode);
        d && !d->operands.empty() && d->operands[0] != spv::FPRoundingModeRTE)
      fail(inst, "rounding mode " + std::to_string(d->operands[0]) + " of an integer to float conversion is not supported");
    v = inst.opcode == spv::OpConvertSToF ? builder_.CreateSIToFP(a, to) : builder_.CreateUIToFP(a, to);
    break;
  case spv::OpUConvert: case spv::OpSConvert: {
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
  case spv::OpSatConvertSToU: case spv::OpSatConvertUToS: {
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
  default:
    fail(inst, "unsupported conversion");
  }
  setValue(inst, v);
}

// Vectors and aggregates, part by part.
bool Reader::readComposite(const SpirvInst& inst) {
  auto vectorLength = [](llvm::Type* t) -> uint64_t {
    auto* v = llvm::dyn_cast<llvm::FixedVectorType>(t);
    return v ? v->getNumElements() : 0;
  };
  // Splits a literal path into the aggregate part and, last, a vector's element.
  struct Path { std::vector<unsigned> aggregate; std::optional<unsigned> element; llvm::Type* type; };
  auto walk = [&](llvm::Type* t, size_t first) {
    Path p{{}, std::nullopt, t};
    for (size_t i = first; i < inst.operands.size(); ++i) {
      uint32_t index = inst.op(i);
      if (p.element)
        fail(inst, "index into a scalar");
      if (uint64_t n = vectorLength(p.type)) {
        if (index >= n)
          fail(inst, "index " + std::to_string(index) + " is out of range");
        p.element = index;
        p.type = p.type->getScalarType();
      } else if (auto* a = llvm::dyn_cast<llvm::ArrayType>(p.type)) {
        if (index >= a->getNumElements())
          fail(inst, "index " + std::to_string(index) + " is out of range");
        p.aggregate.push_back(index);
        p.type = a->getElementType();
      } else if (auto* s = llvm::dyn_cast<llvm::StructType>(p.type)) {
        if (index >= s->getNumElements())
          fail(inst, "index " + std::to_string(index) + " is out of range");
        p.aggregate.push_back(index);
        p.type = s->getElementType(index);
      } else {
        fail(inst, "index into a scalar");
      }
    }
    return p;
  };
  llvm::Value* v = nullptr;
  switch (inst.opcode) {
  case spv::OpCompositeExtract: {
    v = value(inst, inst.op(0));
    Path p = walk(v->getType(), 1);
    if (!p.aggregate.empty())
      v = builder_.CreateExtractValue(v, p.aggregate);
    if (p.element)
      v = builder_.CreateExtractElement(v, *p.element);
    break;
  }
  case spv::OpCompositeInsert: {
    llvm::Value *part = value(inst, inst.op(0)), *whole = value(inst, inst.op(1));
    Path p = walk(whole->getType(), 2);
    if (p.type != part->getType())
      fail(inst, "inserted part has the wrong type");
    if (p.element) {
      llvm::Value* vec = p.aggregate.empty() ? whole : builder_.CreateExtractValue(whole, p.aggregate);
      part = builder_.CreateInsertElement(vec, part, *p.element);
    }
    v = p.aggregate.empty() ? part : builder_.CreateInsertValue(whole, part, p.aggregate);
    break;
  }
  case spv::OpCompositeConstruct: {
    const Type& t = type(inst, inst.type_id);
    checkFirstClass(inst, t);
    valueType(inst, inst.type_id);
    v = llvm::PoisonValue::get(t.llvm);
    if (uint64_t n = vectorLength(t.llvm)) {
      uint64_t at = 0;
      for (size_t i = 0; i < inst.operands.size(); ++i) {
        llvm::Value* part = value(inst, inst.op(i));
        uint64_t m = vectorLength(part->getType());
        if (part->getType()->getScalarType() != t.llvm->getScalarType() || at + std::max<uint64_t>(m, 1) > n)
          fail(inst, "part " + std::to_string(i) + " does not fit the vector");
        if (m == 0)
          v = builder_.CreateInsertElement(v, part, at++);
        for (uint64_t e = 0; e < m; ++e)
          v = builder_.CreateInsertElement(v, builder_.CreateExtractElement(part, e), at++);
      }
      if (at != n)
        fail(inst, "too few parts for the vector");
    } else if (t.llvm->isAggregateType()) {
      uint64_t n = t.llvm->isArrayTy() ? t.llvm->getArrayNumElements() : t.llvm->getStructNumElements();
      if (inst.operands.size() != n)
        fail(inst, "number of parts does not fit the type");
      for (size_t i = 0; i < n; ++i) {
        llvm::Value* part = value(inst, inst.op(i));
        if (part->getType() != llvm::ExtractValueInst::getIndexedType(t.llvm, {static_cast<unsigned>(i)}))
          fail(inst, "part " + std::to_string(i) + " has the wrong type");
        v = builder_.CreateInsertValue(v, part, i);
      }
    } else {
      fail(inst, "result is not a composite");
    }
    break;
  }
  case spv::OpVectorShuffle: {
    llvm::Value *a = value(inst, inst.op(0)), *b = value(inst, inst.op(1));
    uint64_t na = vectorLength(a->getType()), nb = vectorLength(b->getType());
    if (na == 0 || nb == 0 || a->getType()->getScalarType() != b->getType()->getScalarType())
      fail(inst, "operands are not vectors of one type");
    uint64_t n = std::max(na, nb);
    auto widen = [&](llvm::Value* x, uint64_t m) {
      if (m == n)
        return x;
      llvm::SmallVector<int> mask(n, -1);
      for (uint64_t i = 0; i < m; ++i)
        mask[i] = i;
      return builder_.CreateShuffleVector(x, mask);
    };
    llvm::SmallVector<int> mask;
    for (size_t i = 2; i < inst.operands.size(); ++i) {
      uint32_t index = inst.op(i);
      if (index != 0xffffffff && index >= na + nb)
        fail(inst, "index " + std::to_string(index) + " is out of range");
      mask.push_back(index == 0xffffffff ? -1 : index < na ? index : n + (index - na));
    }
    if (mask.empty())
      fail(inst, "shuffle without indices");
    v = builder_.CreateShuffleVector(widen(a, na), widen(b, nb), mask);
    if (std::find(mask.begin(), mask.end(), -1) != mask.end())
      v = builder_.CreateFreeze(v);  // undefined, not poison
    break;
  }
  case spv::OpVectorExtractDynamic: case spv::OpVectorInsertDynamic: {
    llvm::Value* vec = value(inst, inst.op(0));
    bool insert = inst.opcode == spv::OpVectorInsertDynamic;
    llvm::Value* index = value(inst, inst.op(insert ? 2 : 1));
    uint64_t n = vectorLength(vec->getType());
    if (n == 0 || !index->getType()->isIntegerTy())
      fail(inst, "operands are not a vector and an index");
    // An index out of range gives an undefined value; LLVM would give poison.
    index = builder_.CreateZExtOrTrunc(index, builder_.getInt64Ty());
    index = n == 3 ? builder_.CreateBinaryIntrinsic(llvm::Intrinsic::umin, index, builder_.getInt64(2))
                   : builder_.CreateAnd(index, n - 1);
    if (insert) {
      llvm::Value* part = value(inst, inst.op(1));
      if (part->getType() != vec->getType()->getScalarType())
        fail(inst, "inserted part has the wrong type");
      v = builder_.CreateInsertElement(vec, part, index);
    } else {
      v = builder_.CreateExtractElement(vec, index);
    }
    break;
  }
  default:
    return false;
  }
  setValue(inst, v);
  return true;
}

}  // namespace zefuse::cpu
