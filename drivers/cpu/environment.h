// Every environment variable of the driver, in one place. None changes what a kernel computes. (ZEFUSE_CPU_ISA, which
// does choose the generated code, belongs to codegen/, ZE_AFFINITY_MASK to level_zero/affinity.h.)
//
//   ZEFUSE_CPU_DRIVER_THREADS=n   at most n threads run one launch; 1 is the smallest path: no OpenMP region, no team
//   ZEFUSE_CPU_DRIVER_AS=cpu|gpu|integrated-gpu|integrated-gpu-usm
//                                 a second device that is a GPU (SYCL and oneDNN keep only such): discrete, its memory
//                                 out of the host's reach, or integrated, reaching all of the process or USM only
//   ZEFUSE_CPU_DRIVER_GPU_MEMORY_MB=n  how much memory that GPU has
//   ZEFUSE_CPU_DRIVER_GPU_ID=0x56a5  its PCI id, of Intel: what such a device does can be tested, its compiler too
//   ZEFUSE_CPU_DRIVER_GPU_FAULT=hang:n|lost:n|no-memory:n|hang-copy:n|jit-hang|jit-crash|jit-memory
//                                 its n-th launch never ends, loses the device, or finds no memory; its n-th copy never
//                                 ends; making its code from SPIR-V never ends, or ends the process
//   ZEFUSE_CPU_DRIVER_LOG=1       each refused call writes its reason to stderr
#pragma once

#include <cstdint>

namespace zefuse::cpu {

enum class PosingGpu { none, discrete, integrated, integrated_usm };
enum class Fault { none, hang, lost, no_memory, hang_copy, jit_hang, jit_crash, jit_memory };

struct Environment {
  uint32_t max_threads;
  PosingGpu gpu;
  uint64_t gpu_memory_bytes;  // 0: the host's
  Fault fault;
  uint64_t fault_at;  // the number of a launch or copy, from 1
  bool log_refusals;
  uint32_t gpu_id;  // 0: none of Intel's
};

// Read once, at first use; later changes of the process's environment have no effect. A value that does not parse is
// reported on stderr and replaced by the default.
const Environment& environment();

}  // namespace zefuse::cpu
