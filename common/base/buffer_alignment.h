// Where buffers of the executor's own begin: what a plan says of memory on a GPU and the executor keeps.
#pragma once

#include <cstddef>

namespace zefuse {

// Bytes: a cache line, and the widest access of any target.
inline constexpr size_t buffer_alignment = 64;

}  // namespace zefuse
