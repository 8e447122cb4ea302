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
std::vector<char> emitObject(llvm::Module& module, llvm::TargetMachine& target);

// selection_rewrites.cpp, all after optimize, which would undo them.
// NaN-propagating maxima and minima, select(a > b or a is NaN, a, b), take their comparison from one max or min
// instruction.
void useMaxInstructions(llvm::Module& module);
// Integers are added up to one number in a tree whose vectors keep their width. LLVM 22 puts vpdpbusd or vpsadbw in the
// place of one that becomes narrower, and then leaves out those of the instruction's sums beyond the first.
void addUpInOneWidth(llvm::Module& module);
// select(c, x, what is there), stored there, is stored whole. LLVM 22 makes a masked store of it, with which a maximum
// over places took 2.4 times as long (AVX2, an AMD EPYC).
void keepWholeStores(llvm::Module& module);
// Two lanes of 64 bits repeated to a register's eight are converted between integers and floats as they are. Where only
// the first two results are read, LLVM 22 takes the first lane twice.
void keepRepeatedLanes(llvm::Module& module);

// libraries.cpp: defines the zf_* math and image functions that the module calls.
void linkLibraries(llvm::Module& module, IsaLevel isa);

// dot_products.cpp: how the level computes zefuse.dot4.
spirv::Dot4* dot4Of(IsaLevel isa);

// link_elf.cpp: an ELF shared object. Throws CompileError with lld's own words.
std::vector<std::byte> linkSharedObject(const std::vector<char>& object);

}  // namespace zefuse::cpu
