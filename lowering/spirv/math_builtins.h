// math ops (and fmod) as calls of OpenCL builtins, which LLVM's SPIR-V back end turns into OpenCL.std instructions.
#pragma once

#include "mlir/Conversion/LLVMCommon/TypeConverter.h"
#include "mlir/IR/PatternMatch.h"

namespace zefuse {
void populateMathBuiltinPatterns(const mlir::LLVMTypeConverter& converter, mlir::RewritePatternSet& patterns);
}  // namespace zefuse
