// From a module descriptor's strings and constants to what a compiler wants.
#pragma once

#include <level_zero/ze_api.h>

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "drivers/spirv/kernel_info.h"

namespace zefuse::level_zero {

struct BuildFlags {
  int opt_level = 3;     // 0..3
  std::string accepted;  // the flags as Intel's driver stores them; programs look for "-ze-opt-level=O2"
};

// What a driver's own flag did: it is taken (and not kept in BuildFlags::accepted), malformed (the sentence is in the
// log), or none of the driver's.
enum class OwnFlag { taken, malformed, unknown };

// `flags` may be nullptr. Unknown flags are kept and reported in `log`; false, with a sentence in `log`, for a
// malformed one. `own` may be empty.
bool parseBuildFlags(const char* flags, BuildFlags& options, std::string& log,
                     const std::function<OwnFlag(std::string_view)>& own = {});

// Level Zero gives specialisation constants as pointers without sizes: the sizes are those of the types that `words`
// declare them with. Ids that the module does not declare are reported in `log` and skipped. Any words are safe.
void readSpecConstants(std::span<const uint32_t> words, const ze_module_constants_t* constants,
                       std::vector<spirv::SpecConstant>& values, std::string& log);

}  // namespace zefuse::level_zero
