// USM. The driver's AllocationTable::instance().find(const Context&, pointer) gives what has `base`, `size`, `type`,
// `id`, `device` (may be null), as a pointer or an optional. The driver's own:
//   ze_result_t allocate(Context&, const MemoryRequest<Device>&, void** out)
#pragma once

#include <unistd.h>

#include <bit>

#include "drivers/level_zero/calls.h"
#include "drivers/level_zero/context_calls.h"

namespace zefuse::level_zero {

template <typename Device> struct MemoryRequest {
  const char* call;
  ze_memory_type_t type;
  size_t size, alignment;
  const void* extensions;  // pNext chain
  Device* device;          // may be null
};

// What any driver refuses. `limit`: of bytes, maxMemAllocSize; `alignment_bits`: the largest alignment is 2 to this.
template <typename Device>
ze_result_t checkRequest(const MemoryRequest<Device>& request, uint64_t limit, unsigned alignment_bits) {
  if (request.size == 0)
    return refuse(ZE_RESULT_ERROR_UNSUPPORTED_SIZE, "%s: size is 0", request.call);
  if (request.size > limit && !relaxesLimits(request.extensions))
    return refuse(ZE_RESULT_ERROR_UNSUPPORTED_SIZE, "%s: %zu bytes are more than maxMemAllocSize (%llu)", request.call,
                  request.size, static_cast<unsigned long long>(limit));
  if (request.alignment > size_t{1} << alignment_bits ||
      (request.alignment != 0 && !std::has_single_bit(request.alignment)))
    return refuse(ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT, "%s: alignment %zu is not a power of two up to 2^%u",
                  request.call, request.alignment, alignment_bits);
  if (sharesOutside(request.extensions))
    return refuse(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE,
                  "%s: memory is private to the process: no export or import of descriptors", request.call);
  return ZE_RESULT_SUCCESS;
}

template <typename Device> ze_result_t refuseNoMemory(const MemoryRequest<Device>& request) {
  return refuse(request.type == ZE_MEMORY_TYPE_HOST ? ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY
                                                    : ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY,
                "%s: no memory left for %zu bytes", request.call, request.size);
}

template <typename D> struct MemoryCalls {
  using Context = typename D::Context;
  using Device = typename D::Device;
  using Request = MemoryRequest<Device>;

  static ze_result_t memAllocShared(ze_context_handle_t hContext, const ze_device_mem_alloc_desc_t* device_desc,
                                    const ze_host_mem_alloc_desc_t* host_desc, size_t size, size_t alignment,
                                    ze_device_handle_t hDevice, void** pptr) {
    ZEFUSE_OBJECT(Context, context, hContext);
    ZEFUSE_NOT_NULL(device_desc);
    ZEFUSE_NOT_NULL(host_desc);
    ZEFUSE_NOT_NULL(pptr);
    *pptr = nullptr;
    if (hDevice)
      ZEFUSE_CHECK(Device, hDevice);
    const Request request = {"zeMemAllocShared", ZE_MEMORY_TYPE_SHARED, size,
                             alignment,          device_desc->pNext,    fromHandle<Device>(hDevice)};
    return allocateIn(*context, request, pptr);
  }

  static ze_result_t memAllocDevice(ze_context_handle_t hContext, const ze_device_mem_alloc_desc_t* device_desc,
                                    size_t size, size_t alignment, ze_device_handle_t hDevice, void** pptr) {
    ZEFUSE_OBJECT(Context, context, hContext);
    ZEFUSE_NOT_NULL(device_desc);
    ZEFUSE_NOT_NULL(pptr);
    *pptr = nullptr;
    ZEFUSE_OBJECT(Device, device, hDevice);
    const Request request = {"zeMemAllocDevice", ZE_MEMORY_TYPE_DEVICE, size, alignment, device_desc->pNext, device};
    return allocateIn(*context, request, pptr);
  }

  static ze_result_t memAllocHost(ze_context_handle_t hContext, const ze_host_mem_alloc_desc_t* host_desc, size_t size,
                                  size_t alignment, void** pptr) {
    ZEFUSE_OBJECT(Context, context, hContext);
    ZEFUSE_NOT_NULL(host_desc);
    ZEFUSE_NOT_NULL(pptr);
    *pptr = nullptr;
    const Request request = {"zeMemAllocHost", ZE_MEMORY_TYPE_HOST, size, alignment, host_desc->pNext, nullptr};
    return allocateIn(*context, request, pptr);
  }

  static ze_result_t memGetAllocProperties(ze_context_handle_t hContext, const void* ptr,
                                           ze_memory_allocation_properties_t* properties,
                                           ze_device_handle_t* phDevice) {
    ZEFUSE_OBJECT(Context, context, hContext);
    ZEFUSE_NOT_NULL(ptr);
    ZEFUSE_NOT_NULL(properties);
    const auto allocation = D::AllocationTable::instance().find(*context, ptr);
    properties->type = allocation ? allocation->type : ZE_MEMORY_TYPE_UNKNOWN;
    properties->id = allocation ? allocation->id : 0;
    properties->pageSize = allocation ? static_cast<uint64_t>(sysconf(_SC_PAGE_SIZE)) : 0;
    if (phDevice)
      *phDevice = toHandle<ze_device_handle_t>(allocation ? const_cast<Device*>(allocation->device) : nullptr);
    return ZE_RESULT_SUCCESS;
  }

  static ze_result_t memGetAddressRange(ze_context_handle_t hContext, const void* ptr, void** pBase, size_t* pSize) {
    ZEFUSE_OBJECT(Context, context, hContext);
    ZEFUSE_NOT_NULL(ptr);
    const auto allocation = D::AllocationTable::instance().find(*context, ptr);
    if (!allocation)
      return refuse(ZE_RESULT_ERROR_INVALID_ARGUMENT, "zeMemGetAddressRange: %p lies in no allocation of this context",
                    ptr);
    if (pBase)
      *pBase = allocation->base;
    if (pSize)
      *pSize = allocation->size;
    return ZE_RESULT_SUCCESS;
  }

  static void fill(Entries& made) {
    made.mem.pfnAllocShared = memAllocShared;
    made.mem.pfnAllocDevice = memAllocDevice;
    made.mem.pfnAllocHost = memAllocHost;
    made.mem.pfnGetAllocProperties = memGetAllocProperties;
    made.mem.pfnGetAddressRange = memGetAddressRange;
  }

private:
  static ze_result_t allocateIn(Context& context, const Request& request, void** pptr) {
    if (request.device)
      if (ze_result_t result = checkInContext(request.call, context, *request.device))
        return result;
    return guarded(request.call, [&] { return allocate(context, request, pptr); });
  }
};

}  // namespace zefuse::level_zero
