#include "runtime/cpu_driver/memory.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <mutex>
#include <new>

#include "runtime/cpu_driver/context.h"
#include "runtime/cpu_driver/device.h"

namespace zefuse::cpu {
namespace {

constexpr size_t kDefaultAlignment = 64;  // a cache line and a whole AVX-512 register
constexpr size_t kMaxAlignment = size_t{1} << 30;

}  // namespace

AllocationTable& AllocationTable::instance() {
  static AllocationTable* table = new AllocationTable;  // never destroyed, as the driver
  return *table;
}

void* AllocationTable::allocate(const Context& owner, ze_memory_type_t type, size_t size, size_t alignment,
                                bool has_device) {
  size_t padded = (size + alignment - 1) & ~(alignment - 1);  // aligned_alloc wants a multiple
  if (padded < size)
    return nullptr;
  auto* base = static_cast<std::byte*>(std::aligned_alloc(alignment, padded));
  if (!base)
    return nullptr;
  try {
    std::unique_lock lock(mutex_);
    Allocation entry = {base, size, type, next_id_++, &owner, has_device};
    by_base_.emplace(reinterpret_cast<uintptr_t>(base), entry);
  } catch (...) {
    std::free(base);
    throw;
  }
  return base;
}

std::optional<Allocation> AllocationTable::find(const Context& owner, const void* pointer) const {
  auto address = reinterpret_cast<uintptr_t>(pointer);
  std::shared_lock lock(mutex_);
  auto after = by_base_.upper_bound(address);
  if (after == by_base_.begin())
    return std::nullopt;
  const auto& [base, entry] = *std::prev(after);
  if (address - base >= entry.size || entry.owner != &owner)
    return std::nullopt;
  return entry;
}

bool AllocationTable::free(const Context& owner, void* base) {
  {
    std::unique_lock lock(mutex_);
    auto entry = by_base_.find(reinterpret_cast<uintptr_t>(base));
    if (entry == by_base_.end() || entry->second.owner != &owner)
      return false;
    by_base_.erase(entry);
  }
  std::free(base);
  return true;
}

void AllocationTable::freeAll(const Context& owner) {
  std::unique_lock lock(mutex_);
  std::erase_if(by_base_, [&](const auto& item) {
    if (item.second.owner != &owner)
      return false;
    std::free(item.second.base);
    return true;
  });
}

void AllocationTable::lockForFork() { mutex_.lock(); }
void AllocationTable::unlockInParent() { mutex_.unlock(); }
void AllocationTable::unlockInChild() {
  // Not unlock(): glibc knows the writer by its thread id, which is another one in the child.
  new (&mutex_) std::shared_mutex;
}

namespace {

struct Request {
  const char* call;
  ze_memory_type_t type;
  size_t size, alignment;
  const void* extensions;  // pNext chain
  bool has_device;
};

bool relaxesLimits(const void* extensions) {
  for (auto* next = static_cast<const ze_base_desc_t*>(extensions); next;
       next = static_cast<const ze_base_desc_t*>(next->pNext))
    if (next->stype == ZE_STRUCTURE_TYPE_RELAXED_ALLOCATION_LIMITS_EXP_DESC)
      return reinterpret_cast<const ze_relaxed_allocation_limits_exp_desc_t*>(next)->flags &
             ZE_RELAXED_ALLOCATION_LIMITS_EXP_FLAG_MAX_SIZE;
  return false;
}

bool sharesOutside(const void* extensions) {
  for (auto* next = static_cast<const ze_base_desc_t*>(extensions); next;
       next = static_cast<const ze_base_desc_t*>(next->pNext))
    if (next->stype == ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_DESC ||
        next->stype == ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_IMPORT_FD)
      return true;
  return false;
}

ze_result_t allocate(Context& context, const Request& request, void** pptr) {
  if (request.size == 0)
    return refuse(ZE_RESULT_ERROR_UNSUPPORTED_SIZE, "%s: size is 0", request.call);
  if (request.size > Device::instance().memory_bytes && !relaxesLimits(request.extensions))
    return refuse(ZE_RESULT_ERROR_UNSUPPORTED_SIZE, "%s: %zu bytes are more than maxMemAllocSize (%llu)", request.call,
                  request.size, static_cast<unsigned long long>(Device::instance().memory_bytes));
  if (request.alignment > kMaxAlignment || (request.alignment != 0 && !std::has_single_bit(request.alignment)))
    return refuse(ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT, "%s: alignment %zu is not a power of two up to 2^30",
                  request.call, request.alignment);
  if (sharesOutside(request.extensions))
    return refuse(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE,
                  "%s: memory is private to the process: no export or import of descriptors", request.call);
  return guarded(request.call, [&] {
    context.freeDeferred();
    size_t alignment = std::max(request.alignment, kDefaultAlignment);
    *pptr = AllocationTable::instance().allocate(context, request.type, request.size, alignment, request.has_device);
    if (*pptr)
      return ZE_RESULT_SUCCESS;
    return refuse(request.type == ZE_MEMORY_TYPE_HOST ? ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY
                                                      : ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY,
                  "%s: the host refused %zu bytes", request.call, request.size);
  });
}

}  // namespace

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
  return allocate(*context,
                  {"zeMemAllocShared", ZE_MEMORY_TYPE_SHARED, size, alignment, device_desc->pNext, hDevice != nullptr},
                  pptr);
}

