// OpExtInst of OpenCL.std: vector loads and stores, half conversions in memory, shuffles, prefetch.
#include "drivers/spirv/reader.h"

#include "llvm/Analysis/ValueTracking.h"

#include <spirv/unified1/OpenCL.std.h>
#include <spirv/unified1/spirv.hpp>

#include <cctype>
#include <cstring>

namespace zefuse::spirv {

// The C library's printf. Its format has no vectors, so "%v4hlf" becomes "%f,%f,%f,%f"; arguments are promoted as C
// does.
llvm::Value* Reader::callPrintf(const SpirvInst& inst, llvm::Type* result, llvm::ArrayRef<llvm::Value*> args) {
  auto& b = builder_;
  llvm::StringRef format;
  if (args.empty() || !args[0]->getType()->isPointerTy() || !llvm::getConstantStringInfo(args[0], format))
    fail(inst, "the format of printf is not a constant string");
  if (!result->isIntegerTy(32))
    fail(inst, "result of printf is not a 32-bit integer");
  std::string out;
  llvm::SmallVector<llvm::Value*> values{nullptr};
  size_t next = 1;
  for (size_t i = 0; i < format.size(); ++i) {
    out += format[i];
    if (format[i] != '%')
      continue;
    if (i + 1 < format.size() && format[i + 1] == '%') {
      out += format[++i];
      continue;
    }
    std::string flags, length;
    unsigned count = 1;
    for (++i; i < format.size() && strchr("-+ #0123456789.", format[i]); ++i)
      flags += format[i];
    if (i < format.size() && format[i] == 'v') {
      for (count = 0, ++i; i < format.size() && isdigit(static_cast<unsigned char>(format[i])); ++i)
        count = std::min(count * 10 + (format[i] - '0'), 99u);
    }
    for (; i < format.size() && strchr("hl", format[i]); ++i)
      length += format[i];
    if (i >= format.size() || !strchr("diouxXfFeEgGaAcsp", format[i]))
      fail(inst, "printf format is not understood");
    char kind = format[i];
    if (next >= args.size())
      fail(inst, "printf has fewer arguments than its format");
    llvm::Value* v = args[next++];
    auto* vec = llvm::dyn_cast<llvm::FixedVectorType>(v->getType());
    if ((vec ? vec->getNumElements() : 1) != count)
      fail(inst, "printf argument " + std::to_string(next - 1) + " does not fit its format");
    for (unsigned e = 0; e < count; ++e) {
      llvm::Value* x = vec ? b.CreateExtractElement(v, e) : v;
      bool real = strchr("fFeEgGaA", kind), pointer = kind == 's' || kind == 'p';
      if (real      ? !x->getType()->isFloatingPointTy()
          : pointer ? !x->getType()->isPointerTy()
                    : !x->getType()->isIntegerTy())
        fail(inst, "printf argument " + std::to_string(next - 1) + " does not fit its format");
      bool wide = x->getType()->isIntegerTy(64);
      if (real)
        x = b.CreateFPCast(x, b.getDoubleTy());
      else if (!pointer && !wide)
        x = kind == 'd' || kind == 'i' ? b.CreateSExtOrTrunc(x, b.getInt32Ty())
                                       : b.CreateZExtOrTrunc(x, b.getInt32Ty());
      // The length is the argument's own: a format that says otherwise would read beside it.
      out += (e ? ",%" : "") + flags + (wide ? "l" : "") + kind;
      values.push_back(x);
    }
  }
  values[0] = b.CreateGlobalString(out, "", 0, &module_);
  auto* type = llvm::FunctionType::get(b.getInt32Ty(), {b.getPtrTy()}, true);
  auto callee = module_.getOrInsertFunction("printf", type);
  return b.CreateCall(callee, values);
}

bool Reader::vectorMemory(const SpirvInst& inst, uint32_t op) {
  auto& b = builder_;
  auto arg = [&](size_t i) { return value(inst, inst.op(i + 2)); };
  auto lanes = [](llvm::Type* t) -> uint64_t {
    auto* v = llvm::dyn_cast<llvm::FixedVectorType>(t);
    return v ? v->getNumElements() : 1;
  };
  // p + offset * stride elements, each of `element`.
  auto address = [&](llvm::Value* p, llvm::Value* offset, llvm::Type* element, uint64_t stride) {
    requirePointer(inst, p);
    if (!offset->getType()->isIntegerTy())
      fail(inst, "offset is not an integer");
    offset = b.CreateMul(b.CreateSExtOrTrunc(offset, b.getInt64Ty()), b.getInt64(stride));
    return b.CreateGEP(element, p, offset);
  };
  auto withLanes = [&](llvm::Type* scalar, uint64_t n) {
    return n == 1 ? scalar : static_cast<llvm::Type*>(llvm::FixedVectorType::get(scalar, n));
  };
  // An aligned vector of 3 takes the room of 4.
  auto halfStride = [](uint64_t n, bool aligned) { return aligned && n == 3 ? 4 : n; };
  switch (op) {
  case OpenCLLIB::Vloadn: {
    llvm::Type* t = valueType(inst, inst.type_id);
    auto* scalar = t->getScalarType();
    if (!t->isVectorTy() || scalar->isIntegerTy(1))
      fail(inst, "result is not a vector");
    auto* p = address(arg(1), arg(0), scalar, lanes(t));
    setValue(inst, b.CreateAlignedLoad(t, p, module_.getDataLayout().getABITypeAlign(scalar)));
    return true;
  }
  case OpenCLLIB::Vstoren: {
    llvm::Value* v = arg(0);
    auto* scalar = v->getType()->getScalarType();
    if (!v->getType()->isVectorTy() || scalar->isIntegerTy(1))
      fail(inst, "operand is not a vector");
    auto* p = address(arg(2), arg(1), scalar, lanes(v->getType()));
    b.CreateAlignedStore(v, p, module_.getDataLayout().getABITypeAlign(scalar));
    return true;
  }
  case OpenCLLIB::Vload_half:
  case OpenCLLIB::Vload_halfn:
  case OpenCLLIB::Vloada_halfn: {
    llvm::Type* t = valueType(inst, inst.type_id);
    if (!t->isFPOrFPVectorTy() || t->getScalarSizeInBits() < 32)
      fail(inst, "result is not a float");
    uint64_t n = lanes(t);
    auto* p = address(arg(1), arg(0), b.getHalfTy(), halfStride(n, op == OpenCLLIB::Vloada_halfn));
    llvm::Value* h = b.CreateAlignedLoad(withLanes(b.getHalfTy(), n), p, llvm::Align(2));
    setValue(inst, b.CreateFPExt(h, t));
    return true;
  }
  case OpenCLLIB::Vstore_half:
  case OpenCLLIB::Vstore_half_r:
  case OpenCLLIB::Vstore_halfn:
  case OpenCLLIB::Vstore_halfn_r:
  case OpenCLLIB::Vstorea_halfn:
  case OpenCLLIB::Vstorea_halfn_r: {
    llvm::Value* v = arg(0);
    if (!v->getType()->isFPOrFPVectorTy() || v->getType()->getScalarSizeInBits() < 32)
      fail(inst, "operand is not a float");
    uint64_t n = lanes(v->getType());
    bool has_mode =
        op == OpenCLLIB::Vstore_half_r || op == OpenCLLIB::Vstore_halfn_r || op == OpenCLLIB::Vstorea_halfn_r;
    uint32_t mode = has_mode ? inst.op(5) : spv::FPRoundingModeRTE;
    auto* p = address(arg(2), arg(1), b.getHalfTy(),
                      halfStride(n, op == OpenCLLIB::Vstorea_halfn || op == OpenCLLIB::Vstorea_halfn_r));
    b.CreateAlignedStore(convertWithRounding(inst, v, withLanes(b.getHalfTy(), n), mode), p, llvm::Align(2));
    return true;
  }
  case OpenCLLIB::Shuffle:
  case OpenCLLIB::Shuffle2: {
    bool two = op == OpenCLLIB::Shuffle2;
    llvm::Value *x = arg(0), *y = two ? arg(1) : arg(0), *mask = arg(two ? 2 : 1);
    requireSame(inst, x, y);
    llvm::Type* t = valueType(inst, inst.type_id);
    auto* from = llvm::dyn_cast<llvm::FixedVectorType>(x->getType());
    auto* to = llvm::dyn_cast<llvm::FixedVectorType>(t);
    if (!from || !to || from->getElementType() != to->getElementType() || !mask->getType()->isIntOrIntVectorTy() ||
        lanes(mask->getType()) != to->getNumElements())
      fail(inst, "operands do not fit the result");
    unsigned n = from->getNumElements();
    llvm::Value* pool = x;
    if (two) {
      llvm::SmallVector<int> all;
      for (unsigned i = 0; i < 2 * n; ++i)
        all.push_back(i);
      pool = b.CreateShuffleVector(x, y, all);
    }
    uint64_t wrap = llvm::PowerOf2Ceil(two ? 2 * n : n) - 1;
    llvm::Value* r = llvm::PoisonValue::get(to);
    for (unsigned i = 0; i < to->getNumElements(); ++i) {
      llvm::Value* index = b.CreateAnd(b.CreateZExtOrTrunc(b.CreateExtractElement(mask, i), b.getInt64Ty()), wrap);
      if (n == 3)
        index = b.CreateBinaryIntrinsic(llvm::Intrinsic::umin, index, b.getInt64(two ? 5 : 2));
      r = b.CreateInsertElement(r, b.CreateExtractElement(pool, index), i);
    }
    setValue(inst, r);
    return true;
  }
  case OpenCLLIB::Printf: {
    llvm::SmallVector<llvm::Value*> args;
    for (size_t i = 2; i < inst.operands.size(); ++i)
      args.push_back(value(inst, inst.op(i)));
    setValue(inst, callPrintf(inst, valueType(inst, inst.type_id), args));
    return true;
  }
  case OpenCLLIB::Prefetch:
    requirePointer(inst, arg(0));
    if (target_.prefetches)
      b.CreateIntrinsic(llvm::Intrinsic::prefetch, {arg(0)->getType()},
                        {arg(0), b.getInt32(0), b.getInt32(3), b.getInt32(1)});
    return true;
  default: return false;
  }
}

}  // namespace zefuse::spirv
