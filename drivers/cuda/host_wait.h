// How the host waits: it looks, first without pause, then with growing ones, until a deadline.
#pragma once

#include <level_zero/ze_api.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <thread>

namespace zefuse::cuda {

// `look` returns SUCCESS, NOT_READY or an error. 0 ns looks once, UINT64_MAX waits for ever.
template <typename Look> ze_result_t hostWait(uint64_t timeout_ns, Look&& look) {
  using Clock = std::chrono::steady_clock;
  constexpr auto spin = std::chrono::microseconds(200);
  const auto start = Clock::now();
  auto pause = std::chrono::microseconds(5);
  for (;;) {
    const ze_result_t result = look();
    if (result != ZE_RESULT_NOT_READY || timeout_ns == 0)
      return result;
    const auto waited = Clock::now() - start;
    if (timeout_ns != UINT64_MAX && uint64_t(std::chrono::nanoseconds(waited).count()) >= timeout_ns)
      return ZE_RESULT_NOT_READY;
    if (waited < spin)
      continue;
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::microseconds(100));
  }
}

}  // namespace zefuse::cuda
