// What this driver is to drivers/level_zero.
#include "drivers/level_zero/traits.h"

#include <cstring>

#include "drivers/cpu/build_id.h"
#include "drivers/cpu/environment.h"
#include "drivers/cpu/ipc_memory.h"

namespace zefuse::cpu {
namespace {

constexpr level_zero::Extension kExtensions[] = {
    {ZE_FLOAT_ATOMICS_EXT_NAME, ZE_FLOAT_ATOMICS_EXT_VERSION_CURRENT},
    {ZE_MODULE_PROGRAM_EXP_NAME, ZE_MODULE_PROGRAM_EXP_VERSION_CURRENT},
    {ZE_IMAGE_COPY_EXT_NAME, ZE_IMAGE_COPY_EXT_VERSION_CURRENT},
    {ZE_IMAGE_MEMORY_PROPERTIES_EXP_NAME, ZE_IMAGE_MEMORY_PROPERTIES_EXP_VERSION_CURRENT},
    {ZE_IMAGE_QUERY_ALLOC_PROPERTIES_EXT_NAME, ZE_IMAGE_QUERY_ALLOC_PROPERTIES_EXT_VERSION_CURRENT},
    {ZE_EU_COUNT_EXT_NAME, ZE_EU_COUNT_EXT_VERSION_CURRENT},
    {"ZE_extension_virtual_mem_readonly_properties", ZE_MAKE_VERSION(1, 0)},
};

// Entries that Debian's 1.4 tables have no slot for, so that a program on an old loader can still reach them. The
// loader passes handles through untranslated here: valid only where it does not wrap them (no
// ZE_ENABLE_LOADER_INTERCEPT).
const level_zero::ExtensionFunction kFunctions[] = {
    {"zeMemGetIpcHandleWithProperties", reinterpret_cast<void*>(memGetIpcHandleWithProperties)},
};

}  // namespace
}  // namespace zefuse::cpu

const zefuse::level_zero::Traits& zefuse::level_zero::traits() {
  static const Traits made = {
      .log_name = "zefuse cpu driver",
      .log_refusals = cpu::environment().log_refusals,
      .uuid = "zefuse-cpu-drv-1",
      .start = nullptr,
      .version = cpu::buildVersion,
      .free_policies =
          ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_BLOCKING_FREE | ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_DEFER_FREE,
      .ipc = ZE_IPC_PROPERTY_FLAG_MEMORY | ZE_IPC_PROPERTY_FLAG_EVENT_POOL,
      .extensions = cpu::kExtensions,
      .functions = cpu::kFunctions,
  };
  return made;
}
