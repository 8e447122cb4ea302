// OpExtInst of OpenCL.std: integer functions, selections by bits.
#include "drivers/spirv/reader.h"

#include <spirv/unified1/OpenCL.std.h>

namespace zefuse::spirv {
namespace {

struct IntegerRow {
  uint16_t op;
  llvm::Intrinsic::ID id;
};
constexpr IntegerRow kIntegers[] = {
    {OpenCLLIB::SAdd_sat, llvm::Intrinsic::sadd_sat}, {OpenCLLIB::UAdd_sat, llvm::Intrinsic::uadd_sat},
    {OpenCLLIB::SSub_sat, llvm::Intrinsic::ssub_sat}, {OpenCLLIB::USub_sat, llvm::Intrinsic::usub_sat},
    {OpenCLLIB::SMax, llvm::Intrinsic::smax},         {OpenCLLIB::UMax, llvm::Intrinsic::umax},
    {OpenCLLIB::SMin, llvm::Intrinsic::smin},         {OpenCLLIB::UMin, llvm::Intrinsic::umin},
};

}  // namespace

llvm::Value* Reader::extInteger(const SpirvInst& inst, uint32_t op, llvm::Type* result,
                                llvm::ArrayRef<llvm::Value*> args) {
  auto& b = builder_;
  auto ints = [&](size_t count) {
    if (args.size() != count)
      fail(inst, "instruction takes " + std::to_string(count) + " operands");
    for (llvm::Value* a : args) {
      requireInt(inst, a);
      requireSame(inst, a, args[0]);
    }
    if (result != args[0]->getType() || result->getScalarSizeInBits() < 8)
      fail(inst, "operand and result differ in type");
  };
  auto number = [&](uint64_t x) { return llvm::ConstantInt::get(args[0]->getType(), x); };
  auto binary = [&](llvm::Intrinsic::ID id, llvm::Value* x, llvm::Value* y) {
    return b.CreateBinaryIntrinsic(id, x, y);
  };
  auto mulHi = [&](llvm::Value* x, llvm::Value* y, bool s) {
    auto* wide = x->getType()->getExtendedType();
    llvm::Value* p = b.CreateMul(s ? b.CreateSExt(x, wide) : b.CreateZExt(x, wide),
                                 s ? b.CreateSExt(y, wide) : b.CreateZExt(y, wide));
    return b.CreateTrunc(b.CreateLShr(p, llvm::ConstantInt::get(wide, x->getType()->getScalarSizeInBits())),
                         x->getType());
  };
  auto mul24 = [&](bool s) {
    auto cut = [&](llvm::Value* x) {
      return s ? b.CreateAShr(b.CreateShl(x, number(8)), number(8)) : b.CreateAnd(x, number(0xffffff));
    };
    if (result->getScalarSizeInBits() != 32)
      fail(inst, "operand is not a 32-bit integer");
    return b.CreateMul(cut(args[0]), cut(args[1]));
  };
  for (const IntegerRow& r : kIntegers)
    if (r.op == op) {
      ints(2);
      return binary(r.id, args[0], args[1]);
    }
  switch (op) {
  case OpenCLLIB::SAbs: ints(1); return b.CreateIntrinsic(llvm::Intrinsic::abs, {result}, {args[0], b.getFalse()});
  case OpenCLLIB::UAbs: ints(1); return args[0];
  case OpenCLLIB::SAbs_diff:
  case OpenCLLIB::UAbs_diff: {
    ints(2);
    bool s = op == OpenCLLIB::SAbs_diff;
    return b.CreateSub(binary(s ? llvm::Intrinsic::smax : llvm::Intrinsic::umax, args[0], args[1]),
                       binary(s ? llvm::Intrinsic::smin : llvm::Intrinsic::umin, args[0], args[1]));
  }
  case OpenCLLIB::SHadd:
  case OpenCLLIB::UHadd:
  case OpenCLLIB::SRhadd:
  case OpenCLLIB::URhadd: {
    ints(2);
    bool s = op == OpenCLLIB::SHadd || op == OpenCLLIB::SRhadd;
    bool up = op == OpenCLLIB::SRhadd || op == OpenCLLIB::URhadd;
    llvm::Value* half = b.CreateXor(args[0], args[1]);
    half = s ? b.CreateAShr(half, number(1)) : b.CreateLShr(half, number(1));
    return up ? b.CreateSub(b.CreateOr(args[0], args[1]), half) : b.CreateAdd(b.CreateAnd(args[0], args[1]), half);
  }
  case OpenCLLIB::SClamp:
  case OpenCLLIB::UClamp: {
    ints(3);
    bool s = op == OpenCLLIB::SClamp;
    return binary(s ? llvm::Intrinsic::smin : llvm::Intrinsic::umin,
                  binary(s ? llvm::Intrinsic::smax : llvm::Intrinsic::umax, args[0], args[1]), args[2]);
  }
  case OpenCLLIB::Clz:
  case OpenCLLIB::Ctz:
    ints(1);
    return b.CreateIntrinsic(op == OpenCLLIB::Clz ? llvm::Intrinsic::ctlz : llvm::Intrinsic::cttz, {result},
                             {args[0], b.getFalse()});
  case OpenCLLIB::Popcount: ints(1); return b.CreateUnaryIntrinsic(llvm::Intrinsic::ctpop, args[0]);
  case OpenCLLIB::SMul_hi:
  case OpenCLLIB::UMul_hi: ints(2); return mulHi(args[0], args[1], op == OpenCLLIB::SMul_hi);
  case OpenCLLIB::SMad_hi:
  case OpenCLLIB::UMad_hi: ints(3); return b.CreateAdd(mulHi(args[0], args[1], op == OpenCLLIB::SMad_hi), args[2]);
  case OpenCLLIB::SMad_sat:
  case OpenCLLIB::UMad_sat: {
    ints(3);
    bool s = op == OpenCLLIB::SMad_sat;
    unsigned w = result->getScalarSizeInBits();
    auto* wide = result->getExtendedType();
    auto extend = [&](llvm::Value* x) { return s ? b.CreateSExt(x, wide) : b.CreateZExt(x, wide); };
    llvm::Value* v = b.CreateAdd(b.CreateMul(extend(args[0]), extend(args[1])), extend(args[2]));
    auto limit = [&](llvm::APInt a) { return llvm::ConstantInt::get(wide, a); };
    if (s) {
      v = binary(llvm::Intrinsic::smin, v, limit(llvm::APInt::getSignedMaxValue(w).sext(2 * w)));
      v = binary(llvm::Intrinsic::smax, v, limit(llvm::APInt::getSignedMinValue(w).sext(2 * w)));
    } else {
      v = binary(llvm::Intrinsic::umin, v, limit(llvm::APInt::getMaxValue(w).zext(2 * w)));
    }
    return b.CreateTrunc(v, result);
  }
  case OpenCLLIB::Rotate:
    ints(2);
    return b.CreateIntrinsic(llvm::Intrinsic::fshl, {result}, {args[0], args[0], args[1]});
  case OpenCLLIB::SMul24:
  case OpenCLLIB::UMul24: ints(2); return mul24(op == OpenCLLIB::SMul24);
  case OpenCLLIB::SMad24:
  case OpenCLLIB::UMad24: ints(3); return b.CreateAdd(mul24(op == OpenCLLIB::SMad24), args[2]);
  case OpenCLLIB::U_Upsample:
  case OpenCLLIB::S_Upsample: {
    if (args.size() != 2)
      fail(inst, "instruction takes 2 operands");
    requireInt(inst, args[0]);
    requireSame(inst, args[0], args[1]);
    unsigned w = args[0]->getType()->getScalarSizeInBits();
    if (w < 8 || w > 32 || result != args[0]->getType()->getExtendedType())
      fail(inst, "result is not twice as wide as the operands");
    return b.CreateOr(b.CreateShl(b.CreateZExt(args[0], result), llvm::ConstantInt::get(result, w)),
                      b.CreateZExt(args[1], result));
  }
  case OpenCLLIB::Bitselect: {
    if (args.size() != 3 || result != args[0]->getType())
      fail(inst, "instruction takes 3 operands of the result's type");
    requireSame(inst, args[0], args[1]);
    requireSame(inst, args[0], args[2]);
    llvm::Type* bits = result;
    if (result->isFPOrFPVectorTy())
      bits = result->isVectorTy()
                 ? static_cast<llvm::Type*>(llvm::VectorType::getInteger(llvm::cast<llvm::VectorType>(result)))
                 : b.getIntNTy(result->getScalarSizeInBits());
    else
      requireInt(inst, args[0]);
    llvm::Value *x = b.CreateBitCast(args[0], bits), *y = b.CreateBitCast(args[1], bits),
                *m = b.CreateBitCast(args[2], bits);
    return b.CreateBitCast(b.CreateOr(b.CreateAnd(x, b.CreateNot(m)), b.CreateAnd(y, m)), result);
  }
  case OpenCLLIB::Select: {
    if (args.size() != 3 || result != args[0]->getType())
      fail(inst, "instruction takes 3 operands");
    requireSame(inst, args[0], args[1]);
    requireInt(inst, args[2]);
    auto* vec = llvm::dyn_cast<llvm::FixedVectorType>(result);
    auto* mask = llvm::dyn_cast<llvm::FixedVectorType>(args[2]->getType());
    if ((vec != nullptr) != (mask != nullptr) || (vec && vec->getNumElements() != mask->getNumElements()))
      fail(inst, "condition does not fit the operands");
    auto* zero = llvm::ConstantInt::get(args[2]->getType(), 0);
    llvm::Value* c = vec ? b.CreateICmpSLT(args[2], zero) : b.CreateICmpNE(args[2], zero);
    return b.CreateSelect(c, args[1], args[0]);
  }
  default: return nullptr;
  }
}

}  // namespace zefuse::spirv
