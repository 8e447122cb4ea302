// What the devices' compilers made of a kernel, kept between runs of the tests that judge it: all kernels for all
// devices take minutes, and nearly all are the last run's.
#pragma once

#include <string>

#include "common/toolchain/ocloc.h"

namespace zefuse::test {

// As compileWithOcloc, which is asked only for what is not in the folder: of this SPIR-V and device by a compiler of
// this version (zefuse-ptx's has the build id of our compiler and the version of ptxas). Failures are not kept. The
// folder is ZEFUSE_TEST_CACHE (empty: none), else zefuse-tests in the user's cache folder, where ccache has its own:
// another clone of the repository finds it, too.
Result<DeviceBinary> keptBinary(std::span<const uint32_t> spirv, const std::string& device,
                                const CompilerOptions& options = OclocOptions());

}  // namespace zefuse::test
