#include "lowering/spirv/math_builtins.h"

#include <cmath>

#include "mlir/Conversion/LLVMCommon/Pattern.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/StringMap.h"

using namespace mlir;

namespace zefuse {
namespace {

struct Builtin {
  const char* op;
  const char* name;  // in OpenCL C
};

constexpr Builtin builtins[] = {
    {"arith.remf", "fmod"},  {"math.absf", "fabs"},      {"math.acos", "acos"},   {"math.acosh", "acosh"},
    {"math.asin", "asin"},   {"math.asinh", "asinh"},    {"math.atan", "atan"},   {"math.atan2", "atan2"},
    {"math.atanh", "atanh"}, {"math.cbrt", "cbrt"},      {"math.ceil", "ceil"},   {"math.copysign", "copysign"},
    {"math.cos", "cos"},     {"math.cosh", "cosh"},      {"math.ctlz", "clz"},    {"math.ctpop", "popcount"},
    {"math.erf", "erf"},     {"math.erfc", "erfc"},      {"math.exp", "exp"},     {"math.exp2", "exp2"},
    {"math.expm1", "expm1"}, {"math.floor", "floor"},    {"math.fma", "fma"},     {"math.log", "log"},
    {"math.log10", "log10"}, {"math.log1p", "log1p"},    {"math.log2", "log2"},   {"math.powf", "pow"},
    {"math.round", "round"}, {"math.roundeven", "rint"}, {"math.rsqrt", "rsqrt"}, {"math.sin", "sin"},
    {"math.sinh", "sinh"},   {"math.sqrt", "sqrt"},      {"math.tan", "tan"},     {"math.tanh", "tanh"},
    {"math.trunc", "trunc"},
};

// The Itanium mangling of name(type, type, ...) in OpenCL C: _Z3expDv16_f, _Z3powff, _Z3powDv4_fS_.
std::string mangle(StringRef name, Type type, unsigned operands) {
  Type scalar = getElementTypeOrSelf(type);
  std::string code = scalar.isF32()         ? "f"
                     : scalar.isF64()       ? "d"
                     : scalar.isInteger(8)  ? "c"
                     : scalar.isInteger(16) ? "s"
                     : scalar.isInteger(32) ? "i"
                                            : "l";
  std::string result = "_Z" + std::to_string(name.size()) + name.str();
  if (auto vector = dyn_cast<VectorType>(type)) {
    result += "Dv" + std::to_string(vector.getNumElements()) + "_" + code;
    for (unsigned i = 1; i < operands; ++i)
      result += "S_";
  } else {
    for (unsigned i = 0; i < operands; ++i)
      result += code;
  }
  return result;
}

struct CallBuiltin : ConversionPattern {
  CallBuiltin(const LLVMTypeConverter& converter, StringRef op, StringRef name)
      : ConversionPattern(converter, op, /*benefit=*/10, &converter.getContext()), name(name) {}

  LogicalResult matchAndRewrite(Operation* op, ArrayRef<Value> operands,
                                ConversionPatternRewriter& rewriter) const override {
    Type type = getTypeConverter()->convertType(op->getResult(0).getType());
    if (!type)
      return failure();
    std::string symbol = mangle(name, type, operands.size());
    const SmallVector<Type> arguments(operands.size(), type);
    LLVM::LLVMFuncOp callee = declareBuiltin(op->getParentOfType<ModuleOp>(), symbol, type, arguments);
    auto call = LLVM::CallOp::create(rewriter, op->getLoc(), callee, operands);
    call.setCConv(LLVM::CConv::SPIR_FUNC);
    rewriter.replaceOp(op, call.getResults());
    return success();
  }

  StringRef name;
};

}  // namespace

LLVM::LLVMFuncOp declareBuiltin(ModuleOp module, const std::string& symbol, Type result, ArrayRef<Type> arguments) {
  if (auto known = module.lookupSymbol<LLVM::LLVMFuncOp>(symbol))
    return known;
  OpBuilder b = OpBuilder::atBlockBegin(module.getBody());
  auto callee = LLVM::LLVMFuncOp::create(b, module.getLoc(), symbol, LLVM::LLVMFunctionType::get(result, arguments));
  callee.setCConv(LLVM::CConv::SPIR_FUNC);
  callee.setNoUnwind(true);
  callee.setWillReturn(true);
  callee.setMemoryEffectsAttr(LLVM::MemoryEffectsAttr::get(
      b.getContext(), {LLVM::ModRefInfo::NoModRef, LLVM::ModRefInfo::NoModRef, LLVM::ModRefInfo::NoModRef}));
  return callee;
}

void foldAnglesOfZeros(ModuleOp module) {
  module.walk([](math::Atan2Op op) {
    if (!matchPattern(op.getLhs(), m_AnyZeroFloat()) || !matchPattern(op.getRhs(), m_AnyZeroFloat()))
      return;
    auto zero = [](Value value) { return matchPattern(value, m_NegZeroFloat()) ? -0.0 : 0.0; };
    OpBuilder b(op);
    TypedAttr angle = b.getFloatAttr(getElementTypeOrSelf(op), std::atan2(zero(op.getLhs()), zero(op.getRhs())));
    if (auto vector = dyn_cast<VectorType>(op.getType()))
      angle = DenseElementsAttr::get(vector, Attribute(angle));
    op.replaceAllUsesWith(arith::ConstantOp::create(b, op.getLoc(), angle).getResult());
    op.erase();
  });
}

void populateMathBuiltinPatterns(const LLVMTypeConverter& converter, RewritePatternSet& patterns) {
  for (const Builtin& builtin : builtins)
    patterns.add<CallBuiltin>(converter, builtin.op, builtin.name);
}

}  // namespace zefuse
