// Everything a user can set about compiling, in one struct that is part of every cache key, and the environment
// variables, in two closed sets: those that change generated code and those that do not.
#pragma once

#include <string>

namespace zefuse {

struct Options {
  std::string device = "cpu";   // "cpu", "gpu": any of the kind
  std::string target = "cpu";   // what kernels are compiled for: "cpu", or the device's product (lowering/targets.h)
  bool strict = false;          // an operator without a lowering is an error
  bool fuse = true;             // false: one kernel per operation, to bisect a wrong result
  std::string device_compiler;  // a GPU's, with its version, that the spill check asks (compileModule); empty: none
  std::string dump_dir;         // every stage of every kernel is written there; does not change code
  std::string cache_dir;        // native code; empty: none. Does not change code
};

// Change generated code (the CPU driver has its own, docs/cpu_driver.md; the default of target for a GPU is
// ze::kGpuTargetVariable):
inline constexpr const char* kPackageVariable = "ZEFUSE_PACKAGE";  // default of the package whose plans are taken
// Do not change code:
inline constexpr const char* kJitVariable = "ZEFUSE_JIT";          // default of consent to a GPU driver's own compiler
inline constexpr const char* kDumpVariable = "ZEFUSE_DUMP";        // default of dump_dir
inline constexpr const char* kCacheVariable = "ZEFUSE_CACHE_DIR";  // default of cache_dir

}  // namespace zefuse
