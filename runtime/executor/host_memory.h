// A block of aligned host memory that grows without keeping its contents.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>

#include "common/base/status.h"
#include "runtime/executor/arena.h"

namespace zefuse::executor {

class HostMemory {
public:
  std::byte* data() const { return data_.get(); }
  size_t bytes() const { return bytes_; }

  Status reserve(size_t bytes) {
    if (bytes <= bytes_)
      return {};
    data_.reset();
    bytes_ = 0;
    const size_t rounded = (bytes + arena_alignment - 1) / arena_alignment * arena_alignment;
    data_.reset(static_cast<std::byte*>(std::aligned_alloc(arena_alignment, rounded)));
    if (!data_)
      return {Code::out_of_memory, "no memory for " + std::to_string(bytes) + " bytes"};
    bytes_ = rounded;
    return {};
  }

private:
  struct Free {
    void operator()(std::byte* data) const { std::free(data); }
  };
  std::unique_ptr<std::byte, Free> data_;
  size_t bytes_ = 0;
};

}  // namespace zefuse::executor
