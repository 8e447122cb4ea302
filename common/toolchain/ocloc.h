// Intel's offline compiler: the functions of its row in vendor_compilers.cpp.
#pragma once

#include "common/toolchain/vendor_compilers.h"

namespace zefuse {

// ZEFUSE_OCLOC, else "ocloc" in PATH.
ZEFUSE_API std::string defaultOcloc();

// ZEFUSE_OCLOC alone where it is set; else "ocloc" and those of `zefuse toolchain install`.
std::vector<std::string> installedOclocs();

struct OclocOptions : CompilerOptions {
  OclocOptions() { compiler = defaultOcloc(); }
};

// Such as "22.43.24595".
Result<std::string> oclocVersion(const CompilerOptions& options = OclocOptions());
// As its help lists them ("dg2-g11", "acm-g11", ...).
Result<std::vector<std::string>> oclocDevices(const CompilerOptions& options = OclocOptions());

DeviceReport oclocReport(const DeviceBinary& binary);

// On failure the SPIR-V file stays where the message's command expects it, unless it was cancelled.
Result<DeviceBinary> compileWithOcloc(std::span<const uint32_t> spirv, const std::string& device,
                                      const CompilerOptions& options = OclocOptions());

}  // namespace zefuse
