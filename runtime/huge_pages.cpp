#include "runtime/huge_pages.h"

#include <cstdint>
#include <sys/mman.h>

namespace zefuse {

void preferHugePages(void* data, size_t bytes) {
  const uintptr_t at = reinterpret_cast<uintptr_t>(data), mask = huge_page_bytes - 1;
  const uintptr_t begin = (at + mask) & ~mask, end = (at + bytes) & ~mask;
  if (begin < end)
    (void)madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);  // advice: a refusal changes nothing
}

}  // namespace zefuse
