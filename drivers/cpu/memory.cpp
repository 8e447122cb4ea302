#include "drivers/cpu/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>

#include "drivers/cpu/context.h"
#include "drivers/cpu/device.h"
#include "drivers/cpu/pages.h"

namespace zefuse::cpu {
namespace {

constexpr size_t kDefaultAlignment = 64;  // a cache line and a whole AVX-512 register
constexpr unsigned kMaxAlignmentBits = 30;
constexpr int kPoison = 0xff;  // of every byte of fresh isolated memory: floats are NaN

}  // namespace

AllocationTable& AllocationTable::instance() {
  static AllocationTable* table = new AllocationTable;  // never destroyed, as the driver
  return *table;
}

void* AllocationTable::allocate(const Context& owner, ze_memory_type_t type, size_t size, size_t alignment,
                                const Device* device) {
  size_t padded = (size + alignment - 1) & ~(alignment - 1);  // aligned_alloc wants a multiple
  if (padded < size)
    return nullptr;
  const bool isolated = type == ZE_MEMORY_TYPE_DEVICE && isolatesMemory(*device);
  if (device && device->is_gpu) {
    std::unique_lock lock(mutex_);
    if (gpu_bytes_ + size > device->memory_bytes)
      return nullptr;
    gpu_bytes_ += size;
  }
  Allocation entry = {nullptr, size, type, 0, &owner, device, nullptr, {}};
  if (type == ZE_MEMORY_TYPE_DEVICE) {
    if (size <= device->memory_bytes)  // a file may be larger than what there is to keep it in
      entry.pages = takeDevicePages(size, alignment, isolated);
    entry.base = entry.pages.base;
    entry.reachable = entry.pages.reachable;
    if (isolated && entry.base)
      std::memset(entry.reachable, kPoison, size);
  } else {
    entry.base = static_cast<std::byte*>(std::aligned_alloc(alignment, padded));
    entry.reachable = entry.base;
  }
  std::unique_lock lock(mutex_);
  if (!entry.base) {
    gpu_bytes_ -= device && device->is_gpu ? size : 0;
    return nullptr;
  }
  insert(entry);
  return entry.base;
}

void AllocationTable::insert(Allocation& entry) {
  try {
    entry.id = next_id_++;
    by_base_.emplace(reinterpret_cast<uintptr_t>(entry.base), entry);
  } catch (...) {
    release(entry);
    throw;
  }
  if (entry.base != entry.reachable) {
    any_isolated_ = true;
    if (open_ > 0)
      protectIsolated(PROT_READ | PROT_WRITE);
  }
}

void AllocationTable::adopt(const Context& owner, const Device& device, const DevicePages& pages, size_t size) {
  std::unique_lock lock(mutex_);
  Allocation entry = {pages.base, size, ZE_MEMORY_TYPE_DEVICE, 0, &owner, &device, pages.reachable, pages};
  insert(entry);
}

void AllocationTable::release(const Allocation& entry) {
  const bool foreign = entry.pages.base && entry.pages.process == 0;
  if (entry.device && entry.device->is_gpu && !foreign)
    gpu_bytes_ -= entry.size;
  if (entry.pages.base)
    releaseDevicePages(entry.pages, entry.size);
  else
    std::free(entry.base);
}

const Allocation* AllocationTable::at(const void* pointer) const {
  auto address = reinterpret_cast<uintptr_t>(pointer);
  auto after = by_base_.upper_bound(address);
  if (after == by_base_.begin())
    return nullptr;
  const auto& [base, entry] = *std::prev(after);
  return address - base < entry.size ? &entry : nullptr;
}

std::optional<Allocation> AllocationTable::find(const Context& owner, const void* pointer) const {
  std::lock_guard lock(mutex_);
  const Allocation* entry = at(pointer);
  return entry && entry->owner == &owner ? std::optional(*entry) : std::nullopt;
}

bool AllocationTable::contains(const void* pointer) const {
  std::lock_guard lock(mutex_);
  return at(pointer) != nullptr;
}

void* AllocationTable::translate(const void* pointer) const {
  std::lock_guard lock(mutex_);
  const Allocation* entry = at(pointer);
  if (!entry)
    return const_cast<void*>(pointer);
  return entry->reachable + (static_cast<const std::byte*>(pointer) - entry->base);
}

bool AllocationTable::endsWithin(const void* pointer, size_t bytes) const {
  std::lock_guard lock(mutex_);
  const Allocation* entry = at(pointer);
  return !entry || bytes <= entry->size - size_t(static_cast<const std::byte*>(pointer) - entry->base);
}

void AllocationTable::protectIsolated(int protection) {
  for (const auto& [base, entry] : by_base_)
    if (entry.base != entry.reachable)
      mprotect(entry.base, wholePages(entry.size), protection);
}

void AllocationTable::openIsolated() {
  std::unique_lock lock(mutex_);
  if (open_++ == 0)
    protectIsolated(PROT_READ | PROT_WRITE);
}

void AllocationTable::closeIsolated() {
  std::unique_lock lock(mutex_);
  if (--open_ == 0)
    protectIsolated(PROT_NONE);
}

bool AllocationTable::free(const Context& owner, void* base) {
  std::unique_lock lock(mutex_);
  auto entry = by_base_.find(reinterpret_cast<uintptr_t>(base));
  if (entry == by_base_.end() || entry->second.owner != &owner)
    return false;
  release(entry->second);
  by_base_.erase(entry);
  return true;
}

void AllocationTable::freeAll(const Context& owner) {
  std::unique_lock lock(mutex_);
  std::erase_if(by_base_, [&](const auto& item) {
    if (item.second.owner != &owner)
      return false;
    release(item.second);
    return true;
  });
}

uint64_t AllocationTable::nextId() {
  std::unique_lock lock(mutex_);
  return next_id_++;
}

ze_result_t allocate(Context& context, const MemoryRequest<Device>& request, void** out) {
  const uint64_t limit = (request.device ? *request.device : Device::instance()).memory_bytes;
  if (ze_result_t result = checkRequest(request, limit, kMaxAlignmentBits))
    return result;
  context.freeDeferred();
  const size_t alignment = std::max(request.alignment, kDefaultAlignment);
  *out = AllocationTable::instance().allocate(context, request.type, request.size, alignment, request.device);
  return *out ? ZE_RESULT_SUCCESS : refuseNoMemory(request);
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

}  // namespace zefuse::cpu
