#include "drivers/cuda/memory.h"

#include <algorithm>
#include <vector>

#include "drivers/cuda/context.h"
#include "drivers/cuda/deferred_releases.h"
#include "drivers/cuda/device.h"

namespace zefuse::cuda {
namespace {

constexpr size_t kCudaAlignment = 256;           // of whatever CUDA allocates on a device
constexpr size_t kPageAlignment = 4096;          // and on the host
constexpr unsigned kMaxAlignmentBits = 26;       // so much more is allocated
constexpr uint64_t kPatienceNs = 1'000'000'000;  // of an allocation, for memory whose release was put off

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

std::optional<Allocation> AllocationTable::find(const Context& owner, const void* pointer) const {
  const auto entry = findAny(pointer);
  return entry && entry->owner == &owner ? entry : std::nullopt;
}

std::optional<Allocation> AllocationTable::findAny(const void* pointer) const {
  std::lock_guard lock(mutex_);
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  auto after = by_base_.upper_bound(address);
  if (after == by_base_.begin())
    return std::nullopt;
  const auto& [base, entry] = *std::prev(after);
  return address - base < entry.size ? std::optional(entry) : std::nullopt;
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

ze_result_t allocate(Context& context, const MemoryRequest<Device>& request, void** out) {
  const bool on_device = request.type == ZE_MEMORY_TYPE_DEVICE;
  const size_t limit = on_device ? request.device->memory_bytes : SIZE_MAX;
  if (ze_result_t result = checkRequest(request, limit, kMaxAlignmentBits))
    return result;
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
    return refuseNoMemory(request);
  if (result)
    return allocator->fail(request.call, on_device ? "cuMemAlloc" : "cuMemHostAlloc", result);
  auto* base = static_cast<std::byte*>(allocated);
  if (extra != 0)
    base = reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(base) + extra - 1) & ~(extra - 1));
  AllocationTable::instance().add(
      {base, static_cast<std::byte*>(allocated), request.size, request.type, 0, &context, request.device, allocator});
  *out = base;
  return ZE_RESULT_SUCCESS;
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

}  // namespace zefuse::cuda
