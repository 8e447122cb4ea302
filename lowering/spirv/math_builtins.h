// math ops (and fmod) as calls of OpenCL builtins, which LLVM's SPIR-V back end turns into OpenCL.std instructions.
#pragma once

#include "mlir/Conversion/LLVMCommon/TypeConverter.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/PatternMatch.h"

namespace zefuse {
// atan2 of two zeros is 0 or pi, by their signs; MLIR's folding, which conversions do, says NaN (math::Atan2Op::fold).
void foldAnglesOfZeros(mlir::ModuleOp module);

void populateMathBuiltinPatterns(const mlir::LLVMTypeConverter& converter, mlir::RewritePatternSet& patterns);

// The declaration of a builtin without side effects, which is added where the module has none yet.
mlir::LLVM::LLVMFuncOp declareBuiltin(mlir::ModuleOp module, const std::string& symbol, mlir::Type result,
                                      llvm::ArrayRef<mlir::Type> arguments);
}  // namespace zefuse
