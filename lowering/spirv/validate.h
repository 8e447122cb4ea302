// spirv-val as a library: every module that leaves lowering/ has passed it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace zefuse {
// What is wrong with the module as an OpenCL 2.2 kernel module (SPIR-V 1.2); nothing when it is valid.
std::optional<std::string> whyInvalid(std::span<const uint32_t> words);
// Functions that the module calls and does not have: names that the back end took for no instruction.
std::vector<std::string> importedFunctions(std::span<const uint32_t> words);
// Whether an imported function is one that Intel's compilers have: the matrix engine's. The CPU driver has it as well.
bool isDeviceFunction(std::string_view name);
std::string disassemble(std::span<const uint32_t> words);
}  // namespace zefuse
