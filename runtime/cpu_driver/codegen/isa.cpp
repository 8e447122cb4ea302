#include "runtime/cpu_driver/codegen/codegen.h"

#include <cpuid.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace zefuse::cpu {
namespace {

// AMX tiles need the kernel's permission as well (arch_prctl); whoever runs such code asks for it.
IsaLevel detect() {
  __builtin_cpu_init();
  bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                __builtin_cpu_supports("avx512vl");
  if (!avx512)
    return IsaLevel::x86_64_v3;
  if (!__builtin_cpu_supports("avx512bf16") || !__builtin_cpu_supports("avx512vnni"))
    return IsaLevel::avx512;
  unsigned a, b, c, d;
  constexpr unsigned kAmxBf16 = 1u << 22, kAmxTile = 1u << 24, kAmxInt8 = 1u << 25;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & kAmxBf16) == 0 || (d & kAmxTile) == 0 || (d & kAmxInt8) == 0)
    return IsaLevel::avx512_bf16;
  return IsaLevel::amx;
}

}  // namespace

IsaLevel hostIsaLevel() {
  static const IsaLevel host = detect();
  const char* limit = std::getenv("ZEFUSE_CPU_ISA");
  if (!limit)
    return host;
  for (IsaLevel level : {IsaLevel::x86_64_v3, IsaLevel::avx512, IsaLevel::avx512_bf16, IsaLevel::amx})
    if (std::strcmp(limit, isaLevelName(level)) == 0)
      return level < host ? level : host;
  static const bool told = [&] {
    std::fprintf(stderr, "zefuse: ZEFUSE_CPU_ISA=%s is ignored: it is none of avx2, avx512, avx512_bf16, amx\n", limit);
    return true;
  }();
  (void)told;
  return host;
}

const char* isaLevelName(IsaLevel level) {
  switch (level) {
  case IsaLevel::x86_64_v3: return "avx2";
  case IsaLevel::avx512: return "avx512";
  case IsaLevel::avx512_bf16: return "avx512_bf16";
  case IsaLevel::amx: return "amx";
  }
  return "unknown";
}

}  // namespace zefuse::cpu
