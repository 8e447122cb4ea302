#include "common/toolchain/target_description.h"

#include "common/base/buffer_alignment.h"

namespace zefuse {

TargetDescription TargetDescription::cpu() {
  TargetDescription target;
  target.name = "cpu";
  target.on_host = true;
  target.private_row_bytes = 16 << 10;
  target.native.f64 = true;
  target.native.dot4 = true;
  target.supports = {.batches = true, .parts = true, .in_place = true};
  return target;
}

TargetDescription TargetDescription::of(const GpuTarget& gpu) {
  TargetDescription target;
  target.name = gpu.product;
  target.max_group_size = gpu.max_group_size;
  target.subgroup_size = gpu.subgroup_size;
  target.vector_width = 8;  // at most: an access of 16 bytes (docs/lowering.md)
  target.access_bytes = gpu.access_bytes;
  target.vector_alignment = gpu.vector_alignment;
  target.index_bits = gpu.index_bits;
  target.engines = gpu.engines;
  target.resident_items = int64_t(gpu.engines) * gpu.threads_per_engine * gpu.subgroup_size;
  target.private_row_bytes = 0;  // private arrays would spill to memory
  target.buffer_alignment = int64_t(zefuse::buffer_alignment);
  target.local_memory_bytes = gpu.local_memory_kib << 10;
  target.accumulator_bytes = gpu.accumulator_bytes;
  // Half of the registers: operands come whole blocks at a time.
  target.engine_accumulator_bytes = gpu.matrix.lanes == 0 ? 0 : gpu.register_bytes / 2;
  target.native = gpu.native;
  target.matrix = gpu.matrix;
  target.product_library = gpu.product_library;
  target.supports = {.batches = true, .in_place = true, .products = true};
  return target;
}

std::optional<TargetDescription> TargetDescription::named(std::string_view name) {
  if (name == "cpu")
    return cpu();
  const GpuTarget* gpu = findGpuTarget(name);
  return gpu ? std::optional(of(*gpu)) : std::nullopt;
}

}  // namespace zefuse
