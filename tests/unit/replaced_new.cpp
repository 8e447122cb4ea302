#include "tests/unit/replaced_new.h"

#include <cstdlib>
#include <new>

namespace {

void* allocate(size_t bytes, size_t alignment) {
  void* data = !zefuse::test::mayAllocate() ? nullptr
               : alignment > 16 ? std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment)
                                : std::malloc(bytes);
  if (!data)
    throw std::bad_alloc();
  return data;
}

}  // namespace

void* operator new(size_t bytes) { return allocate(bytes, 16); }
void* operator new(size_t bytes, std::align_val_t alignment) { return allocate(bytes, size_t(alignment)); }
void operator delete(void* data) noexcept { std::free(data); }
void operator delete(void* data, size_t) noexcept { std::free(data); }
void operator delete(void* data, std::align_val_t) noexcept { std::free(data); }
void operator delete(void* data, size_t, std::align_val_t) noexcept { std::free(data); }
