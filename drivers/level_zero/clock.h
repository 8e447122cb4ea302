// The one clock of host and device timestamps: CLOCK_MONOTONIC, one tick per nanosecond.
#pragma once

#include <cstdint>
#include <ctime>

namespace zefuse::level_zero {

inline uint64_t nowNs() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(time.tv_nsec);
}

// The host's clock of zeDeviceGetGlobalTimestamps: that which Intel's driver and SYCL's runtime take for the host.
inline uint64_t hostNowNs() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC_RAW, &time);
  return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(time.tv_nsec);
}

}  // namespace zefuse::level_zero
