#pragma once

#include <cstddef>
#include <cstdint>

namespace zefuse::primitives {

// Hands out scratch memory part by part; with none it counts the bytes.
struct ScratchParts {
  void* scratch;
  size_t bytes = 0;

  template <typename T> void operator()(T*& part, int64_t count) {
    // As a number: to a null pointer nothing may be added.
    part = reinterpret_cast<T*>(reinterpret_cast<uintptr_t>(scratch) + bytes);
    bytes += size_t(count) * sizeof(T);
  }
};

}  // namespace zefuse::primitives
