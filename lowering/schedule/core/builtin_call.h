// Calls of the functions that every device has: OpenCL's, and our own of the same kind (common/toolchain/targets.h).
#pragma once

#include <string>

#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinOps.h"

namespace zefuse {

// The name of a function by the Itanium C++ ABI, as SPIR-V's importers of OpenCL C expect it; `types` is the mangled
// parameter list.
std::string mangled(llvm::StringRef name, llvm::StringRef types);

// Calls it where the builder stands, declared in `module` at the first call. Without a result type, null.
mlir::Value callBuiltin(mlir::OpBuilder& builder, mlir::ModuleOp module, llvm::StringRef mangled_name,
                        mlir::Type result, mlir::ValueRange operands);

}  // namespace zefuse
