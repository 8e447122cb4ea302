#include "lowering/analysis/legality.h"

#include "lowering/dialect/Zefuse.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;

namespace zefuse {
namespace {

// All operand and result types of an op must be in its classes. Low-precision floats only move, compare and convert:
// bf16 travels as i16, and arithmetic is done in f32 (docs/ir.md). ui8 ('u') only moves, and is cast to i8.
constexpr LegalOp table[] = {
    {"arith.constant", "fhibx"},
    {"arith.select", "fhibx"},
    {"arith.bitcast", "fi"},
    // floats
    {"arith.addf", "f"},
    {"arith.subf", "f"},
    {"arith.mulf", "f"},
    {"arith.divf", "f"},
    {"arith.remf", "f"},
    {"arith.negf", "f"},
    {"arith.maximumf", "f"},
    {"arith.minimumf", "f"},
    {"arith.maxnumf", "f"},
    {"arith.minnumf", "f"},
    {"arith.cmpf", "fhb"},
    {"arith.extf", "fh"},
    {"arith.truncf", "fh"},
    // integers
    {"arith.addi", "ibx"},
    {"arith.subi", "ibx"},
    {"arith.muli", "ibx"},
    {"arith.divsi", "ix"},
    {"arith.divui", "ix"},
    {"arith.remsi", "ix"},
    {"arith.remui", "ix"},
    {"arith.floordivsi", "ix"},
    {"arith.ceildivsi", "ix"},
    {"arith.andi", "ibx"},
    {"arith.ori", "ibx"},
    {"arith.xori", "ibx"},
    {"arith.shli", "ix"},
    {"arith.shrsi", "ix"},
    {"arith.shrui", "ix"},
    {"arith.maxsi", "ibx"},
    {"arith.minsi", "ibx"},
    {"arith.maxui", "ibx"},
    {"arith.minui", "ibx"},
    {"arith.cmpi", "ibx"},
    // conversions
    {"arith.extsi", "ib"},
    {"arith.extui", "ib"},
    {"arith.trunci", "ib"},
    {"arith.index_cast", "ibx"},
    {"arith.index_castui", "ibx"},
    {"arith.sitofp", "fi"},
    {"arith.uitofp", "fib"},
    {"arith.fptosi", "fi"},
    {"arith.fptoui", "fi"},
    // math: OpenCL.std instructions, or expanded
    {"math.absf", "f"},
    {"math.absi", "i"},
    {"math.acos", "f"},
    {"math.acosh", "f"},
    {"math.asin", "f"},
    {"math.asinh", "f"},
    {"math.atan", "f"},
    {"math.atan2", "f"},
    {"math.atanh", "f"},
    {"math.cbrt", "f"},
    {"math.ceil", "f"},
    {"math.clampf", "f"},
    {"math.copysign", "f"},
    {"math.cos", "f"},
    {"math.cosh", "f"},
    {"math.ctpop", "i"},
    {"math.ctlz", "i"},
    {"math.erf", "f"},
    {"math.erfc", "f"},
    {"math.exp", "f"},
    {"math.exp2", "f"},
    {"math.expm1", "f"},
    {"math.floor", "f"},
    {"math.fma", "f"},
    {"math.ipowi", "i"},
    {"math.isfinite", "fb"},
    {"math.isinf", "fb"},
    {"math.isnan", "fb"},
    {"math.log", "f"},
    {"math.log10", "f"},
    {"math.log1p", "f"},
    {"math.log2", "f"},
    {"math.powf", "f"},
    {"math.round", "f"},
    {"math.roundeven", "f"},
    {"math.rsqrt", "f"},
    {"math.sin", "f"},
    {"math.sinh", "f"},
    {"math.sqrt", "f"},
    {"math.tan", "f"},
    {"math.tanh", "f"},
    {"math.trunc", "f"},
    {"zefuse.dot4", "i"},
};

char classOf(Type type) {
  if (type.isF32() || type.isF64())
    return 'f';
  if (type.isF16() || type.isBF16())
    return 'h';
  if (type.isInteger(1))
    return 'b';
  if (type.isUnsignedInteger(8))
    return 'u';
  if (type.isInteger(8) || type.isInteger(16) || type.isInteger(32) || type.isInteger(64))
    return 'i';
  return type.isIndex() ? 'x' : '?';
}

std::string show(Type type) {
  std::string text;
  llvm::raw_string_ostream(text) << type;
  return text;
}

}  // namespace

ArrayRef<LegalOp> legalOps() { return table; }

std::optional<std::string> whyIllegal(Operation* op) {
  static const llvm::StringMap<const char*> legal = [] {
    llvm::StringMap<const char*> map;
    for (const LegalOp& row : table)
      map[row.name] = row.types;
    return map;
  }();
  auto known = legal.find(op->getName().getStringRef());
  if (known == legal.end())
    return op->getName().getStringRef().str() + " has no SPIR-V lowering";
  for (TypeRange types : {TypeRange(op->getOperandTypes()), TypeRange(op->getResultTypes())})
    for (Type type : types)
      if (!StringRef(known->second).contains(classOf(type)))
        return op->getName().getStringRef().str() + " on " + show(type) + " has no SPIR-V lowering";
  return std::nullopt;
}

std::optional<IllegalOp> findIllegal(Operation* root) {
  std::optional<IllegalOp> found;
  root->walk([&](Operation* op) {
    // Structure: the schedule refuses what it cannot place. Their bodies' scalars are what is checked here.
    if (isa<linalg::GenericOp, linalg::FillOp, linalg::YieldOp, linalg::IndexOp, tensor::EmptyOp, tensor::ConcatOp,
            KernelOp, YieldOp, ViewOp, SizeOp, PadOp, ScanOp, ScatterOp, SortOp, MatmulOp, ConvolutionOp, AttentionOp>(
            op)) {
      for (Type type : op->getResultTypes())
        if (auto tensor = dyn_cast<RankedTensorType>(type); tensor && classOf(tensor.getElementType()) == '?') {
          found = {op, op->getName().getStringRef().str() + " on " + show(tensor.getElementType()) +
                           " has no SPIR-V lowering"};
          return WalkResult::interrupt();
        }
      return WalkResult::advance();
    }
    if (auto extract = dyn_cast<tensor::ExtractOp>(op)) {
      if (classOf(extract.getType()) != '?')
        return WalkResult::advance();
    } else if (isa<CheckedIndexOp>(op)) {
      return WalkResult::advance();
    } else if (isa<UnrealizedConversionCastOp>(op) && op->getNumOperands() == 1 && op->getNumResults() == 1 &&
               classOf(op->getOperand(0).getType()) + classOf(op->getResult(0).getType()) == 'u' + 'i' &&
               op->getOperand(0).getType().getIntOrFloatBitWidth() ==
                   op->getResult(0).getType().getIntOrFloatBitWidth()) {
      return WalkResult::advance();
    }
    if (auto reason = whyIllegal(op)) {
      found = {op, *reason};
      return WalkResult::interrupt();
    }
    return WalkResult::advance();
  });
  return found;
}

}  // namespace zefuse
