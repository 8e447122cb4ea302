// The markers of the reader (drivers/spirv/markers.h) on an NVIDIA GPU: special registers, barriers, shuffles of a warp
// and shared memory.
//
// A sub-group is a warp, or an equal part of one where the kernel asks for 1, 2, 4, 8 or 16 items. All items of a group
// or sub-group reach an operation of it together, as OpenCL has it: what SPIR-V calls non-uniform is not told apart.
#pragma once

#include "drivers/cuda/program.h"
#include "drivers/spirv/markers.h"
#include "drivers/spirv/reader.h"

#include "llvm/IR/Module.h"

namespace zefuse::cuda {

// Gives `source.function` the form of a CUDA kernel (program.h): a function `symbol` of its own that calls it. To be
// followed by inlining, then lowerMarkers.
llvm::Function* makeKernel(const spirv::KernelSource& source, const std::string& symbol);

// Replaces every marker and printf in `kernel`. Completes `out`: local_bytes, has_barrier. Throws CompileError.
void lowerMarkers(llvm::Function& kernel, const spirv::KernelSource& source, const spirv::Markers& markers,
                  const std::map<uint32_t, spirv::LocalVariable>& variables, ProgramKernel& out);

}  // namespace zefuse::cuda
