#include "drivers/cpu/environment.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <utility>

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

PosingGpu readGpu() {
  const char* name = "ZEFUSE_CPU_DRIVER_AS";
  const char* value = std::getenv(name);
  if (!value || !*value || !std::strcmp(value, "cpu"))
    return PosingGpu::none;
  if (!std::strcmp(value, "gpu"))
    return PosingGpu::discrete;
  if (!std::strcmp(value, "integrated-gpu"))
    return PosingGpu::integrated;
  if (!std::strcmp(value, "integrated-gpu-usm"))
    return PosingGpu::integrated_usm;
  complain(name, value, "cpu, gpu, integrated-gpu or integrated-gpu-usm");
  return PosingGpu::none;
}

uint64_t readGpuMemory() {
  const char* name = "ZEFUSE_CPU_DRIVER_GPU_MEMORY_MB";
  const char* value = std::getenv(name);
  if (!value || !*value)
    return 0;
  char* end = nullptr;
  unsigned long long megabytes = std::strtoull(value, &end, 10);
  if (*end || megabytes == 0 || megabytes > (1ull << 40)) {
    complain(name, value, "a number of MiB, at least 1");
    return 0;
  }
  return uint64_t(megabytes) << 20;
}

uint32_t readGpuId() {
  const char* name = "ZEFUSE_CPU_DRIVER_GPU_ID";
  const char* value = std::getenv(name);
  if (!value || !*value)
    return 0;
  char* end = nullptr;
  const unsigned long id = std::strtoul(value, &end, 16);
  if (*end || id == 0 || id > 0xffff) {
    complain(name, value, "a PCI id such as 0x56a5");
    return 0;
  }
  return static_cast<uint32_t>(id);
}

void readFault(Environment& values) {
  const char* name = "ZEFUSE_CPU_DRIVER_GPU_FAULT";
  const char* value = std::getenv(name);
  if (!value || !*value)
    return;
  for (auto [word, fault] : {std::pair{"jit-hang", Fault::jit_hang}, std::pair{"jit-crash", Fault::jit_crash},
                             std::pair{"jit-memory", Fault::jit_memory}})
    if (!std::strcmp(value, word)) {
      values.fault = fault;
      return;
    }
  for (auto [prefix, fault] : {std::pair{"hang:", Fault::hang}, std::pair{"lost:", Fault::lost},
                               std::pair{"no-memory:", Fault::no_memory}, std::pair{"hang-copy:", Fault::hang_copy}}) {
    const size_t length = std::strlen(prefix);
    if (std::strncmp(value, prefix, length) != 0)
      continue;
    char* end = nullptr;
    values.fault_at = std::strtoull(value + length, &end, 10);
    if (values.fault_at == 0 || *end)
      break;
    values.fault = fault;
    return;
  }
  complain(name, value, "hang:n, lost:n, no-memory:n or hang-copy:n, n at least 1, jit-hang, jit-crash or jit-memory");
}

}  // namespace

const Environment& environment() {
  static const Environment values = [] {
    Environment read = {readThreads(), readGpu(), readGpuMemory(),
                        Fault::none,   0,         readSwitch("ZEFUSE_CPU_DRIVER_LOG", "0", "1", "0 or 1"),
                        readGpuId()};
    readFault(read);
    return read;
  }();
  return values;
}

}  // namespace zefuse::cpu
