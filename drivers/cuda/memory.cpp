#include "drivers/cuda/memory.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <vector>

#include "drivers/cuda/context.h"
#include "drivers/cuda/deferred_releases.h"
#include "drivers/cuda/device.h"

namespace zefuse::cuda {
namespace {

constexpr size_t kCudaAlignment = 256;             // of whatever CUDA allocates on a device
constexpr size_t kPageAlignment = 4096;            // and on the host
constexpr size_t kMaxAlignment = size_t(1) << 26;  // so much more is allocated
constexpr uint64_t kPatienceNs = 1'000'000'000;    // of an allocation, for memory whose release was put off

// With the allocator's context current. Errors of a lost device change nothing: its memory is gone.
void freeNow(const Allocation& allocation) {
  if (allocation.type == ZE_MEMORY_TYPE_DEVICE)
    cuda().cuMemFree(reinterpret_cast<CUdeviceptr>(allocation.allocated));
  else
    cuda().cuMemFreeHost(allocation.allocated);
}

// Once nothing uses it.
void give(const Allocation& allocation) {
  DeferredReleases::instance().release(*allocation.allocator, [allocation] { freeNow(allocation); });
}

struct Request {
  const char* call;
  ze_memory_type_t type;
  size_t size, alignment;
  const void* extensions;  // pNext chain
  Device* device;          // may be null
};

ze_result_t allocate(const Context& context, const Request& request, void** pptr) {
  if (request.size == 0)
    return refuse(ZE_RESULT_ERROR_UNSUPPORTED_SIZE, "%s: size is 0", request.call);
  if (request.alignment > kMaxAlignment || (request.alignment != 0 && !std::has_single_bit(request.alignment)))
    return refuse(ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT, "%s: alignment %zu is not a power of two up to 2^26",
                  request.call, request.alignment);
  if (sharesOutside(request.extensions))
    return refuse(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE,
                  "%s: memory is private to the process: no export or import of descriptors", request.call);
  const bool on_device = request.type == ZE_MEMORY_TYPE_DEVICE;
  if (on_device && request.size > request.device->memory_bytes && !relaxesLimits(request.extensions))
    return refuse(ZE_RESULT_ERROR_UNSUPPORTED_SIZE, "%s: %zu bytes are more than maxMemAllocSize (%zu)", request.call,
                  request.size, request.device->memory_bytes);
  return guarded(request.call, [&]() -> ze_result_t {
    Device* allocator = request.device ? request.device : Device::all().front();
    if (ze_result_t result = allocator->open(request.call))
      return result;
    const size_t given = on_device ? kCudaAlignment : kPageAlignment;
    const size_t extra = request.alignment > given ? request.alignment : 0;
    const Current current(*allocator);
    void* allocated = nullptr;
    auto tried = [&] {
      if (!on_device)
        return cuda().cuMemHostAlloc(&allocated, request.size + extra,
                                     CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
      CUdeviceptr pointer = 0;
      const CUresult result = cuda().cuMemAlloc(&pointer, request.size + extra);
      allocated = reinterpret_cast<void*>(pointer);
      return result;
    };
    CUresult result = tried();
    if (result == CUDA_ERROR_OUT_OF_MEMORY && DeferredReleases::instance().settle(kPatienceNs))
      result = tried();
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
      return refuse(request.type == ZE_MEMORY_TYPE_HOST ? ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY
                                                        : ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY,
                    "%s: no memory left for %zu bytes", request.call, request.size);
    if (result)
      return allocator->fail(request.call, on_device ? "cuMemAlloc" : "cuMemHostAlloc", result);
    auto* base = static_cast<std::byte*>(allocated);
    if (extra != 0)
      base = reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(base) + extra - 1) & ~(extra - 1));
    AllocationTable::instance().add(
        {base, static_cast<std::byte*>(allocated), request.size, request.type, 0, &context, request.device, allocator});
    *pptr = base;
    return ZE_RESULT_SUCCESS;
  });
}

ze_result_t release(const char* call, const Context& context, void* pointer, bool wait) {
  const auto allocation = AllocationTable::instance().take(context, pointer);
  if (!allocation)
    return refuse(ZE_RESULT_ERROR_INVALID_ARGUMENT, "%s: %p is not the base of an allocation of this context", call,
                  pointer);
  return guarded(call, [&]() -> ze_result_t {
    if (wait)
      DeferredReleases::instance().releaseAndWait(*allocation->allocator, [&] { freeNow(*allocation); });
    else
      give(*allocation);
    return ZE_RESULT_SUCCESS;
  });
}

}  // namespace

AllocationTable& AllocationTable::instance() {
  static AllocationTable* table = new AllocationTable;  // never destroyed, as the driver
  return *table;
}

void AllocationTable::add(Allocation allocation) {
  std::lock_guard lock(mutex_);
  allocation.id = next_id_++;
  by_base_.insert_or_assign(reinterpret_cast<uintptr_t>(allocation.base), allocation);
}

std::optional<Allocation> AllocationTable::find(const Context* owner, const void* pointer) const {
  std::lock_guard lock(mutex_);
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  auto after = by_base_.upper_bound(address);
  if (after == by_base_.begin())
    return std::nullopt;
  const auto& [base, entry] = *std::prev(after);
  return address - base < entry.size && (!owner || entry.owner == owner) ? std::optional(entry) : std::nullopt;
}

