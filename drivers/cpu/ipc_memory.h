// Device memory of one process in another.
#pragma once

#include <level_zero/ze_api.h>

#include "drivers/cpu/level_zero.h"

namespace zefuse::cpu {

decltype(::zeMemGetIpcHandle) memGetIpcHandle;
ze_result_t memGetIpcHandleWithProperties(ze_context_handle_t hContext, const void* ptr, void* pNext,
                                          ze_ipc_mem_handle_t* pIpcHandle);
decltype(::zeMemOpenIpcHandle) memOpenIpcHandle;
decltype(::zeMemCloseIpcHandle) memCloseIpcHandle;
ze_result_t memPutIpcHandle(ze_context_handle_t hContext, ze_ipc_mem_handle_t handle);

}  // namespace zefuse::cpu
