#include "drivers/level_zero/driver.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "drivers/level_zero/counted.h"
#include "drivers/level_zero/entries.h"
#include "drivers/level_zero/extensions.h"
#include "drivers/level_zero/traits.h"

namespace zefuse::level_zero {
namespace {

// What the entries of this folder and the shape of entries() bring to every driver. Only what is implemented: programs
// switch behaviour on these names.
constexpr Extension kExtensions[] = {
    {ZE_GLOBAL_OFFSET_EXP_NAME, ZE_GLOBAL_OFFSET_EXP_VERSION_CURRENT},
    {ZE_RELAXED_ALLOCATION_LIMITS_EXP_NAME, ZE_RELAXED_ALLOCATION_LIMITS_EXP_VERSION_CURRENT},
    {ZE_EVENT_QUERY_TIMESTAMPS_EXP_NAME, ZE_EVENT_QUERY_TIMESTAMPS_EXP_VERSION_CURRENT},
    {ZE_LINKAGE_INSPECTION_EXT_NAME, ZE_LINKAGE_INSPECTION_EXT_VERSION_CURRENT},
    {ZE_MEMORY_FREE_POLICIES_EXT_NAME, ZE_MEMORY_FREE_POLICIES_EXT_VERSION_CURRENT},
    {ZE_SUBGROUPS_EXT_NAME, ZE_SUBGROUP_EXT_VERSION_CURRENT},
    // Names that newer headers have.
    {"ZE_extension_event_query_kernel_timestamps", ZE_MAKE_VERSION(1, 0)},
    {"ZE_experimental_immediate_command_list_append", ZE_MAKE_VERSION(1, 0)},
    {"ZE_extension_kernel_max_group_size_properties", ZE_MAKE_VERSION(1, 0)},
};

// Entries that the installed header's tables have no slot for, so that a program on an old loader can still reach them.
// The loader passes handles through untranslated here: valid only where it does not wrap them (no
// ZE_ENABLE_LOADER_INTERCEPT).
std::span<const ExtensionFunction> commonFunctions() {
  static const ExtensionFunction functions[] = {
      {"zeCommandListHostSynchronize", reinterpret_cast<void*>(entries().newer.commandListHostSynchronize)},
      {"zeCommandListImmediateAppendCommandListsExp",
       reinterpret_cast<void*>(entries().newer.commandListImmediateAppendCommandListsExp)},
      {"zeDriverGetLastErrorDescription", reinterpret_cast<void*>(driverGetLastErrorDescription)},
      {"zeEventQueryKernelTimestampsExt", reinterpret_cast<void*>(entries().newer.eventQueryKernelTimestampsExt)},
      {"zeKernelSetGlobalOffsetExp", reinterpret_cast<void*>(entries().kernel_exp.pfnSetGlobalOffsetExp)},
  };
  return functions;
}

}  // namespace

Driver& Driver::instance() {
  static Driver* driver = new Driver;  // never destroyed: worker threads may outlive static destructors
  return *driver;
}

// Runs at least twice per process (the loader's check and the program's call). A request for GPUs only is served
// whatever the device's type: the loader has no flag for CPUs, and refusing would leave a machine without a GPU with no
// driver at all.
ze_result_t init(ze_init_flags_t flags) {
  if (flags == ZE_INIT_FLAG_VPU_ONLY)
    return refuse(ZE_RESULT_ERROR_UNINITIALIZED, "zeInit: only VPU drivers were asked for");
  return traits().start ? traits().start() : ZE_RESULT_SUCCESS;
}

ze_result_t initDrivers(uint32_t* pCount, ze_driver_handle_t* phDrivers, InitDriverTypeDesc* desc) {
  ZEFUSE_NOT_NULL(pCount);
  ZEFUSE_NOT_NULL(desc);
  constexpr uint32_t kNpu = 2;
  if (desc->flags == 0 || desc->flags == kNpu) {
    *pCount = 0;
    return refuse(ZE_RESULT_ERROR_UNINITIALIZED, "zeInitDrivers: no GPU driver was asked for");
  }
  if (ze_result_t result = init(0)) {
    *pCount = 0;
    return result;
  }
  return driverGet(pCount, phDrivers);
}

ze_result_t driverGet(uint32_t* pCount, ze_driver_handle_t* phDrivers) {
  ZEFUSE_NOT_NULL(pCount);
  if (settleCount(pCount, 1, phDrivers))
    phDrivers[0] = toHandle<ze_driver_handle_t>(&Driver::instance());
  return ZE_RESULT_SUCCESS;
}

ze_result_t driverGetApiVersion(ze_driver_handle_t hDriver, ze_api_version_t* version) {
  ZEFUSE_CHECK(Driver, hDriver);
  ZEFUSE_NOT_NULL(version);
  // What the tables hold: every function of the core up to here, if only as a refusal with its reason. Later versions
  // bring functions that no driver here has (the first: zeDeviceSynchronize of 1.14, but for extensions).
  *version = static_cast<ze_api_version_t>(ZE_MAKE_VERSION(1, 11));
  return ZE_RESULT_SUCCESS;
}

ze_result_t driverGetProperties(ze_driver_handle_t hDriver, ze_driver_properties_t* properties) {
  ZEFUSE_CHECK(Driver, hDriver);
  ZEFUSE_NOT_NULL(properties);
  std::memcpy(properties->uuid.id, traits().uuid, sizeof properties->uuid.id);
  properties->driverVersion = traits().version();
  if (auto* freeing = findExtension<ze_driver_memory_free_ext_properties_t>(
          properties->pNext, ZE_STRUCTURE_TYPE_DRIVER_MEMORY_FREE_EXT_PROPERTIES))
    freeing->freePolicies = traits().free_policies;
  return ZE_RESULT_SUCCESS;
}

ze_result_t driverGetIpcProperties(ze_driver_handle_t hDriver, ze_driver_ipc_properties_t* properties) {
  ZEFUSE_CHECK(Driver, hDriver);
  ZEFUSE_NOT_NULL(properties);
  properties->flags = traits().ipc;
  return ZE_RESULT_SUCCESS;
}

ze_result_t driverGetExtensionProperties(ze_driver_handle_t hDriver, uint32_t* pCount,
                                         ze_driver_extension_properties_t* properties) {
  ZEFUSE_CHECK(Driver, hDriver);
  ZEFUSE_NOT_NULL(pCount);
  const std::span<const Extension> own = traits().extensions;
  uint32_t wanted = settleCount(pCount, static_cast<uint32_t>(std::size(kExtensions) + own.size()), properties);
  for (uint32_t i = 0; i < wanted; ++i) {
    const Extension& extension = i < std::size(kExtensions) ? kExtensions[i] : own[i - std::size(kExtensions)];
    std::snprintf(properties[i].name, sizeof properties[i].name, "%s", extension.name);
    properties[i].version = extension.version;
  }
  return ZE_RESULT_SUCCESS;
}

ze_result_t driverGetExtensionFunctionAddress(ze_driver_handle_t hDriver, const char* name, void** ppFunctionAddress) {
  ZEFUSE_CHECK(Driver, hDriver);
  ZEFUSE_NOT_NULL(name);
  ZEFUSE_NOT_NULL(ppFunctionAddress);
  for (std::span<const ExtensionFunction> functions : {commonFunctions(), traits().functions})
    for (const ExtensionFunction& function : functions)
      if (function.address && !std::strcmp(function.name, name)) {
        *ppFunctionAddress = function.address;
        return ZE_RESULT_SUCCESS;
      }
  *ppFunctionAddress = nullptr;
  return refuse(ZE_RESULT_ERROR_INVALID_ARGUMENT,
                "zeDriverGetExtensionFunctionAddress: this driver has no function '%s'", name);
}

ze_result_t driverGetLastErrorDescription(ze_driver_handle_t hDriver, const char** ppString) {
  ZEFUSE_CHECK(Driver, hDriver);
  ZEFUSE_NOT_NULL(ppString);
  *ppString = lastRefusal();
  return ZE_RESULT_SUCCESS;
}

}  // namespace zefuse::level_zero