std::optional<Allocation> AllocationTable::take(const Context& owner, const void* base) {
  std::lock_guard lock(mutex_);
  auto entry = by_base_.find(reinterpret_cast<uintptr_t>(base));
  if (entry == by_base_.end() || entry->second.owner != &owner)
    return std::nullopt;
  const Allocation allocation = entry->second;
  by_base_.erase(entry);
  return allocation;
}

void AllocationTable::freeAll(const Context& owner) {
  std::vector<Allocation> mine;
  {
    std::lock_guard lock(mutex_);
    std::erase_if(by_base_, [&](const auto& item) {
      if (item.second.owner != &owner)
        return false;
      mine.push_back(item.second);
      return true;
    });
  }
  for (const Allocation& allocation : mine)
    give(allocation);
}

ze_result_t memAllocShared(ze_context_handle_t hContext, const ze_device_mem_alloc_desc_t* device_desc,
                           const ze_host_mem_alloc_desc_t* host_desc, size_t size, size_t alignment,
                           ze_device_handle_t hDevice, void** pptr) {
  ZEFUSE_OBJECT(Context, context, hContext);
  ZEFUSE_NOT_NULL(device_desc);
  ZEFUSE_NOT_NULL(host_desc);
  ZEFUSE_NOT_NULL(pptr);
  *pptr = nullptr;
  if (hDevice)
    ZEFUSE_CHECK(Device, hDevice);
  return allocate(
      *context,
      {"zeMemAllocShared", ZE_MEMORY_TYPE_SHARED, size, alignment, device_desc->pNext, fromHandle<Device>(hDevice)},
      pptr);
}

ze_result_t memAllocDevice(ze_context_handle_t hContext, const ze_device_mem_alloc_desc_t* device_desc, size_t size,
                           size_t alignment, ze_device_handle_t hDevice, void** pptr) {
  ZEFUSE_OBJECT(Context, context, hContext);
  ZEFUSE_NOT_NULL(device_desc);
  ZEFUSE_NOT_NULL(pptr);
  *pptr = nullptr;
  ZEFUSE_OBJECT(Device, device, hDevice);
  return allocate(*context, {"zeMemAllocDevice", ZE_MEMORY_TYPE_DEVICE, size, alignment, device_desc->pNext, device},
                  pptr);
}

ze_result_t memAllocHost(ze_context_handle_t hContext, const ze_host_mem_alloc_desc_t* host_desc, size_t size,
                         size_t alignment, void** pptr) {
  ZEFUSE_OBJECT(Context, context, hContext);
  ZEFUSE_NOT_NULL(host_desc);
  ZEFUSE_NOT_NULL(pptr);
  *pptr = nullptr;
  return allocate(*context, {"zeMemAllocHost", ZE_MEMORY_TYPE_HOST, size, alignment, host_desc->pNext, nullptr}, pptr);
}

ze_result_t memFree(ze_context_handle_t hContext, void* ptr) {
  ZEFUSE_OBJECT(Context, context, hContext);
  ZEFUSE_NOT_NULL(ptr);
  return release("zeMemFree", *context, ptr, false);
}

ze_result_t memFreeExt(ze_context_handle_t hContext, const ze_memory_free_ext_desc_t* desc, void* ptr) {
  ZEFUSE_OBJECT(Context, context, hContext);
  ZEFUSE_NOT_NULL(desc);
  ZEFUSE_NOT_NULL(ptr);
  return release("zeMemFreeExt", *context, ptr, desc->freePolicy & ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_BLOCKING_FREE);
}

ze_result_t memGetAllocProperties(ze_context_handle_t hContext, const void* ptr,
                                  ze_memory_allocation_properties_t* properties, ze_device_handle_t* phDevice) {
  ZEFUSE_OBJECT(Context, context, hContext);
  ZEFUSE_NOT_NULL(ptr);
  ZEFUSE_NOT_NULL(properties);
  const auto allocation = AllocationTable::instance().find(context, ptr);
  properties->type = allocation ? allocation->type : ZE_MEMORY_TYPE_UNKNOWN;
  properties->id = allocation ? allocation->id : 0;
  properties->pageSize = allocation ? static_cast<uint64_t>(sysconf(_SC_PAGE_SIZE)) : 0;
  if (phDevice)
    *phDevice = allocation && allocation->device ? toHandle<ze_device_handle_t>(allocation->device) : nullptr;
  return ZE_RESULT_SUCCESS;
}

ze_result_t memGetAddressRange(ze_context_handle_t hContext, const void* ptr, void** pBase, size_t* pSize) {
  ZEFUSE_OBJECT(Context, context, hContext);
  ZEFUSE_NOT_NULL(ptr);
  const auto allocation = AllocationTable::instance().find(context, ptr);
  if (!allocation)
    return refuse(ZE_RESULT_ERROR_INVALID_ARGUMENT, "zeMemGetAddressRange: %p lies in no allocation of this context",
                  ptr);
  if (pBase)
    *pBase = allocation->base;
  if (pSize)
    *pSize = allocation->size;
  return ZE_RESULT_SUCCESS;
}

}  // namespace zefuse::cuda
