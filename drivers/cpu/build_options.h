// From a module descriptor's build flags to codegen's options.
#pragma once

#include <string>

#include "drivers/cpu/codegen/codegen.h"

namespace zefuse::cpu {

// Fills opt_level and build_flags from `flags` (may be nullptr). Unknown flags are kept in build_flags and reported in
// `log`; false, with a sentence in `log`, for a malformed one.
bool parseBuildFlags(const char* flags, CompileOptions& options, std::string& log);

}  // namespace zefuse::cpu
