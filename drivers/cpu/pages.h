// The system's pages.
#pragma once

#include <unistd.h>

#include <cstddef>

namespace zefuse::cpu {

inline size_t pageSize() {
  static const auto size = static_cast<size_t>(sysconf(_SC_PAGE_SIZE));
  return size;
}

// Rounded up; the caller sees to it that this does not overflow.
inline size_t wholePages(size_t bytes) { return (bytes + pageSize() - 1) / pageSize() * pageSize(); }

}  // namespace zefuse::cpu
