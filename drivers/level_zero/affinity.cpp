#include "drivers/level_zero/affinity.h"

#include <cstdio>
#include <cstdlib>

#include "drivers/level_zero/traits.h"

namespace zefuse::level_zero {
namespace {

uint32_t ignored(const char* value) {
  std::fprintf(stderr, "%s: ZE_AFFINITY_MASK=%s is ignored: expected numbers of devices, separated by commas\n",
               traits().log_name, value);
  return ~uint32_t{0};
}

}  // namespace

// Numbers of devices by commas; "n.m" names a sub-device, and as there are none, "n.0" is the device itself.
uint32_t visibleDevices() {
  constexpr uint32_t kAll = ~uint32_t{0};
  const char* value = std::getenv("ZE_AFFINITY_MASK");
  if (!value || !*value)
    return kAll;
  uint32_t visible = 0;
  for (const char* at = value;;) {
    char* end = nullptr;
    const unsigned long device = std::strtoul(at, &end, 10);
    unsigned long part = 0;
    if (end == at || *at < '0' || *at > '9')
      return ignored(value);
    if (*end == '.' && end[1] >= '0' && end[1] <= '9')
      part = std::strtoul(end + 1, &end, 10);
    if (device < 32 && part == 0)
      visible |= uint32_t{1} << device;
    if (!*end)
      return visible;
    if (*end != ',')
      return ignored(value);
    at = end + 1;
  }
}

}  // namespace zefuse::level_zero
