// What a driver implements: Level Zero's tables as of the installed header (1.4), and the later entries by name.
//
// The driver fills one Entries; tables.cpp gives the loader, or our own runtime, as much of it as the version that they
// ask for has. An entry that stays null makes the loader answer UNSUPPORTED_FEATURE; ZEFUSE_ABSENT does so with a
// reason. The entries of the driver itself (zeInit, zeDriver*) are driver.cpp's.
#pragma once

#include <level_zero/ze_ddi.h>

#include "drivers/level_zero/error.h"
#include "drivers/level_zero/extensions.h"

namespace zefuse::level_zero {

// An entry that is not implemented. Converts to every entry's type.
#define ZEFUSE_ABSENT(reason)                                                                                          \
  [](auto...) -> ze_result_t { return ::zefuse::level_zero::refuse(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE, "%s", reason); }

// A table of 1.9, which the installed header lacks.
struct CommandListExpTable {
  void* pfnCreateCloneExp;
  void* pfnImmediateAppendCommandListsExp;
};

// Entries newer than the installed header.
struct NewerEntries {
  ze_result_t (*deviceGetRootDevice)(ze_device_handle_t, ze_device_handle_t*) = nullptr;
  ze_result_t (*commandQueueGetOrdinal)(ze_command_queue_handle_t, uint32_t*) = nullptr;
  ze_result_t (*commandQueueGetIndex)(ze_command_queue_handle_t, uint32_t*) = nullptr;
  ze_result_t (*commandListHostSynchronize)(ze_command_list_handle_t, uint64_t) = nullptr;
  ze_result_t (*commandListGetDeviceHandle)(ze_command_list_handle_t, ze_device_handle_t*) = nullptr;
  ze_result_t (*commandListGetContextHandle)(ze_command_list_handle_t, ze_context_handle_t*) = nullptr;
  ze_result_t (*commandListGetOrdinal)(ze_command_list_handle_t, uint32_t*) = nullptr;
  ze_result_t (*commandListImmediateGetIndex)(ze_command_list_handle_t, uint32_t*) = nullptr;
  ze_result_t (*commandListIsImmediate)(ze_command_list_handle_t, ze_bool_t*) = nullptr;
  ze_result_t (*commandListImmediateAppendCommandListsExp)(ze_command_list_handle_t, uint32_t,
                                                           ze_command_list_handle_t*, ze_event_handle_t, uint32_t,
                                                           ze_event_handle_t*) = nullptr;
  ze_result_t (*eventPoolGetContextHandle)(ze_event_pool_handle_t, ze_context_handle_t*) = nullptr;
  ze_result_t (*eventPoolGetFlags)(ze_event_pool_handle_t, ze_event_pool_flags_t*) = nullptr;
  ze_result_t (*eventQueryKernelTimestampsExt)(ze_event_handle_t, ze_device_handle_t, uint32_t*,
                                               QueryKernelTimestampsResults*) = nullptr;
  ze_result_t (*eventGetEventPool)(ze_event_handle_t, ze_event_pool_handle_t*) = nullptr;
  ze_result_t (*eventGetSignalScope)(ze_event_handle_t, ze_event_scope_flags_t*) = nullptr;
  ze_result_t (*eventGetWaitScope)(ze_event_handle_t, ze_event_scope_flags_t*) = nullptr;
  ze_result_t (*memGetIpcHandleWithProperties)(ze_context_handle_t, const void*, void*, ze_ipc_mem_handle_t*) = nullptr;
  ze_result_t (*memPutIpcHandle)(ze_context_handle_t, ze_ipc_mem_handle_t) = nullptr;
  ze_result_t (*eventPoolPutIpcHandle)(ze_context_handle_t, ze_ipc_event_pool_handle_t) = nullptr;
  ze_result_t (*kernelGetBinaryExp)(ze_kernel_handle_t, size_t*, uint8_t*) = nullptr;
};

struct Entries {
  ze_device_dditable_t device{};
  ze_device_exp_dditable_t device_exp{};
  ze_context_dditable_t context{};
  ze_command_queue_dditable_t command_queue{};
  ze_command_list_dditable_t command_list{};
  ze_fence_dditable_t fence{};
  ze_event_pool_dditable_t event_pool{};
  ze_event_dditable_t event{};
  ze_event_exp_dditable_t event_exp{};
  ze_image_dditable_t image{};  // what of images and samplers stays null refuses: image.cpp
  ze_image_exp_dditable_t image_exp{};
  ze_sampler_dditable_t sampler{};
  ze_module_dditable_t module{};
  ze_module_build_log_dditable_t module_build_log{};
  ze_kernel_dditable_t kernel{};
  ze_kernel_exp_dditable_t kernel_exp{};
  ze_mem_dditable_t mem{};
  ze_physical_mem_dditable_t physical_mem{};
  ze_virtual_mem_dditable_t virtual_mem{};
  ze_fabric_vertex_exp_dditable_t fabric_vertex_exp{};
  ze_fabric_edge_exp_dditable_t fabric_edge_exp{};
  NewerEntries newer;
};

// Each driver defines it: the same object at every call, which lives as long as the process. Thread-safe.
const Entries& entries();

}  // namespace zefuse::level_zero
