// Reserved ranges of addresses, and physical memory that is mapped into them: mmap and memory files.
#pragma once

#include <level_zero/ze_api.h>

#include <cstddef>

#include "drivers/cpu/context.h"
#include "drivers/cpu/level_zero.h"

namespace zefuse::cpu {

// A memory file. What maps it keeps the memory: the handle may go first.
struct PhysicalMemory : Object<PhysicalMemory> {
  static constexpr uint32_t kMagic = magicOf("ZPHY");
  const Ref<Context> context;
  const int file;
  const size_t size;

  PhysicalMemory(Context& context, int file, size_t size);
  ~PhysicalMemory();
};

// From where to the end of what is mapped there, in its memory file; file < 0: nowhere.
struct PhysicalPart {
  int file = -1;
  size_t offset = 0, size = 0;
};
// What is mapped at `pointer`, which begins a page, or all of the physical memory whose handle it is. Thread-safe.
PhysicalPart physicalAt(const Context& context, const void* pointer);

// Whether physical memory is mapped where `pointer` points. Thread-safe.
bool isMappedVirtual(const void* pointer);

decltype(::zePhysicalMemCreate) physicalMemCreate;
decltype(::zePhysicalMemDestroy) physicalMemDestroy;
decltype(::zeVirtualMemReserve) virtualMemReserve;
decltype(::zeVirtualMemFree) virtualMemFree;
decltype(::zeVirtualMemQueryPageSize) virtualMemQueryPageSize;
decltype(::zeVirtualMemMap) virtualMemMap;
decltype(::zeVirtualMemUnmap) virtualMemUnmap;
decltype(::zeVirtualMemSetAccessAttribute) virtualMemSetAccessAttribute;
decltype(::zeVirtualMemGetAccessAttribute) virtualMemGetAccessAttribute;

}  // namespace zefuse::cpu
