// spirv-val as a library: every module that leaves lowering/ has passed it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace zefuse {
// What is wrong with the module as an OpenCL 2.2 kernel module (SPIR-V 1.2); nothing when it is valid.
std::optional<std::string> whyInvalid(std::span<const uint32_t> words);
std::string disassemble(std::span<const uint32_t> words);
}  // namespace zefuse
