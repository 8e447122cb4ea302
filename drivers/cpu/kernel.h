// Kernels: a module's entry point with argument values, a group size and a global offset.
#pragma once

#include <level_zero/ze_api.h>

#include "drivers/cpu/arguments.h"
#include "drivers/cpu/codegen/codegen.h"
#include "drivers/cpu/device.h"
#include "drivers/cpu/launch.h"
#include "drivers/cpu/level_zero.h"
#include "drivers/cpu/module.h"

namespace zefuse::cpu {

// Not thread-safe, as the Level Zero calls on one kernel. Several kernels of one module are independent.
struct Kernel : Object<Kernel> {
  static constexpr uint32_t kMagic = magicOf("ZKRN");
  const Ref<Module> module;
  const spirv::KernelInfo& info;  // of *module
  const WorkGroupFn entry;
  Arguments arguments;
  uint64_t group_size[3];
  uint64_t global_offset[3] = {0, 0, 0};
  ze_kernel_indirect_access_flags_t indirect_access = 0;

  Kernel(Module& module, size_t index);

  static constexpr uint32_t kMaxItemsInZ = kMaxGroupItems, kSubgroupSize = kDefaultSubgroupSize;
  static constexpr uint32_t kPreferredMultiple = 1;  // a sub-group's, if larger
  static uint32_t maxItems() { return kMaxGroupItems; }
  uint32_t privateBytes() const { return info.private_bytes; }

  // Why this kernel cannot be launched now, through refuse(), or SUCCESS.
  ze_result_t checkLaunch() const { return arguments.checkComplete(); }

  // The call for `groups`, pointing into this kernel.
  KernelCall call(const ze_group_count_t& groups) const;
};

// Completes `launch` (local_size and global_offset are set) for a group count.
void setGroupCount(LaunchContext& launch, const ze_group_count_t& groups);

// Whether the number of groups can be counted in 63 bits.
ze_result_t checkGroupCount(const ze_group_count_t& groups);

decltype(::zeKernelCreate) kernelCreate;
decltype(::zeKernelSuggestMaxCooperativeGroupCount) kernelSuggestMaxCooperativeGroupCount;
decltype(::zeKernelSetArgumentValue) kernelSetArgumentValue;

}  // namespace zefuse::cpu
