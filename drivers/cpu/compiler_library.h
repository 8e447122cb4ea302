// The boundary between the driver and its compiler, libzefuse_cpu_compiler.so.1. Both are built and installed together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "drivers/cpu/codegen/codegen.h"

namespace zefuse::cpu {

using CompilerEntry = void (*)(const uint32_t* words, size_t count, const CompileOptions& options,
                               CompileResult& result);
using LinkerEntry = void (*)(const std::vector<uint32_t>* modules, size_t count, LinkResult& result);
// With a number that is raised when one of these types changes.
inline constexpr const char* compiler_entry_name = "zefuse_cpu_compile_1";
inline constexpr const char* linker_entry_name = "zefuse_cpu_link_1";

std::string compilerPath();  // beside the driver

}  // namespace zefuse::cpu
