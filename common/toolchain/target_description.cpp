#include "common/toolchain/target_description.h"

namespace zefuse {

TargetDescription TargetDescription::cpu() {
  TargetDescription target;
  target.name = "cpu";
  return target;
}

std::optional<TargetDescription> TargetDescription::intelGpu(std::string_view product) {
  const GpuTarget* gpu = findGpuTarget(product);
  if (!gpu)
    return std::nullopt;
  TargetDescription target;
  target.name = product;
  target.kind = Kind::intel_gpu;
  target.vector_width = 8;       // at most: a work-item's access is 16 bytes (docs/lowering.md)
  // Kernels see memory of the executor's own, never a caller's: its device side places buffers so (arena_alignment).
  target.buffer_alignment = 64;
  target.private_row_bytes = 0;  // private arrays of this size would spill to memory
  target.subgroup_size = 16;     // the one size that all have
  target.max_group_size = gpu->max_group_size;
  target.local_memory_bytes = gpu->local_memory_kib << 10;
  target.resident_items = int64_t(gpu->vector_engines) * gpu->threads_per_engine * target.subgroup_size;
  // What compiles without spills, with Intel's compilers of 2022 and 2026 (gpu_test.cpp). Without the load/store
  // cache's messages operands from local memory take registers per lane.
  target.accumulator_bytes = !gpu->lsc ? 1 << 10 : gpu->register_bytes == 32 ? 2 << 10 : 3 << 10;
  target.f64 = gpu->f64;
  target.matrix = gpu->matrix;
  // Half of the registers: operands come whole blocks at a time.
  target.engine_accumulator_bytes = gpu->matrix.n == 0 ? 0 : int64_t(64) * gpu->register_bytes;
  return target;
}

}  // namespace zefuse
