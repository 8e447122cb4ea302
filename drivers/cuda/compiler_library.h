// The boundary between the driver and its compiler, libzefuse_cuda_compiler.so.1. Both are built and installed
// together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "drivers/cuda/codegen/codegen.h"

namespace zefuse::cuda {

using CompilerEntry = void (*)(const uint32_t* words, size_t count, const CompileOptions& options,
                               CompileResult& result);
// With a number that is raised when one of these types changes.
inline constexpr const char* compiler_entry_name = "zefuse_cuda_compile_1";

std::string compilerPath();  // beside the driver

}  // namespace zefuse::cuda
