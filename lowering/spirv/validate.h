// spirv-val as a library: every module that leaves lowering/ has passed it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/toolchain/target_description.h"

namespace zefuse {
// What is wrong with the module as an OpenCL 2.2 kernel module (SPIR-V 1.2); nothing when it is valid.
std::optional<std::string> whyInvalid(std::span<const uint32_t> words);
// Functions that the module calls and does not have: names that the back end took for no instruction.
std::vector<std::string> importedFunctions(std::span<const uint32_t> words);
// What a valid module uses that the target does not have, which its compiler would find at the build or the launch: a
// function that is none of its matrix engine's, or arithmetic that is not native. Empty: nothing.
std::string whyNotOn(const TargetDescription& target, std::span<const uint32_t> words);
std::string disassemble(std::span<const uint32_t> words);
}  // namespace zefuse
