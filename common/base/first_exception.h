// What the first of several pieces of work threw, for whoever waits for them all.
#pragma once

#include <exception>
#include <mutex>

namespace zefuse {

// Thread-safe but for rethrow(), which comes after all pieces.
class FirstException {
public:
  // In a catch block.
  void keep() {
    std::lock_guard lock(mutex_);
    if (!thrown_)
      thrown_ = std::current_exception();
  }
  void rethrow() const {
    if (thrown_)
      std::rethrow_exception(thrown_);
  }

private:
  std::mutex mutex_;  // guards the next
  std::exception_ptr thrown_;
};

}  // namespace zefuse
