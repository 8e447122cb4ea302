// From a module descriptor's strings and constants to codegen's options.
#pragma once

#include <level_zero/ze_api.h>

#include <cstdint>
#include <span>
#include <string>

#include "drivers/cpu/codegen/codegen.h"

namespace zefuse::cpu {

// Fills opt_level and build_flags from `flags` (may be nullptr). Unknown flags are kept in build_flags and reported in
// `log`; false, with a sentence in `log`, for a malformed one.
bool parseBuildFlags(const char* flags, CompileOptions& options, std::string& log);

// Level Zero gives specialisation constants as pointers without sizes: the sizes are those of the types that `words`
// declare them with. Ids that the module does not declare are reported in `log` and skipped. Any words are safe.
void readSpecConstants(std::span<const uint32_t> words, const ze_module_constants_t* constants, CompileOptions& options,
                       std::string& log);

}  // namespace zefuse::cpu
