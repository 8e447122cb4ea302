#include "drivers/cpu/virtual_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <set>

#include "common/base/fork.h"
#include "drivers/cpu/device.h"
#include "drivers/cpu/ipc_handle.h"
#include "drivers/cpu/pages.h"

namespace zefuse::cpu {
namespace {

struct Mapping {
  size_t size;
  ze_memory_access_attribute_t access;
  Ref<PhysicalMemory> memory;
  size_t offset;  // there
};

struct Reservation {
  Ref<Context> owner;
  size_t size;
  std::map<uintptr_t, Mapping> mappings;
};

// By their first address. Its lock is held around the system's calls, so that a range is what the table says.
struct Ranges {
  static Ranges& instance() {
    static Ranges* ranges = new Ranges;  // never destroyed, as the driver
    return *ranges;
  }
  // The reservation that holds all of the range, or null.
  Reservation* holding(uintptr_t address, size_t size) {
    auto after = reserved.upper_bound(address);
    if (after == reserved.begin())
      return nullptr;
    auto& [base, reservation] = *std::prev(after);
    const size_t offset = address - base;
    return offset <= reservation.size && size <= reservation.size - offset ? &reservation : nullptr;
  }

  ForkMutex mutex;
  std::map<uintptr_t, Reservation> reserved;
  std::set<const PhysicalMemory*> physical;  // all that there is
};

bool isWholePages(size_t size) { return size != 0 && size % pageSize() == 0; }

int protectionOf(ze_memory_access_attribute_t access) {
  return access == ZE_MEMORY_ACCESS_ATTRIBUTE_NONE        ? PROT_NONE
         : access == ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE ? PROT_READ | PROT_WRITE
                                                          : PROT_READ;
}

// A mapping that spans `address` becomes two.
void divideAt(std::map<uintptr_t, Mapping>& mappings, uintptr_t address) {
  auto after = mappings.lower_bound(address);
  if (after == mappings.begin())
    return;
  auto& [base, mapping] = *std::prev(after);
  if (base + mapping.size <= address)
    return;
  const size_t rest = base + mapping.size - address;
  mapping.size -= rest;
  mappings.emplace(address, Mapping{rest, mapping.access, mapping.memory, mapping.offset + mapping.size});
}

// Divides mappings so that they begin and end with the range. Whether they cover it.
bool divideOut(std::map<uintptr_t, Mapping>& mappings, uintptr_t begin, size_t size) {
  divideAt(mappings, begin);
  divideAt(mappings, begin + size);
  uintptr_t at = begin;
  for (auto each = mappings.find(begin); each != mappings.end() && each->first == at && at < begin + size; ++each)
    at += each->second.size;
  return at == begin + size;
}

ze_result_t checkRange(const char* call, const void* ptr, size_t size) {
  if (!isWholePages(size))
    return refuse(ZE_RESULT_ERROR_UNSUPPORTED_SIZE, "%s: %zu bytes are not whole pages of %zu", call, size, pageSize());
  if (reinterpret_cast<uintptr_t>(ptr) % pageSize() != 0)
    return refuse(ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT, "%s: %p does not begin a page", call, ptr);
  return ZE_RESULT_SUCCESS;
}

ze_result_t refuseRange(const char* call, const void* ptr, size_t size, const char* what) {
  return refuse(ZE_RESULT_ERROR_INVALID_ARGUMENT, "%s: %zu bytes at %p are %s", call, size, ptr, what);
}

// With the lock held, body(mappings, address) on the reservation that holds the range.
template <typename Body> ze_result_t inReservation(const char* call, const void* ptr, size_t size, Body&& body) {
  return guarded(call, [&]() -> ze_result_t {
    Ranges& ranges = Ranges::instance();
    std::lock_guard lock(ranges.mutex);
    const auto address = reinterpret_cast<uintptr_t>(ptr);
    Reservation* reservation = ranges.holding(address, size);
    if (!reservation)
      return refuseRange(call, ptr, size, "not reserved");
    return body(reservation->mappings, address);
  });
}

ze_result_t checkAccess(const char* call, ze_memory_access_attribute_t access) {
  if (static_cast<uint32_t>(access) > ZE_MEMORY_ACCESS_ATTRIBUTE_READONLY)
    return refuse(ZE_RESULT_ERROR_INVALID_ENUMERATION, "%s: access %d", call, static_cast<int>(access));
  return ZE_RESULT_SUCCESS;
}

}  // namespace

PhysicalMemory::PhysicalMemory(Context& context, int file, size_t size) : context(&context), file(file), size(size) {
  Ranges& ranges = Ranges::instance();
  std::lock_guard lock(ranges.mutex);
  ranges.physical.insert(this);
}

PhysicalMemory::~PhysicalMemory() {
  Ranges& ranges = Ranges::instance();
  {
    std::lock_guard lock(ranges.mutex);
    ranges.physical.erase(this);
  }
  close(file);
}

PhysicalPart physicalAt(const Context& context, const void* pointer) {
  Ranges& ranges = Ranges::instance();
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  std::lock_guard lock(ranges.mutex);
  if (const auto* memory = static_cast<const PhysicalMemory*>(pointer); ranges.physical.contains(memory))
    return memory->context.get() == &context ? PhysicalPart{memory->file, 0, memory->size} : PhysicalPart();
  Reservation* reservation = ranges.holding(address, 1);
  if (!reservation || reservation->owner.get() != &context)
    return {};
  auto after = reservation->mappings.upper_bound(address);
  if (after == reservation->mappings.begin())
    return {};
  const auto& [base, mapping] = *std::prev(after);
  const size_t within = address - base;
  return within < mapping.size && within % pageSize() == 0
             ? PhysicalPart{mapping.memory->file, mapping.offset + within, mapping.size - within}
             : PhysicalPart();
}

bool isMappedVirtual(const void* pointer) {
  Ranges& ranges = Ranges::instance();
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  std::lock_guard lock(ranges.mutex);
  Reservation* reservation = ranges.holding(address, 1);
  if (!reservation)
    return false;
  auto after = reservation->mappings.upper_bound(address);
  return after != reservation->mappings.begin() && address - std::prev(after)->first < std::prev(after)->second.size;
}

ze_result_t physicalMemCreate(ze_context_handle_t hContext, ze_device_handle_t hDevice, ze_physical_mem_desc_t* desc,
                              ze_physical_mem_handle_t* phPhysicalMemory) {
  const char* call = "zePhysicalMemCreate";
  ZEFUSE_OBJECT(Context, context, hContext);
  ZEFUSE_NOT_NULL(desc);
  ZEFUSE_NOT_NULL(phPhysicalMemory);
  *phPhysicalMemory = nullptr;
  constexpr ze_physical_mem_flags_t kOnDevice = ZE_BIT(0), kOnHost = ZE_BIT(1);  // names that newer headers have
  if ((desc->flags & ~(kOnDevice | kOnHost)) != 0)
    return refuse(ZE_RESULT_ERROR_INVALID_ENUMERATION, "%s: flags 0x%x", call, desc->flags);
  if (hDevice || !(desc->flags & kOnHost)) {  // memory of the host is of no device
    ZEFUSE_OBJECT(Device, device, hDevice);
    if (ze_result_t result = checkInContext(call, *context, *device))
      return result;
  }
  if (ze_result_t result = checkRange(call, nullptr, desc->size))
    return result;
  const int file = createSharedFile("zefuse-physical-memory");
  if (file < 0 || ftruncate(file, static_cast<off_t>(desc->size)) != 0) {
    const int error = errno;
    if (file >= 0)
      close(file);
    return refuse(ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY, "%s: %zu bytes: %s", call, desc->size, std::strerror(error));
  }
  const ze_result_t result = guarded(__func__, [&] {
    *phPhysicalMemory = toHandle<ze_physical_mem_handle_t>(new PhysicalMemory(*context, file, desc->size));
    return ZE_RESULT_SUCCESS;
  });
  if (result != ZE_RESULT_SUCCESS)
    close(file);
  return result;
}

ze_result_t physicalMemDestroy(ze_context_handle_t hContext, ze_physical_mem_handle_t hPhysicalMemory) {
  ZEFUSE_CHECK(Context, hContext);
  ZEFUSE_OBJECT(PhysicalMemory, memory, hPhysicalMemory);
  memory->destroy();
  return ZE_RESULT_SUCCESS;
}

ze_result_t virtualMemReserve(ze_context_handle_t hContext, const void* pStart, size_t size, void** pptr) {
  ZEFUSE_OBJECT(Context, context, hContext);
  ZEFUSE_NOT_NULL(pptr);
  *pptr = nullptr;
  if (ze_result_t result = checkRange("zeVirtualMemReserve", pStart, size))
    return result;
  return guarded(__func__, [&] {
    Ranges& ranges = Ranges::instance();
    std::lock_guard lock(ranges.mutex);
    // `pStart` is a wish: the system takes another place where that one is in use.
    void* base = mmap(const_cast<void*>(pStart), size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED)
      return refuse(ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY, "zeVirtualMemReserve: %zu bytes: %s", size,
                    std::strerror(errno));
    try {
      ranges.reserved.emplace(reinterpret_cast<uintptr_t>(base), Reservation{Ref<Context>(context), size, {}});
    } catch (...) {
      munmap(base, size);
      throw;
    }
    *pptr = base;
    return ZE_RESULT_SUCCESS;
  });
}

ze_result_t virtualMemFree(ze_context_handle_t hContext, const void* ptr, size_t size) {
  ZEFUSE_OBJECT(Context, context, hContext);
  ZEFUSE_NOT_NULL(ptr);
  Reservation gone;  // after the lock
  Ranges& ranges = Ranges::instance();
  std::lock_guard lock(ranges.mutex);
  auto found = ranges.reserved.find(reinterpret_cast<uintptr_t>(ptr));
  if (found == ranges.reserved.end() || found->second.size != size || found->second.owner.get() != context)
    return refuseRange("zeVirtualMemFree", ptr, size, "no reservation of this context");
  gone = std::move(found->second);
  munmap(const_cast<void*>(ptr), size);
  ranges.reserved.erase(found);
  return ZE_RESULT_SUCCESS;
}

ze_result_t virtualMemQueryPageSize(ze_context_handle_t hContext, ze_device_handle_t hDevice, size_t size,
                                    size_t* pagesize) {
  ZEFUSE_CHECK(Context, hContext);
  ZEFUSE_CHECK(Device, hDevice);
  ZEFUSE_NOT_NULL(pagesize);
  if (size == 0)
    return refuse(ZE_RESULT_ERROR_UNSUPPORTED_SIZE, "zeVirtualMemQueryPageSize: size is 0");
  *pagesize = pageSize();
  return ZE_RESULT_SUCCESS;
}

ze_result_t virtualMemMap(ze_context_handle_t hContext, const void* ptr, size_t size,
                          ze_physical_mem_handle_t hPhysicalMemory, size_t offset,
                          ze_memory_access_attribute_t access) {
  ZEFUSE_CHECK(Context, hContext);
  ZEFUSE_NOT_NULL(ptr);
  ZEFUSE_OBJECT(PhysicalMemory, memory, hPhysicalMemory);
  const char* call = "zeVirtualMemMap";
  if (ze_result_t result = checkRange(call, ptr, size))
    return result;
  if (ze_result_t result = checkAccess(call, access))
    return result;
  if (offset % pageSize() != 0)
    return refuse(ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT, "%s: offset %zu does not begin a page", call, offset);
  if (offset > memory->size || size > memory->size - offset)
    return refuse(ZE_RESULT_ERROR_INVALID_ARGUMENT, "%s: %zu bytes at %zu of %zu", call, size, offset, memory->size);
  return inReservation(call, ptr, size, [&](auto& mappings, uintptr_t address) -> ze_result_t {
    divideAt(mappings, address);
    auto next = mappings.lower_bound(address);
    if (next != mappings.end() && next->first < address + size)
      return refuseRange(call, ptr, size, "mapped already");
    auto entry = mappings.emplace(address, Mapping{size, access, Ref<PhysicalMemory>(memory), offset}).first;
    if (mmap(const_cast<void*>(ptr), size, protectionOf(access), MAP_SHARED | MAP_FIXED, memory->file,
             static_cast<off_t>(offset)) == MAP_FAILED) {
      mappings.erase(entry);
      return refuse(ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY, "%s: %s", call, std::strerror(errno));
    }
    return ZE_RESULT_SUCCESS;
  });
}

ze_result_t virtualMemUnmap(ze_context_handle_t hContext, const void* ptr, size_t size) {
  ZEFUSE_CHECK(Context, hContext);
  ZEFUSE_NOT_NULL(ptr);
  const char* call = "zeVirtualMemUnmap";
  if (ze_result_t result = checkRange(call, ptr, size))
    return result;
  std::map<uintptr_t, Mapping> gone;  // after the lock
  return inReservation(call, ptr, size, [&](auto& mappings, uintptr_t address) -> ze_result_t {
    divideOut(mappings, address, size);  // pages that are not mapped stay so
    if (mmap(const_cast<void*>(ptr), size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) ==
        MAP_FAILED)
      return refuse(ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY, "%s: %s", call, std::strerror(errno));
    for (auto each = mappings.lower_bound(address); each != mappings.end() && each->first < address + size;)
      gone.insert(mappings.extract(each++));
    return ZE_RESULT_SUCCESS;
  });
}

ze_result_t virtualMemSetAccessAttribute(ze_context_handle_t hContext, const void* ptr, size_t size,
                                         ze_memory_access_attribute_t access) {
  ZEFUSE_CHECK(Context, hContext);
  ZEFUSE_NOT_NULL(ptr);
  const char* call = "zeVirtualMemSetAccessAttribute";
  if (ze_result_t result = checkRange(call, ptr, size))
    return result;
  if (ze_result_t result = checkAccess(call, access))
    return result;
  return inReservation(call, ptr, size, [&](auto& mappings, uintptr_t address) -> ze_result_t {
    if (!divideOut(mappings, address, size))
      return refuseRange(call, ptr, size, "not mapped");
    if (mprotect(const_cast<void*>(ptr), size, protectionOf(access)) != 0)
      return refuse(ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY, "%s: %s", call, std::strerror(errno));
    for (auto each = mappings.lower_bound(address); each != mappings.end() && each->first < address + size; ++each)
      each->second.access = access;
    return ZE_RESULT_SUCCESS;
  });
}

ze_result_t virtualMemGetAccessAttribute(ze_context_handle_t hContext, const void* ptr, size_t size,
                                         ze_memory_access_attribute_t* access, size_t* outSize) {
  ZEFUSE_CHECK(Context, hContext);
  ZEFUSE_NOT_NULL(ptr);
  ZEFUSE_NOT_NULL(access);
  ZEFUSE_NOT_NULL(outSize);
  const char* call = "zeVirtualMemGetAccessAttribute";
  if (ze_result_t result = checkRange(call, ptr, size))
    return result;
  return inReservation(call, ptr, size, [&](auto& mappings, uintptr_t address) -> ze_result_t {
    divideAt(mappings, address);
    auto each = mappings.find(address);
    if (each == mappings.end()) {
      *access = ZE_MEMORY_ACCESS_ATTRIBUTE_NONE;
      auto next = mappings.lower_bound(address);
      *outSize = next == mappings.end() ? size : std::min<size_t>(size, next->first - address);
      return ZE_RESULT_SUCCESS;
    }
    *access = each->second.access;
    size_t same = 0;
    for (; same < size && each != mappings.end() && each->first == address + same && each->second.access == *access;
         ++each)
      same += each->second.size;
    *outSize = std::min(same, size);
    return ZE_RESULT_SUCCESS;
  });
}

}  // namespace zefuse::cpu
