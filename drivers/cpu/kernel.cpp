#include "drivers/cpu/kernel.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>

#include "drivers/cpu/device.h"
#include "drivers/level_zero/counted.h"

namespace zefuse::cpu {
Kernel::Kernel(Module& owner, size_t index)
    : module(&owner), info(owner.loaded->kernels()[index]), entry(owner.loaded->entry(index)),
      arguments(info, reachesUsmOnly(owner.device)) {
  for (int i = 0; i < 3; ++i)
    group_size[i] = std::max(info.required_group_size[i], 1u);
}

KernelCall Kernel::call(const ze_group_count_t& groups) const {
  KernelCall call;
  call.entry = entry;
  arguments.fill(call);
  std::memcpy(call.launch.local_size, group_size, sizeof group_size);
  std::memcpy(call.launch.global_offset, global_offset, sizeof global_offset);
  setGroupCount(call.launch, groups);
  return call;
}

void setGroupCount(LaunchContext& launch, const ze_group_count_t& groups) {
  launch.group_count[0] = groups.groupCountX;
  launch.group_count[1] = groups.groupCountY;
  launch.group_count[2] = groups.groupCountZ;
  launch.work_dim = workDimension(launch.group_count, launch.local_size);
}

ze_result_t checkGroupCount(const ze_group_count_t& groups) {
  uint64_t plane = uint64_t{groups.groupCountX} * groups.groupCountY;
  if (groups.groupCountZ == 0 ||
      plane <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) / groups.groupCountZ)
    return ZE_RESULT_SUCCESS;
  return refuse(ZE_RESULT_ERROR_INVALID_GLOBAL_WIDTH_DIMENSION, "launch of %u x %u x %u groups: more than 2^63",
                groups.groupCountX, groups.groupCountY, groups.groupCountZ);
}

ze_result_t kernelCreate(ze_module_handle_t hModule, const ze_kernel_desc_t* desc, ze_kernel_handle_t* phKernel) {
  ZEFUSE_OBJECT(Module, module, hModule);
  ZEFUSE_NOT_NULL(desc);
  ZEFUSE_NOT_NULL(desc->pKernelName);
  ZEFUSE_NOT_NULL(phKernel);
  *phKernel = nullptr;
  const auto& kernels = module->loaded->kernels();
  auto found = std::find_if(kernels.begin(), kernels.end(),
                            [&](const spirv::KernelInfo& info) { return info.name == desc->pKernelName; });
  if (found == kernels.end())
    return refuse(ZE_RESULT_ERROR_INVALID_KERNEL_NAME,
                  "zeKernelCreate: the module has no kernel '%s' (it has %zu, the first is '%s')", desc->pKernelName,
                  kernels.size(), kernels.empty() ? "" : kernels.front().name.c_str());
  if (!module->imports.empty())
    return refuse(ZE_RESULT_ERROR_INVALID_MODULE_UNLINKED,
                  "zeKernelCreate: the module imports '%s' (%zu imports in all)", module->imports.front().c_str(),
                  module->imports.size());
  if (found->args.size() > kMaxArguments)
    return refuse(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE,
                  "zeKernelCreate: kernel '%s' has %zu arguments; at most %u are supported", desc->pKernelName,
                  found->args.size(), kMaxArguments);
  return guarded(__func__, [&] {
    *phKernel = toHandle<ze_kernel_handle_t>(new Kernel(*module, static_cast<size_t>(found - kernels.begin())));
    return ZE_RESULT_SUCCESS;
  });
}

ze_result_t kernelSuggestMaxCooperativeGroupCount(ze_kernel_handle_t hKernel, uint32_t* totalGroupCount) {
  ZEFUSE_CHECK(Kernel, hKernel);
  ZEFUSE_NOT_NULL(totalGroupCount);
  *totalGroupCount = 1;  // a thread runs its groups one after the other: only one is sure to make progress
  return ZE_RESULT_SUCCESS;
}

ze_result_t kernelSetArgumentValue(ze_kernel_handle_t hKernel, uint32_t argIndex, size_t argSize,
                                   const void* pArgValue) {
  ZEFUSE_OBJECT(Kernel, kernel, hKernel);
  return kernel->arguments.set(argIndex, argSize, pArgValue);
}

}  // namespace zefuse::cpu
