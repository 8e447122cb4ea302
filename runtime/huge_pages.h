// Large blocks in huge pages.
#pragma once

#include <cstddef>

namespace zefuse {

inline constexpr size_t huge_page_bytes = size_t(1) << 21;  // x86-64

// Asks the system to back [data, data + bytes) by huge pages where it has them ("madvise" and "always" in
// /sys/kernel/mm/transparent_hugepage/enabled): touched for the first time, a block then costs one page fault in 2 MiB,
// not one in 4 KiB. Only whole huge pages inside the block; the contents stay. Small blocks and systems without:
// nothing. Thread-safe.
void preferHugePages(void* data, size_t bytes);

}  // namespace zefuse