ze_result_t memAllocDevice(ze_context_handle_t hContext, const ze_device_mem_alloc_desc_t* device_desc, size_t size,
                           size_t alignment, ze_device_handle_t hDevice, void** pptr) {
  ZEFUSE_OBJECT(Context, context, hContext);
  ZEFUSE_NOT_NULL(device_desc);
  ZEFUSE_NOT_NULL(pptr);
  *pptr = nullptr;
  ZEFUSE_CHECK(Device, hDevice);
  return allocate(*context, {"zeMemAllocDevice", ZE_MEMORY_TYPE_DEVICE, size, alignment, device_desc->pNext, true},
                  pptr);
}

ze_result_t memAllocHost(ze_context_handle_t hContext, const ze_host_mem_alloc_desc_t* host_desc, size_t size,
                         size_t alignment, void** pptr) {
  ZEFUSE_OBJECT(Context, context, hContext);
  ZEFUSE_NOT_NULL(host_desc);
  ZEFUSE_NOT_NULL(pptr);
  *pptr = nullptr;
  return allocate(*context, {"zeMemAllocHost", ZE_MEMORY_TYPE_HOST, size, alignment, host_desc->pNext, false}, pptr);
}

ze_result_t memFree(ze_context_handle_t hContext, void* ptr) {
  ZEFUSE_OBJECT(Context, context, hContext);
  ZEFUSE_NOT_NULL(ptr);
  if (!AllocationTable::instance().free(*context, ptr))
    return refuse(ZE_RESULT_ERROR_INVALID_ARGUMENT, "zeMemFree: %p is not the base of an allocation of this context",
                  ptr);
  return ZE_RESULT_SUCCESS;
}

ze_result_t memFreeExt(ze_context_handle_t hContext, const ze_memory_free_ext_desc_t* desc, void* ptr) {
  ZEFUSE_OBJECT(Context, context, hContext);
  ZEFUSE_NOT_NULL(desc);
  ZEFUSE_NOT_NULL(ptr);
  auto allocation = AllocationTable::instance().find(*context, ptr);
  if (!allocation || allocation->base != ptr)
    return refuse(ZE_RESULT_ERROR_INVALID_ARGUMENT, "zeMemFreeExt: %p is not the base of an allocation of this context",
                  ptr);
  return guarded(__func__, [&] {
    if (desc->freePolicy & ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_DEFER_FREE) {
      context->deferFree(ptr);
      context->freeDeferred();
      return ZE_RESULT_SUCCESS;
    }
    if (desc->freePolicy & ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_BLOCKING_FREE)
      context->waitForWorkers();
    AllocationTable::instance().free(*context, ptr);
    return ZE_RESULT_SUCCESS;
  });
}

ze_result_t memGetAllocProperties(ze_context_handle_t hContext, const void* ptr,
                                  ze_memory_allocation_properties_t* properties, ze_device_handle_t* phDevice) {
  ZEFUSE_OBJECT(Context, context, hContext);
  ZEFUSE_NOT_NULL(ptr);
  ZEFUSE_NOT_NULL(properties);
  auto allocation = AllocationTable::instance().find(*context, ptr);
  properties->type = allocation ? allocation->type : ZE_MEMORY_TYPE_UNKNOWN;
  properties->id = allocation ? allocation->id : 0;
  properties->pageSize = allocation ? static_cast<uint64_t>(sysconf(_SC_PAGE_SIZE)) : 0;
  if (phDevice)
    *phDevice = allocation && allocation->has_device ? toHandle<ze_device_handle_t>(&Device::instance()) : nullptr;
  return ZE_RESULT_SUCCESS;
}

ze_result_t memGetAddressRange(ze_context_handle_t hContext, const void* ptr, void** pBase, size_t* pSize) {
  ZEFUSE_OBJECT(Context, context, hContext);
  ZEFUSE_NOT_NULL(ptr);
  auto allocation = AllocationTable::instance().find(*context, ptr);
  if (!allocation)
    return refuse(ZE_RESULT_ERROR_INVALID_ARGUMENT, "zeMemGetAddressRange: %p lies in no allocation of this context",
                  ptr);
  if (pBase)
    *pBase = allocation->base;
  if (pSize)
    *pSize = allocation->size;
  return ZE_RESULT_SUCCESS;
}

}  // namespace zefuse::cpu
