// Loads that SPIR-V says nobody repeats (Nontemporal).
#pragma once

#include "llvm/IR/Module.h"

namespace zefuse::cuda {

// Of 8 and 16 bytes, from memory that a kernel only reads, such loads become `ld.global.nc.L1::no_allocate`: NVPTX has
// no form for them. The last thing that is done to the module, since nothing looks into inline assembly.
void streamLoads(llvm::Module& module);

}  // namespace zefuse::cuda
