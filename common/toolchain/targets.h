// The devices that kernels are compiled for ahead of need: two closed tables. A GPU is named as ocloc names it, a level
// of x86-64 as ZEFUSE_CPU_ISA does. Nothing but the standard library: compiler, runtime and the CPU driver share this
// file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace zefuse {

// The shape of one matrix instruction (dpas) of a sub-group, in elements of a 16-bit type: c[m, n] += a[m, k] * b[k,
// n]. m is the most that one instruction takes.
struct MatrixEngine {
  int m = 0, n = 0, k = 0;  // n is the sub-group size that the instruction needs; all 0: no matrix engine
};

struct GpuTarget {
  std::string_view product;    // "dg2-g11": the name of plans, caches and the compiler
  std::string_view family;     // "Xe-HPG"
  std::string_view marketing;  // one example
  int vector_engines;          // of the largest variant
  int threads_per_engine;
  int register_bytes;        // of one of a thread's 128 registers
  int max_group_size;        // work-items
  int64_t local_memory_kib;  // that one work-group may have
  uint32_t subgroup_sizes;   // a bit per size: 8 | 16 | 32
  bool f64;                  // native double precision
  bool lsc;                  // messages of the load/store cache: one reads a row of local memory for a whole sub-group
  MatrixEngine matrix;
  bool integrated;                       // shares the host's memory
  std::string_view alias;                // another name in use, such as "acm-g11"; may be empty
  std::span<const uint16_t> device_ids;  // PCI, vendor 0x8086
  std::string_view compilers;            // versions of ocloc seen to compile for it, "22.43, 26.27"
};

std::span<const GpuTarget> gpuTargets();
const GpuTarget* findGpuTarget(std::string_view product);  // by product or alias; null: not in the table
const GpuTarget* findGpuTarget(uint32_t device_id);

// A level of x86-64, each a superset of the one before.
struct CpuTarget {
  std::string_view name;   // "avx512"
  std::string_view alias;  // "x86-64-v4"; may be empty
  std::string_view needs;  // the features
};

std::span<const CpuTarget> cpuTargets();  // lowest first
const CpuTarget* findCpuTarget(std::string_view name);
// The index in cpuTargets() of the highest level that this host runs and ZEFUSE_CPU_ISA allows. AMX tiles need the
// kernel's permission as well (arch_prctl); whoever runs such code asks for it.
size_t hostCpuLevel();

}  // namespace zefuse
