// Unified shared memory of a context. Freed on destruction; must be destroyed before its context.
#pragma once

#include "runtime/ze/context.h"

namespace zefuse::ze {

class Memory {
public:
  enum class Kind { host, device, shared };
  Memory() = default;
  // out_of_memory also for more bytes than one allocation may have.
  static Result<Memory> allocate(const Context& context, Kind kind, size_t bytes, size_t alignment = 64);
  Memory(Memory&& other) noexcept { *this = std::move(other); }
  Memory& operator=(Memory&& other) noexcept {
    std::swap(context_, other.context_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Memory();

  void* data() const { return data_; }  // readable by the host unless Kind::device
  size_t bytes() const { return bytes_; }

private:
  const Context* context_ = nullptr;
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace zefuse::ze
