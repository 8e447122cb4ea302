// LLVM IR to an ELF object for one ISA level.
#pragma once

#include "drivers/cpu/codegen/codegen.h"
#include "drivers/spirv/reader_target.h"

#include "llvm/IR/Module.h"
#include "llvm/Target/TargetMachine.h"

#include <memory>

namespace zefuse::cpu {

std::unique_ptr<llvm::TargetMachine> createTargetMachine(IsaLevel isa, int opt_level);

// target-cpu, target-features and vector width of every function that has a body.
void setTargetAttributes(llvm::Module& module, IsaLevel isa);

// Inlines every helper into the kernels and simplifies, before regions are formed.
void prepareKernels(llvm::Module& module, llvm::TargetMachine& target);

// `many_kernels`: work-item loops are not vectorised by LLVM; a module of hundreds of kernels would take minutes.
void optimize(llvm::Module& module, llvm::TargetMachine& target, int opt_level, bool many_kernels);
// After optimize, which would undo it: NaN-propagating maxima and minima, select(a > b or a is NaN, a, b), take their
// comparison from one max or min instruction.
void useMaxInstructions(llvm::Module& module);
std::vector<char> emitObject(llvm::Module& module, llvm::TargetMachine& target);

// libraries.cpp: defines the zf_* math and image functions that the module calls.
void linkLibraries(llvm::Module& module, IsaLevel isa);

// dot_products.cpp: how the level computes zefuse.dot4.
spirv::Dot4* dot4Of(IsaLevel isa);

// link_elf.cpp: an ELF shared object. Throws CompileError with lld's own words.
std::vector<std::byte> linkSharedObject(const std::vector<char>& object);

}  // namespace zefuse::cpu
