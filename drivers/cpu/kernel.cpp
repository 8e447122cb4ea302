#include "drivers/cpu/kernel.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>

#include "drivers/cpu/device.h"
#include "drivers/level_zero/counted.h"

namespace zefuse::cpu {
namespace {

bool requiresGroupSize(const spirv::KernelInfo& info) { return info.required_group_size[0] != 0; }

// The largest divisor of `size` that is at most `limit`.
uint32_t largestDivisor(uint32_t size, uint32_t limit) {
  for (uint32_t divisor = std::min(size, limit); divisor > 1; --divisor)
    if (size % divisor == 0)
      return divisor;
  return 1;
}

}  // namespace

Kernel::Kernel(Module& owner, size_t index)
    : module(&owner), info(owner.loaded->kernels()[index]), entry(owner.loaded->entry(index)),
      arguments(info, reachesUsmOnly(owner.device)) {
  for (int i = 0; i < 3; ++i)
    local_size[i] = std::max(info.required_group_size[i], 1u);
}

KernelCall Kernel::call(const ze_group_count_t& groups) const {
  KernelCall call;
  call.entry = entry;
  arguments.fill(call);
  std::memcpy(call.launch.local_size, local_size, sizeof local_size);
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

ze_result_t kernelDestroy(ze_kernel_handle_t hKernel) {
  ZEFUSE_OBJECT(Kernel, kernel, hKernel);
  kernel->destroy();
  return ZE_RESULT_SUCCESS;
}

ze_result_t kernelSetCacheConfig(ze_kernel_handle_t hKernel, ze_cache_config_flags_t) {
  ZEFUSE_CHECK(Kernel, hKernel);
  return ZE_RESULT_SUCCESS;  // a hint; a CPU's caches are not divided by software
}

ze_result_t kernelSetGroupSize(ze_kernel_handle_t hKernel, uint32_t groupSizeX, uint32_t groupSizeY,
                               uint32_t groupSizeZ) {
  ZEFUSE_OBJECT(Kernel, kernel, hKernel);
  const uint32_t size[3] = {groupSizeX, groupSizeY, groupSizeZ};
  uint64_t items = uint64_t{size[0]} * size[1];
  if (items == 0 || size[2] == 0 || items > kMaxGroupItems || items * size[2] > kMaxGroupItems)
    return refuse(ZE_RESULT_ERROR_INVALID_GROUP_SIZE_DIMENSION,
                  "zeKernelSetGroupSize: %u x %u x %u for kernel '%s': 1 to %u items are possible", size[0], size[1],
                  size[2], kernel->info.name.c_str(), kMaxGroupItems);
  const uint32_t* required = kernel->info.required_group_size;
  if (requiresGroupSize(kernel->info) && !std::equal(size, size + 3, required))
    return refuse(ZE_RESULT_ERROR_INVALID_GROUP_SIZE_DIMENSION,
                  "zeKernelSetGroupSize: %u x %u x %u, but kernel '%s' requires %u x %u x %u", size[0], size[1],
                  size[2], kernel->info.name.c_str(), required[0], required[1], required[2]);
  std::copy(size, size + 3, kernel->local_size);
  return ZE_RESULT_SUCCESS;
}

ze_result_t kernelSuggestGroupSize(ze_kernel_handle_t hKernel, uint32_t globalSizeX, uint32_t globalSizeY,
                                   uint32_t globalSizeZ, uint32_t* groupSizeX, uint32_t* groupSizeY,
                                   uint32_t* groupSizeZ) {
  ZEFUSE_OBJECT(Kernel, kernel, hKernel);
  ZEFUSE_NOT_NULL(groupSizeX);
  ZEFUSE_NOT_NULL(groupSizeY);
  ZEFUSE_NOT_NULL(groupSizeZ);
  if (globalSizeX == 0 || globalSizeY == 0 || globalSizeZ == 0)
    return refuse(ZE_RESULT_ERROR_INVALID_GLOBAL_WIDTH_DIMENSION, "zeKernelSuggestGroupSize: a global size of 0");
  if (requiresGroupSize(kernel->info)) {
    *groupSizeX = kernel->info.required_group_size[0];
    *groupSizeY = kernel->info.required_group_size[1];
    *groupSizeZ = kernel->info.required_group_size[2];
    return ZE_RESULT_SUCCESS;
  }
  // Long in x, where neighbours in memory are; enough items to amortise a group's start, few enough to balance.
  constexpr uint32_t kItems = 256;
  *groupSizeX = largestDivisor(globalSizeX, kItems);
  *groupSizeY = largestDivisor(globalSizeY, kItems / *groupSizeX);
  *groupSizeZ = largestDivisor(globalSizeZ, kItems / *groupSizeX / *groupSizeY);
  return ZE_RESULT_SUCCESS;
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

ze_result_t kernelSetIndirectAccess(ze_kernel_handle_t hKernel, ze_kernel_indirect_access_flags_t flags) {
  ZEFUSE_OBJECT(Kernel, kernel, hKernel);
  kernel->indirect_access = flags;  // read at launch: memory.h
  return ZE_RESULT_SUCCESS;
}

ze_result_t kernelGetIndirectAccess(ze_kernel_handle_t hKernel, ze_kernel_indirect_access_flags_t* pFlags) {
  ZEFUSE_OBJECT(Kernel, kernel, hKernel);
  ZEFUSE_NOT_NULL(pFlags);
  *pFlags = kernel->indirect_access;
  return ZE_RESULT_SUCCESS;
}

// `*pString` is memory of the caller's: a char* was meant.
ze_result_t kernelGetSourceAttributes(ze_kernel_handle_t hKernel, uint32_t* pSize, char** pString) {
  ZEFUSE_OBJECT(Kernel, kernel, hKernel);
  ZEFUSE_NOT_NULL(pSize);
  if (pString)
    ZEFUSE_NOT_NULL(*pString);
  settleText(pSize, kernel->info.source_attributes, pString ? *pString : nullptr);
  return ZE_RESULT_SUCCESS;
}

ze_result_t kernelGetProperties(ze_kernel_handle_t hKernel, ze_kernel_properties_t* properties) {
  ZEFUSE_OBJECT(Kernel, kernel, hKernel);
  ZEFUSE_NOT_NULL(properties);
  const spirv::KernelInfo& info = kernel->info;
  properties->numKernelArgs = static_cast<uint32_t>(info.args.size());
  properties->requiredGroupSizeX = info.required_group_size[0];
  properties->requiredGroupSizeY = info.required_group_size[1];
  properties->requiredGroupSizeZ = info.required_group_size[2];
  properties->requiredNumSubGroups = 0;
  properties->requiredSubgroupSize = info.required_subgroup_size;
  properties->maxSubgroupSize = info.required_subgroup_size ? info.required_subgroup_size : kDefaultSubgroupSize;
  properties->maxNumSubgroups = kMaxGroupItems / properties->maxSubgroupSize;
  properties->localMemSize = info.local_bytes;
  properties->privateMemSize = info.private_bytes;
  properties->spillMemSize = 0;  // spills go to the thread's stack and are not counted
  const uint64_t hashes[2] = {std::hash<std::string>()(info.name), kernel->module->hash()};
  std::memset(&properties->uuid, 0, sizeof properties->uuid);
  std::memcpy(properties->uuid.kid, &hashes[0], sizeof hashes[0]);
  std::memcpy(properties->uuid.mid, &hashes[1], sizeof hashes[1]);
  if (auto* preferred = findExtension<ze_kernel_preferred_group_size_properties_t>(
          properties->pNext, ZE_STRUCTURE_TYPE_KERNEL_PREFERRED_GROUP_SIZE_PROPERTIES))
    preferred->preferredMultiple = properties->maxSubgroupSize;
  if (auto* most = findExtension<KernelMaxGroupSizeProperties>(properties->pNext, KernelMaxGroupSizeProperties::kType))
    most->items = kMaxGroupItems;
  return ZE_RESULT_SUCCESS;
}

ze_result_t kernelGetName(ze_kernel_handle_t hKernel, size_t* pSize, char* pName) {
  ZEFUSE_OBJECT(Kernel, kernel, hKernel);
  ZEFUSE_NOT_NULL(pSize);
  settleText(pSize, kernel->info.name, pName);
  return ZE_RESULT_SUCCESS;
}

ze_result_t kernelSetGlobalOffsetExp(ze_kernel_handle_t hKernel, uint32_t offsetX, uint32_t offsetY, uint32_t offsetZ) {
  ZEFUSE_OBJECT(Kernel, kernel, hKernel);
  kernel->global_offset[0] = offsetX;
  kernel->global_offset[1] = offsetY;
  kernel->global_offset[2] = offsetZ;
  return ZE_RESULT_SUCCESS;
}

ze_result_t kernelGetBinaryExp(ze_kernel_handle_t hKernel, size_t* pSize, uint8_t* pKernelBinary) {
  ZEFUSE_OBJECT(Kernel, kernel, hKernel);
  // The code of one kernel alone is no loadable unit: the answer is its module's binary.
  return moduleGetNativeBinary(toHandle<ze_module_handle_t>(kernel->module.get()), pSize, pKernelBinary);
}

}  // namespace zefuse::cpu
