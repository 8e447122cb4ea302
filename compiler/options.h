// Everything a user can set about compiling, in one struct that is part of every cache key.
#pragma once

#include <string>

namespace zefuse {

struct Options {
  std::string device = "cpu";  // "cpu", "gpu": any of the kind
  std::string target =
      "cpu";            // what kernels are compiled for: "cpu", or the device's product (common/toolchain/targets.h)
  bool strict = false;  // an operator without a lowering is an error
  bool fuse = true;     // false: one kernel per operation, to bisect a wrong result
  std::string library_products = "auto";      // which a GPU vendor's library may compute: "never", "auto", "always"
  std::string library_convolutions = "auto";  // likewise
  // What a plan makes of parameters alone may be kept from call to call; for a GPU more is made apart for that.
  bool kept_weights = false;
  // Operands of f32 may be rounded to TF32 (10 bits of mantissa), by what torch says of CUDA's products and
  // convolutions.
  bool tf32_products = false, tf32_convolutions = false;
  std::string device_compiler;  // a GPU's, with its version, that the spill check asks (compileModule); empty: none
  std::string tuning;  // what was measured of schedules, as readTuning has it (tuning/tuned_kernels.h); empty: nothing
  bool list_decisions = false;  // the plan's report says what there is to measure
  int build_threads = 0;        // that lower kernels; 0: one per core. Does not change code
  std::string dump_dir;         // every stage of every kernel is written there; does not change code
  std::string cache_dir;        // native code; empty: none. Does not change code
};

}  // namespace zefuse
