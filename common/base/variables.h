// The environment variables that more than one folder reads, in two closed sets: those that change generated code and
// those that do not. All of them: docs/environment.md.
#pragma once

namespace zefuse {

// Change generated code (the CPU driver has its own, docs/cpu_driver.md; the default of target for a GPU is
// ze::kGpuTargetVariable):
inline constexpr const char* kPackageVariable = "ZEFUSE_PACKAGE";  // default of the package whose plans are taken
// Do not change code:
inline constexpr const char* kJitVariable = "ZEFUSE_JIT";          // default of consent to a GPU driver's own compiler
inline constexpr const char* kDumpVariable = "ZEFUSE_DUMP";        // default of dump_dir
inline constexpr const char* kCacheVariable = "ZEFUSE_CACHE_DIR";  // default of cache_dir

}  // namespace zefuse
