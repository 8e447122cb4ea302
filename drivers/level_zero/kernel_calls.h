// Modules, build logs and kernels, but for building, linking and launching. Module: `native`, its binary;
// unboundImports(), the names that nothing binds; exports(), those that it defines for other modules; kernelCount(),
// kernelName(i). Kernel: `module`, `info`
// (spirv/kernel_info.h), `group_size`, `global_offset`, `indirect_access`, maxItems() and kMaxItemsInZ of a group,
// privateBytes() of an item, kSubgroupSize where it requires none.
#pragma once

#include <algorithm>
#include <cstring>
#include <functional>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "drivers/level_zero/calls.h"

namespace zefuse::level_zero {

struct BuildLog : Object<BuildLog> {
  static constexpr uint32_t kMagic = magicOf("ZLOG");
  const std::string text;

  explicit BuildLog(std::string text) : text(std::move(text)) {}
};

// Hands the application its log where it asked for one, and returns the first line, for a refusal's sentence.
std::string giveLog(std::string log, ze_module_build_log_handle_t* handle);

// Names for a sentence: "'a', 'b'".
std::string quoted(const std::vector<std::string>& names);

decltype(::zeModuleBuildLogDestroy) moduleBuildLogDestroy;
decltype(::zeModuleBuildLogGetString) moduleBuildLogGetString;

// Sizes of a group that divide the global ones, at most `items` in all and `items_in_z` in z. Long in x, where
// neighbours in memory are; enough items to amortise a group's start, few enough to balance.
void suggestGroupSize(const uint32_t (&global)[3], uint32_t items, uint32_t items_in_z, uint32_t* (&sizes)[3]);

template <typename D> struct KernelCalls {
  using Module = typename D::Module;
  using Kernel = typename D::Kernel;

  static ze_result_t moduleDestroy(ze_module_handle_t hModule) {
    ZEFUSE_OBJECT(Module, module, hModule);
    module->destroy();
    return ZE_RESULT_SUCCESS;
  }

  static ze_result_t moduleGetNativeBinary(ze_module_handle_t hModule, size_t* pSize, uint8_t* pModuleNativeBinary) {
    ZEFUSE_OBJECT(Module, module, hModule);
    ZEFUSE_NOT_NULL(pSize);
    if (pModuleNativeBinary) {
      if (*pSize < module->native.size())
        return refuse(ZE_RESULT_ERROR_INVALID_SIZE, "zeModuleGetNativeBinary: %zu bytes do not hold the binary's %zu",
                      *pSize, module->native.size());
      std::memcpy(pModuleNativeBinary, module->native.data(), module->native.size());
    }
    *pSize = module->native.size();
    return ZE_RESULT_SUCCESS;
  }

  static ze_result_t moduleGetKernelNames(ze_module_handle_t hModule, uint32_t* pCount, const char** pNames) {
    ZEFUSE_OBJECT(Module, module, hModule);
    ZEFUSE_NOT_NULL(pCount);
    const uint32_t wanted = settleCount(pCount, static_cast<uint32_t>(module->kernelCount()), pNames);
    for (uint32_t i = 0; i < wanted; ++i)
      pNames[i] = module->kernelName(i).c_str();
    return ZE_RESULT_SUCCESS;
  }

  static ze_result_t moduleGetProperties(ze_module_handle_t hModule, ze_module_properties_t* properties) {
    ZEFUSE_OBJECT(Module, module, hModule);
    ZEFUSE_NOT_NULL(properties);
    properties->flags = module->unboundImports().empty() ? 0 : ZE_MODULE_PROPERTY_FLAG_IMPORTS;
    return ZE_RESULT_SUCCESS;
  }

  // A line for each module and flag, also where there is nothing to name.
  static ze_result_t moduleInspectLinkageExt(ze_linkage_inspection_ext_desc_t* desc, uint32_t numModules,
                                             ze_module_handle_t* phModules, ze_module_build_log_handle_t* phLog) {
    ZEFUSE_NOT_NULL(desc);
    ZEFUSE_NOT_NULL(phModules);
    ZEFUSE_NOT_NULL(phLog);
    *phLog = nullptr;
    constexpr ze_linkage_inspection_ext_flags_t known = ZE_LINKAGE_INSPECTION_EXT_FLAG_IMPORTS |
                                                        ZE_LINKAGE_INSPECTION_EXT_FLAG_UNRESOLVABLE_IMPORTS |
                                                        ZE_LINKAGE_INSPECTION_EXT_FLAG_EXPORTS;
    if (desc->flags & ~known)
      return refuse(ZE_RESULT_ERROR_INVALID_ENUMERATION, "zeModuleInspectLinkageExt: flags 0x%x", desc->flags);
    for (uint32_t i = 0; i < numModules; ++i)
      ZEFUSE_CHECK(Module, phModules[i]);
    return guarded(__func__, [&] {
      std::vector<std::string> exports;  // of all of them
      for (uint32_t i = 0; i < numModules; ++i)
        for (std::string& name : fromHandle<Module>(phModules[i])->exports())
          exports.push_back(std::move(name));
      std::string log;
      for (uint32_t i = 0; i < numModules; ++i) {
        const Module* module = fromHandle<Module>(phModules[i]);
        const std::string place = "module " + std::to_string(i) + ": ";
        const std::vector<std::string>& imports = module->unboundImports();
        if (desc->flags & ZE_LINKAGE_INSPECTION_EXT_FLAG_IMPORTS)
          log += place + "imports " + quoted(imports) + "\n";
        if (desc->flags & ZE_LINKAGE_INSPECTION_EXT_FLAG_UNRESOLVABLE_IMPORTS) {
          std::vector<std::string> missing;
          std::ranges::copy_if(imports, std::back_inserter(missing), [&](const std::string& name) {
            return std::ranges::find(exports, name) == exports.end();
          });
          log += place + "unresolvable imports " + quoted(missing) + "\n";
        }
        if (desc->flags & ZE_LINKAGE_INSPECTION_EXT_FLAG_EXPORTS)
          log += place + "exports " + quoted(module->exports()) + "\n";
      }
      giveLog(std::move(log), phLog);
      return ZE_RESULT_SUCCESS;
    });
  }

  static ze_result_t kernelDestroy(ze_kernel_handle_t hKernel) {
    ZEFUSE_OBJECT(Kernel, kernel, hKernel);
    kernel->destroy();
    return ZE_RESULT_SUCCESS;
  }

  // A hint, which nothing here follows.
  static ze_result_t kernelSetCacheConfig(ze_kernel_handle_t hKernel, ze_cache_config_flags_t) {
    ZEFUSE_CHECK(Kernel, hKernel);
    return ZE_RESULT_SUCCESS;
  }

  static ze_result_t kernelSetGroupSize(ze_kernel_handle_t hKernel, uint32_t groupSizeX, uint32_t groupSizeY,
                                        uint32_t groupSizeZ) {
    ZEFUSE_OBJECT(Kernel, kernel, hKernel);
    const uint32_t size[3] = {groupSizeX, groupSizeY, groupSizeZ}, most = kernel->maxItems();
    const uint64_t plane = uint64_t{size[0]} * size[1];
    if (plane == 0 || size[2] == 0 || plane > most || plane * size[2] > most || size[2] > Kernel::kMaxItemsInZ)
      return refuse(ZE_RESULT_ERROR_INVALID_GROUP_SIZE_DIMENSION,
                    "zeKernelSetGroupSize: %u x %u x %u for kernel '%s': 1 to %u items are possible, at most %u of "
                    "them in z",
                    size[0], size[1], size[2], kernel->info.name.c_str(), most, Kernel::kMaxItemsInZ);
    const uint32_t* required = kernel->info.required_group_size;
    if (required[0] != 0 && !std::equal(size, size + 3, required))
      return refuse(ZE_RESULT_ERROR_INVALID_GROUP_SIZE_DIMENSION,
                    "zeKernelSetGroupSize: %u x %u x %u, but kernel '%s' requires %u x %u x %u", size[0], size[1],
                    size[2], kernel->info.name.c_str(), required[0], required[1], required[2]);
    std::copy(size, size + 3, kernel->group_size);
    return ZE_RESULT_SUCCESS;
  }

  static ze_result_t kernelSuggestGroupSize(ze_kernel_handle_t hKernel, uint32_t globalSizeX, uint32_t globalSizeY,
                                            uint32_t globalSizeZ, uint32_t* groupSizeX, uint32_t* groupSizeY,
                                            uint32_t* groupSizeZ) {
    ZEFUSE_OBJECT(Kernel, kernel, hKernel);
    ZEFUSE_NOT_NULL(groupSizeX);
    ZEFUSE_NOT_NULL(groupSizeY);
    ZEFUSE_NOT_NULL(groupSizeZ);
    if (globalSizeX == 0 || globalSizeY == 0 || globalSizeZ == 0)
      return refuse(ZE_RESULT_ERROR_INVALID_GLOBAL_WIDTH_DIMENSION, "zeKernelSuggestGroupSize: a global size of 0");
    uint32_t* sizes[3] = {groupSizeX, groupSizeY, groupSizeZ};
    const uint32_t* required = kernel->info.required_group_size;
    for (int i = 0; i < 3 && required[0] != 0; ++i)
      *sizes[i] = required[i];
    if (required[0] == 0)
      suggestGroupSize({globalSizeX, globalSizeY, globalSizeZ}, std::min(256u, kernel->maxItems()),
                       Kernel::kMaxItemsInZ, sizes);
    return ZE_RESULT_SUCCESS;
  }

  // What it means to a launch is the driver's affair.
  static ze_result_t kernelSetIndirectAccess(ze_kernel_handle_t hKernel, ze_kernel_indirect_access_flags_t flags) {
    ZEFUSE_OBJECT(Kernel, kernel, hKernel);
    kernel->indirect_access = flags;
    return ZE_RESULT_SUCCESS;
  }

  static ze_result_t kernelGetIndirectAccess(ze_kernel_handle_t hKernel, ze_kernel_indirect_access_flags_t* pFlags) {
    ZEFUSE_OBJECT(Kernel, kernel, hKernel);
    ZEFUSE_NOT_NULL(pFlags);
    *pFlags = kernel->indirect_access;
    return ZE_RESULT_SUCCESS;
  }

  // `*pString` is memory of the caller's: a char* was meant.
  static ze_result_t kernelGetSourceAttributes(ze_kernel_handle_t hKernel, uint32_t* pSize, char** pString) {
    ZEFUSE_OBJECT(Kernel, kernel, hKernel);
    ZEFUSE_NOT_NULL(pSize);
    if (pString)
      ZEFUSE_NOT_NULL(*pString);
    settleText(pSize, kernel->info.source_attributes, pString ? *pString : nullptr);
    return ZE_RESULT_SUCCESS;
  }

  static ze_result_t kernelGetProperties(ze_kernel_handle_t hKernel, ze_kernel_properties_t* properties) {
    ZEFUSE_OBJECT(Kernel, kernel, hKernel);
    ZEFUSE_NOT_NULL(properties);
    const auto& info = kernel->info;
    properties->numKernelArgs = static_cast<uint32_t>(info.args.size());
    properties->requiredGroupSizeX = info.required_group_size[0];
    properties->requiredGroupSizeY = info.required_group_size[1];
    properties->requiredGroupSizeZ = info.required_group_size[2];
    properties->requiredNumSubGroups = 0;
    properties->requiredSubgroupSize = info.required_subgroup_size;
    properties->maxSubgroupSize = info.required_subgroup_size ? info.required_subgroup_size : Kernel::kSubgroupSize;
    properties->maxNumSubgroups = kernel->maxItems() / properties->maxSubgroupSize;
    properties->localMemSize = info.local_bytes;
    properties->privateMemSize = kernel->privateBytes();
    properties->spillMemSize = 0;  // spills are private memory, or a thread's stack: not counted apart
    const auto& native = kernel->module->native;
    const uint64_t hashes[2] = {
        std::hash<std::string>()(info.name),
        std::hash<std::string_view>()({reinterpret_cast<const char*>(native.data()), native.size()})};
    std::memset(&properties->uuid, 0, sizeof properties->uuid);
    std::memcpy(properties->uuid.kid, &hashes[0], sizeof hashes[0]);
    std::memcpy(properties->uuid.mid, &hashes[1], sizeof hashes[1]);
    if (auto* preferred = findExtension<ze_kernel_preferred_group_size_properties_t>(
            properties->pNext, ZE_STRUCTURE_TYPE_KERNEL_PREFERRED_GROUP_SIZE_PROPERTIES))
      preferred->preferredMultiple = std::max(properties->maxSubgroupSize, Kernel::kPreferredMultiple);
    if (auto* most =
            findExtension<KernelMaxGroupSizeProperties>(properties->pNext, KernelMaxGroupSizeProperties::kType))
      most->items = kernel->maxItems();
    return ZE_RESULT_SUCCESS;
  }

  static ze_result_t kernelGetName(ze_kernel_handle_t hKernel, size_t* pSize, char* pName) {
    ZEFUSE_OBJECT(Kernel, kernel, hKernel);
    ZEFUSE_NOT_NULL(pSize);
    settleText(pSize, kernel->info.name, pName);
    return ZE_RESULT_SUCCESS;
  }

  static ze_result_t kernelSetGlobalOffsetExp(ze_kernel_handle_t hKernel, uint32_t offsetX, uint32_t offsetY,
                                              uint32_t offsetZ) {
    ZEFUSE_OBJECT(Kernel, kernel, hKernel);
    const uint32_t offset[3] = {offsetX, offsetY, offsetZ};
    std::copy(offset, offset + 3, kernel->global_offset);
    return ZE_RESULT_SUCCESS;
  }

  // The code of one kernel alone is no loadable unit: the answer is its module's binary.
  static ze_result_t kernelGetBinaryExp(ze_kernel_handle_t hKernel, size_t* pSize, uint8_t* pKernelBinary) {
    ZEFUSE_OBJECT(Kernel, kernel, hKernel);
    return moduleGetNativeBinary(toHandle<ze_module_handle_t>(kernel->module.get()), pSize, pKernelBinary);
  }

  static void fill(Entries& made) {
    made.module.pfnDestroy = moduleDestroy;
    made.module.pfnGetNativeBinary = moduleGetNativeBinary;
    made.module.pfnGetKernelNames = moduleGetKernelNames;
    made.module.pfnGetProperties = moduleGetProperties;
    made.module.pfnInspectLinkageExt = moduleInspectLinkageExt;
    made.module_build_log.pfnDestroy = moduleBuildLogDestroy;
    made.module_build_log.pfnGetString = moduleBuildLogGetString;
    made.kernel.pfnDestroy = kernelDestroy;
    made.kernel.pfnSetCacheConfig = kernelSetCacheConfig;
    made.kernel.pfnSetGroupSize = kernelSetGroupSize;
    made.kernel.pfnSuggestGroupSize = kernelSuggestGroupSize;
    made.kernel.pfnSetIndirectAccess = kernelSetIndirectAccess;
    made.kernel.pfnGetIndirectAccess = kernelGetIndirectAccess;
    made.kernel.pfnGetSourceAttributes = kernelGetSourceAttributes;
    made.kernel.pfnGetProperties = kernelGetProperties;
    made.kernel.pfnGetName = kernelGetName;
    made.kernel_exp.pfnSetGlobalOffsetExp = kernelSetGlobalOffsetExp;
    made.newer.kernelGetBinaryExp = kernelGetBinaryExp;
  }
};

}  // namespace zefuse::level_zero
