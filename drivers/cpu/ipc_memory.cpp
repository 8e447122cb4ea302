#include "drivers/cpu/ipc_memory.h"

#include <unistd.h>

#include "drivers/cpu/context.h"
#include "drivers/cpu/device.h"
#include "drivers/cpu/ipc_handle.h"
#include "drivers/cpu/memory.h"
#include "drivers/cpu/virtual_memory.h"

namespace zefuse::cpu {

ze_result_t memGetIpcHandle(ze_context_handle_t hContext, const void* ptr, ze_ipc_mem_handle_t* pIpcHandle) {
  ZEFUSE_OBJECT(Context, context, hContext);
  ZEFUSE_NOT_NULL(ptr);
  ZEFUSE_NOT_NULL(pIpcHandle);
  PhysicalPart part;
  if (const auto allocation = AllocationTable::instance().find(*context, ptr); allocation && allocation->pages.base)
    part = {fileOf(allocation->pages), allocation->pages.offset, allocation->size};
  else if (!allocation)
    part = physicalAt(*context, ptr);
  if (part.file < 0)
    return refuse(ZE_RESULT_ERROR_INVALID_ARGUMENT,
                  "zeMemGetIpcHandle: %p is no device memory that this process allocated in this context", ptr);
  makeIpcHandle(IpcKind::memory, part.file, {part.offset, part.size, 0, 0}, pIpcHandle->data);
  return ZE_RESULT_SUCCESS;
}

ze_result_t memGetIpcHandleWithProperties(ze_context_handle_t hContext, const void* ptr, void* pNext,
                                          ze_ipc_mem_handle_t* pIpcHandle) {
  constexpr auto kType = static_cast<ze_structure_type_t>(0x0002003D);
  struct HandleType {
    ze_structure_type_t stype;
    const void* pNext;
    uint32_t flags;
  };
  constexpr uint32_t kAcrossFabric = ZE_BIT(1);
  if (const auto* wanted = findExtension<HandleType>(pNext, kType); wanted && (wanted->flags & kAcrossFabric) != 0)
    return refuse(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE, "zeMemGetIpcHandleWithProperties: there is no fabric");
  return memGetIpcHandle(hContext, ptr, pIpcHandle);
}

ze_result_t memOpenIpcHandle(ze_context_handle_t hContext, ze_device_handle_t hDevice, ze_ipc_mem_handle_t handle,
                             ze_ipc_memory_flags_t flags, void** pptr) {
  ZEFUSE_OBJECT(Context, context, hContext);
  ZEFUSE_OBJECT(Device, device, hDevice);
  ZEFUSE_NOT_NULL(pptr);
  *pptr = nullptr;
  if (ze_result_t result = checkInContext("zeMemOpenIpcHandle", *context, *device))
    return result;
  if ((flags & ~static_cast<uint32_t>(ZE_IPC_MEMORY_FLAG_BIAS_CACHED | ZE_IPC_MEMORY_FLAG_BIAS_UNCACHED)) != 0)
    return refuse(ZE_RESULT_ERROR_INVALID_ENUMERATION, "zeMemOpenIpcHandle: flags 0x%x", flags);
  return guarded(__func__, [&]() -> ze_result_t {
    int file = -1;
    IpcPart part;
    if (ze_result_t result = openIpcHandle("zeMemOpenIpcHandle", IpcKind::memory, handle.data, file, part))
      return result;
    const DevicePages pages = mapForeignPages(file, part.offset, part.size, isolatesMemory(*device));
    close(file);
    if (!pages.base)
      return refuse(ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY, "zeMemOpenIpcHandle: no room for %llu bytes",
                    static_cast<unsigned long long>(part.size));
    AllocationTable::instance().adopt(*context, *device, pages, part.size);
    *pptr = pages.base;
    return ZE_RESULT_SUCCESS;
  });
}

ze_result_t memCloseIpcHandle(ze_context_handle_t hContext, const void* ptr) {
  ZEFUSE_OBJECT(Context, context, hContext);
  ZEFUSE_NOT_NULL(ptr);
  const auto allocation = AllocationTable::instance().find(*context, ptr);
  if (!allocation || allocation->base != ptr || !allocation->pages.base || allocation->pages.process != 0)
    return refuse(ZE_RESULT_ERROR_INVALID_ARGUMENT,
                  "zeMemCloseIpcHandle: %p is not the base of memory that zeMemOpenIpcHandle gave", ptr);
  AllocationTable::instance().free(*context, allocation->base);
  return ZE_RESULT_SUCCESS;
}

// A handle owns nothing: the file stays open as long as the process.
ze_result_t memPutIpcHandle(ze_context_handle_t hContext, ze_ipc_mem_handle_t handle) {
  ZEFUSE_CHECK(Context, hContext);
  return checkIpcHandle("zeMemPutIpcHandle", IpcKind::memory, handle.data);
}

}  // namespace zefuse::cpu
