#include "tests/unit/regions.h"

#include <dlfcn.h>

#include <atomic>

namespace {

std::atomic<int> opened{0};

template <typename Entry> Entry* next(const char* name) { return reinterpret_cast<Entry*>(dlsym(RTLD_NEXT, name)); }

}  // namespace

extern "C" {
// The executor's and the driver's.
[[gnu::visibility("default")]] void GOMP_parallel(void (*function)(void*), void* data, unsigned threads,
                                                  unsigned flags) {
  static auto* const real = next<void(void (*)(void*), void*, unsigned, unsigned)>("GOMP_parallel");
  ++opened;
  real(function, data, threads, flags);
}

// oneDNN's.
[[gnu::visibility("default")]] void GOMP_parallel_start(void (*function)(void*), void* data, unsigned threads) {
  static auto* const real = next<void(void (*)(void*), void*, unsigned)>("GOMP_parallel_start");
  ++opened;
  real(function, data, threads);
}
}

int zefuse::testing::regionsOpened() { return opened; }
