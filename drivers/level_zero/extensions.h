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
