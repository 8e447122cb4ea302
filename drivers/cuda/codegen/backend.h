// SPIR-V to LLVM IR, and that to PTX.
#pragma once

#include "drivers/cuda/codegen/codegen.h"

#include "llvm/IR/Module.h"
#include "llvm/Target/TargetMachine.h"

#include <memory>

namespace zefuse::cuda {

// `own`: for code with instructions that this architecture has and later ones have not (sm_90a).
std::unique_ptr<llvm::TargetMachine> createTargetMachine(uint32_t architecture, int opt_level, bool own = false);

// Inlines every function into the kernels and simplifies, so that markers have constant operands.
void prepareKernels(llvm::Module& module, llvm::TargetMachine& target);
void optimize(llvm::Module& module, llvm::TargetMachine& target, int opt_level);
// Private memory at constant places to registers, at any optimization level: instructions that are under way write
// them.
void promotePrivate(llvm::Module& module, llvm::TargetMachine& target);
std::string emitPtx(llvm::Module& module, llvm::TargetMachine& target);

// compile.cpp: all stages but the last. Fills `result` but for ok and the program's image. Throws CompileError.
std::unique_ptr<llvm::Module> lowerToLlvm(std::span<const uint32_t> words, const CompileOptions& options,
                                          llvm::LLVMContext& context, llvm::TargetMachine& target,
                                          CompileResult& result);

// math_link.cpp: defines the zf_* math functions that the module calls. Throws CompileError for one that is missing.
void linkMathLibrary(llvm::Module& module);

}  // namespace zefuse::cuda
