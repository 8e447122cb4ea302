// Stage 3 to stage 4: a scheduled function to LLVM dialect, LLVM IR and SPIR-V words.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "mlir/IR/BuiltinOps.h"

namespace llvm {
class LLVMContext;
class Module;
}  // namespace llvm

namespace zefuse {

// In place: scf, arith, math, vector and func become the LLVM dialect; functions with a body become SPIR-V kernels.
// `index_bits`: 64, or 32 where all indices are smaller than 2^31; addresses have 64 either way.
mlir::LogicalResult convertToLLVMDialect(mlir::ModuleOp module, unsigned index_bits = 64);

// Translates and cleans up (SROA, CSE, CFG: no pass that could make what the back end cannot legalise).
std::unique_ptr<llvm::Module> translateToLLVM(mlir::ModuleOp module, llvm::LLVMContext& context);

// SPIR-V 1.2, OpenCL flavour, no extensions. Not validated. Thread-safe.
mlir::FailureOr<std::vector<uint32_t>> emitSpirv(const llvm::Module& module, std::string& error);

}  // namespace zefuse
