// The structures that an application chains to a descriptor or to properties (pNext).
#pragma once

#include <level_zero/ze_api.h>

namespace zefuse::level_zero {

// The first structure of this type in a chain; null: none.
template <typename T> const T* findExtension(const void* chain, ze_structure_type_t type) {
  for (auto* next = static_cast<const ze_base_desc_t*>(chain); next;
       next = static_cast<const ze_base_desc_t*>(next->pNext))
    if (next->stype == type)
      return reinterpret_cast<const T*>(next);
  return nullptr;
}
template <typename T> T* findExtension(void* chain, ze_structure_type_t type) {
  return const_cast<T*>(findExtension<T>(static_cast<const void*>(chain), type));
}

// ZE_extension_virtual_mem_readonly_properties, which newer headers have: what becomes of a write to memory that is
// mapped to be read only.
struct ReadonlyMemoryProperties {
  static constexpr auto kType = static_cast<ze_structure_type_t>(0x00010015);
  static constexpr uint32_t kEnforced = 2;  // it faults
  ze_structure_type_t stype;
  void* pNext;
  uint32_t capability;
};

// ZE_extension_kernel_max_group_size_properties, which newer headers have: the most items of a group of this kernel.
struct KernelMaxGroupSizeProperties {
  static constexpr auto kType = static_cast<ze_structure_type_t>(0x00010013);
  ze_structure_type_t stype;
  void* pNext;
  uint32_t items;
};

// ZE_extension_event_query_kernel_timestamps, which newer headers have: a command's times by the device's clock, and by
// the host's.
struct QueryKernelTimestampsProperties {
  static constexpr auto kType = static_cast<ze_structure_type_t>(0x00010011);
  static constexpr uint32_t kDevice = ZE_BIT(0), kHost = ZE_BIT(1);
  ze_structure_type_t stype;
  void* pNext;
  uint32_t flags;
};
struct SynchronizedTimestamps {
  struct {
    uint64_t start_ns, end_ns;
  } global, context;
};
struct QueryKernelTimestampsResults {
  ze_structure_type_t stype;
  void* pNext;
  ze_kernel_timestamp_result_t* device;  // either may be null
  SynchronizedTimestamps* host;
};

// Whether the events of a pool are to be counter-based (ze_event_pool_counter_based_exp_desc_t, which newer headers
// have): their state is that of the list that signals them, and no reset comes between two uses.
inline bool asksForCounters(const ze_event_pool_desc_t& desc) {
  constexpr auto kCounterBased = static_cast<ze_structure_type_t>(0x00020014);
  return findExtension<ze_base_desc_t>(desc.pNext, kCounterBased) != nullptr;
}

// A module's inputs where they are several (ZE_experimental_module_program), else null.
inline const ze_module_program_exp_desc_t* findProgram(const ze_module_desc_t& desc) {
  return findExtension<ze_module_program_exp_desc_t>(desc.pNext, ZE_STRUCTURE_TYPE_MODULE_PROGRAM_EXP_DESC);
}

// Whether a descriptor asks for memory that comes from, or goes to, another interface.
inline bool sharesOutside(const void* chain) {
  return findExtension<ze_external_memory_export_desc_t>(chain, ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_DESC) ||
         findExtension<ze_external_memory_import_fd_t>(chain, ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_IMPORT_FD);
}

// Whether an allocation may be larger than maxMemAllocSize.
inline bool relaxesLimits(const void* chain) {
  const auto* limits = findExtension<ze_relaxed_allocation_limits_exp_desc_t>(
      chain, ZE_STRUCTURE_TYPE_RELAXED_ALLOCATION_LIMITS_EXP_DESC);
  return limits && (limits->flags & ZE_RELAXED_ALLOCATION_LIMITS_EXP_FLAG_MAX_SIZE) != 0;
}

}  // namespace zefuse::level_zero
