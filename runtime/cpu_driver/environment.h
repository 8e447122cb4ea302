// Every environment variable of the driver, in one place. None changes what a kernel computes. (ZEFUSE_CPU_ISA, which
// does choose the generated code, belongs to codegen/.)
//
//   ZEFUSE_CPU_DRIVER_THREADS=n   at most n threads run one launch; 1 is the smallest path: no OpenMP region, no team
//   ZEFUSE_CPU_DRIVER_AS=cpu|gpu  the device type that properties report (SYCL and oneDNN keep only GPU devices)
//   ZEFUSE_CPU_DRIVER_LOG=1       each refused call writes its reason to stderr
#pragma once

#include <cstdint>

namespace zefuse::cpu {

struct Environment {
  uint32_t max_threads;
  bool present_as_gpu;
  bool log_refusals;
};

// Read once, at first use; later changes of the process's environment have no effect. A value that does not parse is
// reported on stderr and replaced by the default.
const Environment& environment();

}  // namespace zefuse::cpu
