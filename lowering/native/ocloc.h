// Intel's offline compiler: SPIR-V to a device binary that zeModuleCreate takes as ZE_MODULE_FORMAT_NATIVE.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/status.h"

namespace zefuse {

struct OclocOptions {
  std::string compiler = "ocloc";  // name or path
  std::chrono::milliseconds deadline{60'000};
};

// Runs the compiler as a subprocess (it may hang or crash: facts of real compilers). On failure the SPIR-V file stays
// where the message's command expects it. Thread-safe.
Result<std::vector<std::byte>> compileWithOcloc(std::span<const uint32_t> spirv, const std::string& device,
                                                const OclocOptions& options = {});

}  // namespace zefuse
