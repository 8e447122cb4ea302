// Orders between threads that ThreadSanitizer cannot see, told to it: those that libgomp and the dynamic linker keep,
// which are not built with it. Without the sanitizer nothing is left of it.
#pragma once

#ifdef __has_feature
#if __has_feature(thread_sanitizer)
#define ZEFUSE_TELLS_ORDER 1
extern "C" void __tsan_acquire(void* address);
extern "C" void __tsan_release(void* address);
#endif
#endif

namespace zefuse {

// What a thread did before give() comes before what another does after take(). For where that is so already.
class UnseenOrder {
public:
#ifdef ZEFUSE_TELLS_ORDER
  void give() { __tsan_release(&address_); }
  void take() { __tsan_acquire(&address_); }

private:
  char address_ = 0;
#else
  void give() {}
  void take() {}
#endif
};

// One per parallel region, on the stack of who opens it: begin() before the region and entered() first in each thread
// of it, left() last there and end() behind it.
class TeamOrder {
public:
  void begin() { begun_.give(); }
  void entered() { begun_.take(); }
  void left() { ended_.give(); }
  void end() { ended_.take(); }

private:
  UnseenOrder begun_, ended_;
};

}  // namespace zefuse
