#include "lowering/lower.h"

namespace zefuse {

TargetDescription TargetDescription::cpu() {
  TargetDescription target;
  target.name = "cpu";
  return target;
}

TargetDescription TargetDescription::intelGpu(std::string_view device) {
  TargetDescription target;
  target.name = device;
  target.kind = Kind::intel_gpu;
  target.vector_width = 1;
  // dg2 and older run SIMD8/16 threads, Xe2 and Ponte Vecchio SIMD16.
  bool wide =
      device.starts_with("pvc") || device.starts_with("bmg") || device.starts_with("lnl") || device.starts_with("ptl");
  target.subgroup_size = wide ? 16 : 8;
  target.max_group_size = 256;
  target.local_memory_bytes = 64 << 10;
  target.private_row_bytes = 0;  // private arrays of this size would spill to memory
  return target;
}

}  // namespace zefuse
