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

  PhysicalMemory(Context& context, int file, size_t size) : context(&context), file(file), size(size) {}
  ~PhysicalMemory();
};

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
