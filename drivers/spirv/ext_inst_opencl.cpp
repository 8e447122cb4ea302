// OpExtInst of OpenCL.std: floating-point functions. Integer and memory functions stand in ext_inst_integer.cpp and
// ext_inst_memory.cpp.
#include "drivers/spirv/reader.h"

#include <spirv/unified1/OpenCL.std.h>
#include <spirv/unified1/spirv.hpp>

namespace zefuse::spirv {
namespace {

// Functions of the math library (math/math_library.cpp), by name.
struct LibraryRow {
  uint16_t op;
  const char* name;
  uint8_t args;
};
constexpr LibraryRow kLibrary[] = {
    {OpenCLLIB::Acos, "acos", 1},        {OpenCLLIB::Acosh, "acosh", 1},      {OpenCLLIB::Acospi, "acospi", 1},
    {OpenCLLIB::Asin, "asin", 1},        {OpenCLLIB::Asinh, "asinh", 1},      {OpenCLLIB::Asinpi, "asinpi", 1},
    {OpenCLLIB::Atan, "atan", 1},        {OpenCLLIB::Atanh, "atanh", 1},      {OpenCLLIB::Atanpi, "atanpi", 1},
    {OpenCLLIB::Atan2, "atan2", 2},      {OpenCLLIB::Atan2pi, "atan2pi", 2},  {OpenCLLIB::Cbrt, "cbrt", 1},
    {OpenCLLIB::Cos, "cos", 1},          {OpenCLLIB::Cosh, "cosh", 1},        {OpenCLLIB::Cospi, "cospi", 1},
    {OpenCLLIB::Erfc, "erfc", 1},        {OpenCLLIB::Erf, "erf", 1},          {OpenCLLIB::Exp, "exp", 1},
    {OpenCLLIB::Exp2, "exp2", 1},        {OpenCLLIB::Exp10, "exp10", 1},      {OpenCLLIB::Expm1, "expm1", 1},
    {OpenCLLIB::Fmod, "fmod", 2},        {OpenCLLIB::Hypot, "hypot", 2},      {OpenCLLIB::Lgamma, "lgamma", 1},
    {OpenCLLIB::Log, "log", 1},          {OpenCLLIB::Log2, "log2", 1},        {OpenCLLIB::Log10, "log10", 1},
    {OpenCLLIB::Log1p, "log1p", 1},      {OpenCLLIB::Logb, "logb", 1},        {OpenCLLIB::Nextafter, "nextafter", 2},
    {OpenCLLIB::Pow, "pow", 2},          {OpenCLLIB::Powr, "powr", 2},        {OpenCLLIB::Remainder, "remainder", 2},
    {OpenCLLIB::Sin, "sin", 1},          {OpenCLLIB::Sinh, "sinh", 1},        {OpenCLLIB::Sinpi, "sinpi", 1},
    {OpenCLLIB::Tan, "tan", 1},          {OpenCLLIB::Tanh, "tanh", 1},        {OpenCLLIB::Tanpi, "tanpi", 1},
    {OpenCLLIB::Tgamma, "tgamma", 1},    {OpenCLLIB::Half_cos, "cos", 1},     {OpenCLLIB::Half_exp, "exp", 1},
    {OpenCLLIB::Half_exp2, "exp2", 1},   {OpenCLLIB::Half_exp10, "exp10", 1}, {OpenCLLIB::Half_log, "log", 1},
    {OpenCLLIB::Half_log2, "log2", 1},   {OpenCLLIB::Half_log10, "log10", 1}, {OpenCLLIB::Half_powr, "powr", 2},
    {OpenCLLIB::Half_sin, "sin", 1},     {OpenCLLIB::Half_tan, "tan", 1},     {OpenCLLIB::Native_cos, "cos", 1},
    {OpenCLLIB::Native_exp, "exp", 1},   {OpenCLLIB::Native_exp2, "exp2", 1}, {OpenCLLIB::Native_exp10, "exp10", 1},
    {OpenCLLIB::Native_log, "log", 1},   {OpenCLLIB::Native_log2, "log2", 1}, {OpenCLLIB::Native_log10, "log10", 1},
    {OpenCLLIB::Native_powr, "powr", 2}, {OpenCLLIB::Native_sin, "sin", 1},   {OpenCLLIB::Native_tan, "tan", 1},
};

// One LLVM intrinsic each, any float type.
struct IntrinsicRow {
  uint16_t op;
  llvm::Intrinsic::ID id;
  uint8_t args;
};
constexpr IntrinsicRow kIntrinsics[] = {
    {OpenCLLIB::Ceil, llvm::Intrinsic::ceil, 1},
    {OpenCLLIB::Copysign, llvm::Intrinsic::copysign, 2},
    {OpenCLLIB::Fabs, llvm::Intrinsic::fabs, 1},
    {OpenCLLIB::Floor, llvm::Intrinsic::floor, 1},
    {OpenCLLIB::Fma, llvm::Intrinsic::fma, 3},
    {OpenCLLIB::Mad, llvm::Intrinsic::fma, 3},
    {OpenCLLIB::Fmax, llvm::Intrinsic::maxnum, 2},
    {OpenCLLIB::Fmin, llvm::Intrinsic::minnum, 2},
    {OpenCLLIB::FMax_common, llvm::Intrinsic::maxnum, 2},
    {OpenCLLIB::FMin_common, llvm::Intrinsic::minnum, 2},
    {OpenCLLIB::Rint, llvm::Intrinsic::roundeven, 1},
    {OpenCLLIB::Sqrt, llvm::Intrinsic::sqrt, 1},
    {OpenCLLIB::Half_sqrt, llvm::Intrinsic::sqrt, 1},
    {OpenCLLIB::Native_sqrt, llvm::Intrinsic::sqrt, 1},
    {OpenCLLIB::Trunc, llvm::Intrinsic::trunc, 1},
};

}  // namespace

// Calls a function of the math library on any float type and width. The library has f32 for 1, 4, 8 and 16 lanes and
// f64 for 1, 2, 4 and 8; the lanes between are filled up, half computes in f32. Arguments after the first may be i32
// vectors of the same length. `result` has the first argument's length.
llvm::Value* Reader::callMath(const SpirvInst& inst, llvm::StringRef name, llvm::Type* result,
                              llvm::ArrayRef<llvm::Value*> args) {
  if (!target_.vector_math && args[0]->getType()->isVectorTy())
    return callMathByElement(inst, name, result, args);
  llvm::Type* t = args[0]->getType();
  auto* vec = llvm::dyn_cast<llvm::FixedVectorType>(t);
  unsigned n = vec ? vec->getNumElements() : 1;
  auto* scalar = t->getScalarType();
  auto withScalar = [&](llvm::Type* s, unsigned count) {
    return count == 1 ? s : static_cast<llvm::Type*>(llvm::FixedVectorType::get(s, count));
  };
  if (scalar->isHalfTy()) {
    llvm::SmallVector<llvm::Value*> wide;
    for (llvm::Value* a : args)
      wide.push_back(a->getType()->getScalarType()->isHalfTy()
                         ? builder_.CreateFPExt(a, withScalar(builder_.getFloatTy(), n))
                         : a);
    bool float_result = result->getScalarType()->isHalfTy();
    llvm::Value* r = callMath(inst, name, float_result ? withScalar(builder_.getFloatTy(), n) : result, wide);
    return float_result ? builder_.CreateFPTrunc(r, result) : r;
  }
  bool is_double = scalar->isDoubleTy();
  if (!is_double && !scalar->isFloatTy())
    fail(inst, "operand is not a floating-point value");
  unsigned widest = is_double ? 8 : 16;
  if (n > widest) {
    auto half = [&](llvm::Value* v, unsigned first) {
      llvm::SmallVector<int> mask;
      for (unsigned i = 0; i < n / 2; ++i)
        mask.push_back(first + i);
      return builder_.CreateShuffleVector(v, mask);
    };
    llvm::SmallVector<llvm::Value*> lo, hi;
    for (llvm::Value* a : args) {
      lo.push_back(half(a, 0));
      hi.push_back(half(a, n / 2));
    }
    auto* half_result = withScalar(result->getScalarType(), n / 2);
    llvm::Value* a = callMath(inst, name, half_result, lo);
    llvm::Value* b = callMath(inst, name, half_result, hi);
    llvm::SmallVector<int> mask;
    for (unsigned i = 0; i < n; ++i)
      mask.push_back(i);
    return builder_.CreateShuffleVector(a, b, mask);
  }
  unsigned m = n == 1 ? 1 : n == 3 || (n == 2 && !is_double) ? 4 : n;
  llvm::SmallVector<llvm::Value*> padded;
  llvm::SmallVector<llvm::Type*> types;
  for (llvm::Value* a : args) {
    if (m != n) {
      llvm::SmallVector<int> mask;  // the last lane repeated: no value that is not computed anyway
      for (unsigned i = 0; i < m; ++i)
        mask.push_back(std::min(i, n - 1));
      a = builder_.CreateShuffleVector(a, mask);
    }
    padded.push_back(a);
    types.push_back(a->getType());
  }
  std::string symbol = ("zf_" + name + (is_double ? "_f64" : "_f32")).str();
  if (m > 1)
    symbol += "x" + std::to_string(m);
  auto* ft = llvm::FunctionType::get(withScalar(result->getScalarType(), m), types, false);
  auto callee = module_.getOrInsertFunction(symbol, ft);
  auto* f = llvm::dyn_cast<llvm::Function>(callee.getCallee());
  if (!f || f->getFunctionType() != ft)
    fail(inst, "math function " + symbol + " used with two signatures");
  llvm::Value* r = builder_.CreateCall(callee, padded);
  if (m != n) {
    llvm::SmallVector<int> mask;
    for (unsigned i = 0; i < n; ++i)
      mask.push_back(i);
    r = builder_.CreateShuffleVector(r, mask);
  }
  return r;
}

llvm::Value* Reader::callMathByElement(const SpirvInst& inst, llvm::StringRef name, llvm::Type* result,
                                       llvm::ArrayRef<llvm::Value*> args) {
  llvm::Value* all = llvm::PoisonValue::get(result);
  for (unsigned i = 0; i < llvm::cast<llvm::FixedVectorType>(result)->getNumElements(); ++i) {
    llvm::SmallVector<llvm::Value*> element;
    for (llvm::Value* a : args)
      element.push_back(builder_.CreateExtractElement(a, i));
    all = builder_.CreateInsertElement(all, callMath(inst, name, result->getScalarType(), element), i);
  }
  return all;
}

bool Reader::readExtInst(const SpirvInst& inst) {
  if (inst.opcode != spv::OpExtInst)
    return false;
  auto set = ext_sets_.find(inst.op(0));
  if (set == ext_sets_.end())
    fail(inst, "unknown instruction set");
  if (set->second != "OpenCL.std")
    return true;  // debug information
  uint32_t op = inst.op(1);
  if (vectorMemory(inst, op))
    return true;
  llvm::Type* result = valueType(inst, inst.type_id);
  llvm::SmallVector<llvm::Value*> args;
  for (size_t i = 2; i < inst.operands.size(); ++i)
    args.push_back(value(inst, inst.op(i)));
  llvm::Value* v = extInst(inst, op, result, args);
  if (!v)
    v = extInteger(inst, op, result, args);
  if (!v)
    fail(inst, "OpenCL.std instruction " + std::to_string(op) + " is not supported");
  setValue(inst, v);
  return true;
}

llvm::Value* Reader::extInst(const SpirvInst& inst, uint32_t op, llvm::Type* result,
                             llvm::ArrayRef<llvm::Value*> args) {
  auto floats = [&](size_t count) {
    if (args.size() != count)
      fail(inst, "instruction takes " + std::to_string(count) + " operands");
    for (llvm::Value* a : args) {
      requireFloat(inst, a);
      requireSame(inst, a, args[0]);
    }
    if (result != args[0]->getType())
      fail(inst, "operand and result differ in type");
  };
  auto real = [&](double x) { return llvm::ConstantFP::get(args[0]->getType(), x); };
  auto& b = builder_;
  for (const LibraryRow& r : kLibrary)
    if (r.op == op) {
      floats(r.args);
      const bool native = op == OpenCLLIB::Native_exp2 && target_.native_math && result->getScalarType()->isFloatTy();
      return callMath(inst, native ? "native_exp2" : r.name, result, args);
    }
  for (const IntrinsicRow& r : kIntrinsics)
    if (r.op == op) {
      floats(r.args);
      return b.CreateIntrinsic(r.id, {args[0]->getType()}, args);
    }
  auto dot = [&](llvm::Value* x, llvm::Value* y) {
    auto* vec = llvm::dyn_cast<llvm::FixedVectorType>(x->getType());
    llvm::Value* p = b.CreateFMul(x, y);
    if (!vec)
      return p;
    llvm::Value* s = b.CreateExtractElement(p, uint64_t{0});
    for (unsigned i = 1; i < vec->getNumElements(); ++i)
      s = b.CreateFAdd(s, b.CreateExtractElement(p, i));
    return s;
  };
  auto sqrt = [&](llvm::Value* x) { return b.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, x); };
  auto sameInt = [&](llvm::Value* like) {
    auto* v = llvm::dyn_cast<llvm::FixedVectorType>(like->getType());
    return v ? static_cast<llvm::Type*>(llvm::FixedVectorType::get(b.getInt32Ty(), v->getNumElements()))
             : b.getInt32Ty();
  };
  switch (op) {
  case OpenCLLIB::Rsqrt:
  case OpenCLLIB::Half_rsqrt:
  case OpenCLLIB::Native_rsqrt: floats(1); return b.CreateFDiv(real(1), sqrt(args[0]));
  case OpenCLLIB::Native_recip:
    if (target_.native_math && result->getScalarType()->isFloatTy()) {
      floats(1);
      return callMath(inst, "native_recip", result, args);
    }
    [[fallthrough]];
  case OpenCLLIB::Half_recip: floats(1); return b.CreateFDiv(real(1), args[0]);
  case OpenCLLIB::Half_divide:
  case OpenCLLIB::Native_divide: floats(2); return b.CreateFDiv(args[0], args[1]);
  case OpenCLLIB::Fdim: {
    floats(2);
    llvm::Value* d = b.CreateFSub(args[0], args[1]);
    return b.CreateSelect(b.CreateFCmpULE(args[0], args[1]),
                          b.CreateSelect(b.CreateFCmpUNO(args[0], args[1]), d, real(0)), d);
  }
  case OpenCLLIB::Maxmag:
  case OpenCLLIB::Minmag: {
    floats(2);
    auto abs = [&](llvm::Value* x) { return b.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x); };
    bool max = op == OpenCLLIB::Maxmag;
    llvm::Value *x = abs(args[0]), *y = abs(args[1]);
    llvm::Value* other =
        b.CreateBinaryIntrinsic(max ? llvm::Intrinsic::maxnum : llvm::Intrinsic::minnum, args[0], args[1]);
    return b.CreateSelect(max ? b.CreateFCmpOGT(x, y) : b.CreateFCmpOLT(x, y), args[0],
                          b.CreateSelect(max ? b.CreateFCmpOGT(y, x) : b.CreateFCmpOLT(y, x), args[1], other));
  }
  case OpenCLLIB::Round: {  // half away from zero; llvm.round would be one call per lane
    floats(1);
    auto* below_half = llvm::ConstantFP::get(result, result->getScalarType()->isDoubleTy()  ? 0x1.fffffffffffffp-2
                                                     : result->getScalarType()->isFloatTy() ? 0x1.fffffep-2
                                                                                            : 0x1.ffcp-2);
    llvm::Value* h = b.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, below_half, args[0]);
    return b.CreateUnaryIntrinsic(llvm::Intrinsic::trunc, b.CreateFAdd(args[0], h));
  }
  case OpenCLLIB::FClamp:
    floats(3);
    return b.CreateBinaryIntrinsic(llvm::Intrinsic::minnum,
                                   b.CreateBinaryIntrinsic(llvm::Intrinsic::maxnum, args[0], args[1]), args[2]);
  case OpenCLLIB::Degrees: floats(1); return b.CreateFMul(args[0], real(57.295779513082320877));
  case OpenCLLIB::Radians: floats(1); return b.CreateFMul(args[0], real(0.017453292519943295769));
  case OpenCLLIB::Mix: floats(3); return b.CreateFAdd(args[0], b.CreateFMul(b.CreateFSub(args[1], args[0]), args[2]));
  case OpenCLLIB::Step: floats(2); return b.CreateSelect(b.CreateFCmpOLT(args[1], args[0]), real(0), real(1));
  case OpenCLLIB::Smoothstep: {
    floats(3);
    llvm::Value* t = b.CreateFDiv(b.CreateFSub(args[2], args[0]), b.CreateFSub(args[1], args[0]));
    t = b.CreateBinaryIntrinsic(llvm::Intrinsic::minnum, b.CreateBinaryIntrinsic(llvm::Intrinsic::maxnum, t, real(0)),
                                real(1));
    return b.CreateFMul(b.CreateFMul(t, t), b.CreateFSub(real(3), b.CreateFMul(real(2), t)));
  }
  case OpenCLLIB::Sign: {
    floats(1);
    llvm::Value* one = b.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, real(1), args[0]);
    llvm::Value* v = b.CreateSelect(b.CreateFCmpOEQ(args[0], real(0)), args[0], one);
    return b.CreateSelect(b.CreateFCmpUNO(args[0], args[0]), real(0), v);
  }
  case OpenCLLIB::Cross: {
    floats(2);
    auto* vec = llvm::dyn_cast<llvm::FixedVectorType>(result);
    if (!vec || (vec->getNumElements() != 3 && vec->getNumElements() != 4))
      fail(inst, "operand is not a vector of 3 or 4");
    auto pick = [&](llvm::Value* x, int i, int j, int k) {
      llvm::SmallVector<int> mask{i, j, k};
      if (vec->getNumElements() == 4)
        mask.push_back(3);
      return b.CreateShuffleVector(x, mask);
    };
    llvm::Value* v = b.CreateFSub(b.CreateFMul(pick(args[0], 1, 2, 0), pick(args[1], 2, 0, 1)),
                                  b.CreateFMul(pick(args[0], 2, 0, 1), pick(args[1], 1, 2, 0)));
    if (vec->getNumElements() == 4)
      v = b.CreateInsertElement(v, llvm::ConstantFP::get(vec->getElementType(), 0.0), 3);
    return v;
  }
  case OpenCLLIB::Length:
  case OpenCLLIB::Fast_length:
  case OpenCLLIB::Distance:
  case OpenCLLIB::Fast_distance:
  case OpenCLLIB::Normalize:
  case OpenCLLIB::Fast_normalize: {
    bool distance = op == OpenCLLIB::Distance || op == OpenCLLIB::Fast_distance;
    bool normalize = op == OpenCLLIB::Normalize || op == OpenCLLIB::Fast_normalize;
    if (args.size() != (distance ? 2u : 1u))
      fail(inst, "wrong number of operands");
    for (llvm::Value* a : args) {
      requireFloat(inst, a);
      requireSame(inst, a, args[0]);
    }
    llvm::Value* x = distance ? b.CreateFSub(args[0], args[1]) : args[0];
    // Scaled by the largest magnitude: squares neither overflow nor vanish.
    auto* scalar = x->getType()->getScalarType();
    auto* vec = llvm::dyn_cast<llvm::FixedVectorType>(x->getType());
    llvm::Value* a = b.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x);
    llvm::Value* largest = vec ? b.CreateFPMaxReduce(a) : a;
    auto* zero = llvm::ConstantFP::get(scalar, 0.0);
    auto* inf = llvm::ConstantFP::getInfinity(scalar);
    llvm::Value* plain = b.CreateOr(b.CreateFCmpUEQ(largest, zero), b.CreateFCmpOEQ(largest, inf));
    llvm::Value* scale = b.CreateSelect(plain, llvm::ConstantFP::get(scalar, 1.0), largest);
    auto splat = [&](llvm::Value* s) { return vec ? b.CreateVectorSplat(vec->getNumElements(), s) : s; };
    llvm::Value* y = b.CreateFDiv(x, splat(scale));
    llvm::Value* length = sqrt(dot(y, y));
    if (!normalize)
      return b.CreateFMul(length, scale);
    llvm::Value* unit = b.CreateFDiv(y, splat(length));
    return b.CreateSelect(b.CreateFCmpOEQ(largest, zero), x, unit);
  }
  case OpenCLLIB::Ldexp:
  case OpenCLLIB::Pown:
  case OpenCLLIB::Rootn: {
    if (args.size() != 2 || result != args[0]->getType() || args[1]->getType() != sameInt(args[0]))
      fail(inst, "operands are not a float and a 32-bit integer of its length");
    requireFloat(inst, args[0]);
    return callMath(inst, op == OpenCLLIB::Ldexp ? "ldexp" : op == OpenCLLIB::Pown ? "pown" : "rootn", result, args);
  }
  case OpenCLLIB::Ilogb:
    if (args.size() != 1 || result != sameInt(args[0]))
      fail(inst, "result is not a 32-bit integer of the operand's length");
    requireFloat(inst, args[0]);
    return callMath(inst, "ilogb", result, args);
  case OpenCLLIB::Nan: {
    if (args.size() != 1)
      fail(inst, "wrong number of operands");
    requireInt(inst, args[0]);
    auto* ft = result->getScalarType();
    if (!ft->isFloatingPointTy() || result->getPrimitiveSizeInBits() != args[0]->getType()->getPrimitiveSizeInBits())
      fail(inst, "operand and result differ in size");
    auto quiet = llvm::APFloat::getQNaN(ft->getFltSemantics()).bitcastToAPInt();
    auto payload = llvm::APInt::getLowBitsSet(quiet.getBitWidth(), ft->getFPMantissaWidth() - 1);
    llvm::Value* bits = b.CreateOr(b.CreateAnd(args[0], llvm::ConstantInt::get(args[0]->getType(), payload)),
                                   llvm::ConstantInt::get(args[0]->getType(), quiet));
    return b.CreateBitCast(bits, result);
  }
  case OpenCLLIB::Sincos:
  case OpenCLLIB::Fract:
  case OpenCLLIB::Modf:
  case OpenCLLIB::Frexp:
  case OpenCLLIB::Lgamma_r:
  case OpenCLLIB::Remquo: {
    bool quotient = op == OpenCLLIB::Remquo;
    if (args.size() != (quotient ? 3u : 2u) || result != args[0]->getType())
      fail(inst, "wrong operands");
    requireFloat(inst, args[0]);
    if (quotient)
      requireSame(inst, args[0], args[1]);
    llvm::Value* out = args.back();
    requirePointer(inst, out);
    auto* x = args[0];
    // The second result may be stored through a pointer with no more than the element's alignment.
    auto store = [&](llvm::Value* v) {
      b.CreateAlignedStore(v, out, module_.getDataLayout().getABITypeAlign(v->getType()->getScalarType()));
    };
    switch (op) {
    case OpenCLLIB::Sincos: store(callMath(inst, "cos", result, {x})); return callMath(inst, "sin", result, {x});
    case OpenCLLIB::Fract: {
      llvm::Value* whole = b.CreateUnaryIntrinsic(llvm::Intrinsic::floor, x);
      auto* largest = llvm::ConstantFP::get(result, result->getScalarType()->isDoubleTy()  ? 0x1.fffffffffffffp-1
                                                    : result->getScalarType()->isFloatTy() ? 0x1.fffffep-1
                                                                                           : 0x1.ffcp-1);
      store(whole);
      llvm::Value* f = b.CreateBinaryIntrinsic(llvm::Intrinsic::minnum, b.CreateFSub(x, whole), largest);
      llvm::Value* is_inf =
          b.CreateFCmpOEQ(b.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x), llvm::ConstantFP::getInfinity(result));
      f = b.CreateSelect(is_inf, b.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, real(0), x), f);
      return b.CreateSelect(b.CreateFCmpUNO(x, x), x, f);
    }
    case OpenCLLIB::Modf: {
      llvm::Value* whole = b.CreateUnaryIntrinsic(llvm::Intrinsic::trunc, x);
      store(whole);
      llvm::Value* is_inf =
          b.CreateFCmpOEQ(b.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x), llvm::ConstantFP::getInfinity(result));
      llvm::Value* f = b.CreateSelect(is_inf, real(0), b.CreateFSub(x, whole));
      return b.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, f, x);
    }
    case OpenCLLIB::Frexp:
      store(callMath(inst, "frexp_exponent", sameInt(x), {x}));
      return callMath(inst, "frexp", result, {x});
    case OpenCLLIB::Lgamma_r:
      store(callMath(inst, "lgamma_sign", sameInt(x), {x}));
      return callMath(inst, "lgamma", result, {x});
    default:
      store(callMath(inst, "remquo_quotient", sameInt(x), {x, args[1]}));
      return callMath(inst, "remainder", result, {x, args[1]});
    }
  }
  default: return nullptr;
  }
}

}  // namespace zefuse::spirv
