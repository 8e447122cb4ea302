// Arithmetic, logic, bits, comparisons and selection.
#include "drivers/spirv/reader.h"

#include <spirv/unified1/spirv.hpp>

namespace zefuse::spirv {
namespace {

using llvm::CmpInst;
using llvm::Instruction;

enum class Kind : uint8_t { int_binary, float_binary, int_compare, float_compare };
struct ArithmeticRow {
  uint16_t opcode;
  Kind kind;
  unsigned llvm;
};

constexpr ArithmeticRow kArithmetic[] = {
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

const ArithmeticRow* findRow(uint16_t opcode) {
  for (const ArithmeticRow& r : kArithmetic)
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
    if (const Decoration* d = decoration(inst.result_id, spv::DecorationFPFastMathMode); d && !d->operands.empty()) {
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

llvm::Value* Reader::remainder(const SpirvInst& inst, llvm::Value* a, llvm::Value* b) {
  return target_.remainders ? builder_.CreateFRem(a, b) : callMath(inst, "fmod", a->getType(), {a, b});
}

bool Reader::readArith(const SpirvInst& inst) {
  auto arg = [&](size_t i) { return value(inst, inst.op(i)); };
  llvm::Value* v = nullptr;
  if (const ArithmeticRow* row = findRow(inst.opcode)) {
    llvm::Value *a = arg(0), *b = arg(1);
    requireSame(inst, a, b);
    switch (row->kind) {
    case Kind::int_binary:
      requireInt(inst, a);
      v = builder_.CreateBinOp(static_cast<Instruction::BinaryOps>(row->llvm), a, b);
      break;
    case Kind::float_binary:
      requireFloat(inst, a);
      v = inst.opcode == spv::OpFRem ? remainder(inst, a, b)
                                     : builder_.CreateBinOp(static_cast<Instruction::BinaryOps>(row->llvm), a, b);
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
  case spv::OpUDiv:
  case spv::OpSDiv:
  case spv::OpUMod:
  case spv::OpSRem:
  case spv::OpSMod: v = integerDivision(inst, arg(0), arg(1)); break;
  case spv::OpFMod: {
    llvm::Value *a = arg(0), *b = arg(1);
    requireSame(inst, a, b);
    requireFloat(inst, a);
    llvm::Value* r = remainder(inst, a, b);
    llvm::Value* zero = llvm::ConstantFP::get(a->getType(), 0.0);
    llvm::Value* differs = builder_.CreateXor(builder_.CreateFCmpOLT(r, zero), builder_.CreateFCmpOLT(b, zero));
    v = builder_.CreateSelect(builder_.CreateAnd(differs, builder_.CreateFCmpUNE(r, zero)), builder_.CreateFAdd(r, b),
                              r);
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
  case spv::OpNot:
  case spv::OpLogicalNot:
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
  case spv::OpShiftLeftLogical:
  case spv::OpShiftRightLogical:
  case spv::OpShiftRightArithmetic: {
    llvm::Value *a = arg(0), *b = arg(1);
    requireInt(inst, a);
    requireInt(inst, b);
    if (a->getType()->isVectorTy() != b->getType()->isVectorTy() ||
        (a->getType()->isVectorTy() && llvm::cast<llvm::FixedVectorType>(a->getType())->getNumElements() !=
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
  case spv::OpIAddCarry:
  case spv::OpISubBorrow:
  case spv::OpUMulExtended:
  case spv::OpSMulExtended: {
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
  case spv::OpAny:
  case spv::OpAll: {
    llvm::Value* a = arg(0);
    requireInt(inst, a);
    if (!a->getType()->isVectorTy())
      fail(inst, "operand is not a vector");
    if (!a->getType()->isIntOrIntVectorTy(1))  // clang-22 passes OpenCL C's integers: the sign bit counts
      a = builder_.CreateICmpSLT(a, llvm::ConstantInt::get(a->getType(), 0));
    v = inst.opcode == spv::OpAny ? builder_.CreateOrReduce(a) : builder_.CreateAndReduce(a);
    break;
  }
  case spv::OpIsNan:
  case spv::OpIsInf:
  case spv::OpIsFinite:
  case spv::OpIsNormal:
  case spv::OpSignBitSet: {
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
      auto* smallest =
          llvm::ConstantFP::get(ty, llvm::APFloat::getSmallestNormalized(ty->getScalarType()->getFltSemantics()));
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
  case spv::OpCopyObject:
  case spv::OpExpectKHR: v = arg(0); break;
  case spv::OpAssumeTrueKHR: return true;
  case spv::OpConvertFToU:
  case spv::OpConvertFToS:
  case spv::OpConvertSToF:
  case spv::OpConvertUToF:
  case spv::OpUConvert:
  case spv::OpSConvert:
  case spv::OpFConvert:
  case spv::OpQuantizeToF16:
  case spv::OpSatConvertSToU:
  case spv::OpSatConvertUToS:
  case spv::OpBitcast:
  case spv::OpConvertPtrToU:
  case spv::OpConvertUToPtr: readConversion(inst); return true;
  default: return false;
  }
  setValue(inst, v);
  return true;
}

}  // namespace zefuse::spirv
