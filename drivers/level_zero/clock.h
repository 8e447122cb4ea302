// The clocks of host and device timestamps, in nanoseconds.
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

// How much further hostNowNs() is than nowNs(). The clocks run apart by less than a thousandth, so what lies between
// them now lay there shortly before.
inline uint64_t hostAheadNs() {
  const uint64_t now = nowNs();
  return hostNowNs() - now;
}

}  // namespace zefuse::level_zero
