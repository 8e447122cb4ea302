// A target as the schedules see it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/toolchain/targets.h"

namespace zefuse {

// What the schedule knows of a target. Constants come from named factories, so that equal targets make equal code.
struct TargetDescription {
  enum class Kind { cpu, intel_gpu };
  std::string name;  // "cpu", "dg2-g11": also the plan's and the cache's name of it
  Kind kind = Kind::cpu;
  int vector_width = 16;                 // lanes of explicit vectors in the kernel (SPIR-V allows 2, 3, 4, 8, 16)
  int64_t private_row_bytes = 16 << 10;  // a row value up to this size may be kept instead of recomputed
  // intel_gpu
  int subgroup_size = 0;  // of kernels that reduce or tile
  int max_group_size = 1;
  int64_t local_memory_bytes = 0;
  int64_t resident_items = 1;     // work-items that the largest variant runs at a time
  int64_t accumulator_bytes = 0;  // of a hardware thread's registers, that a product may fill
  int64_t buffer_alignment = 1;  // bytes: every pointer that a launch is given is a multiple of it
  bool f64 = true;
  MatrixEngine matrix;
  int64_t engine_accumulator_bytes = 0;  // as accumulator_bytes, on the matrix engine

  static TargetDescription cpu();
  // A product of gpuTargets(); none for another name.
  static std::optional<TargetDescription> intelGpu(std::string_view product);
};

}  // namespace zefuse
