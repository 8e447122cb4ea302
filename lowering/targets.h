// The devices that kernels are compiled for ahead of need: one closed table. A device is named as ocloc names it.
#pragma once

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
};

std::span<const GpuTarget> gpuTargets();
const GpuTarget* findGpuTarget(std::string_view product);  // null: not in the table

}  // namespace zefuse
