#include "runtime/cpu_driver/environment.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>

namespace zefuse::cpu {
namespace {

void complain(const char* name, const char* value, const char* expected) {
  std::fprintf(stderr, "zefuse cpu driver: %s=%s is ignored: expected %s\n", name, value, expected);
}

uint32_t readThreads() {
  constexpr uint32_t kUnlimited = std::numeric_limits<uint32_t>::max();
  const char* name = "ZEFUSE_CPU_DRIVER_THREADS";
  const char* value = std::getenv(name);
  if (!value || !*value)
    return kUnlimited;
  char* end = nullptr;
  unsigned long threads = std::strtoul(value, &end, 10);
  if (*end || threads == 0 || threads > kUnlimited) {
    complain(name, value, "a number of threads, at least 1");
    return kUnlimited;
  }
  return static_cast<uint32_t>(threads);
}

bool readSwitch(const char* name, const char* off, const char* on, const char* expected) {
  const char* value = std::getenv(name);
  if (!value || !*value || !std::strcmp(value, off))
    return false;
  if (!std::strcmp(value, on))
    return true;
  complain(name, value, expected);
  return false;
}

}  // namespace

const Environment& environment() {
  static const Environment values = {
      readThreads(),
      readSwitch("ZEFUSE_CPU_DRIVER_AS", "cpu", "gpu", "cpu or gpu"),
      readSwitch("ZEFUSE_CPU_DRIVER_LOG", "0", "1", "0 or 1"),
  };
  return values;
}

}  // namespace zefuse::cpu
