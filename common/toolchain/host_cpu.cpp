#include "common/toolchain/host_cpu.h"

#include <utility>

namespace zefuse {

CpuFeatures hostCpuFeatures() {
  __builtin_cpu_init();
  CpuFeatures features;
  features.avx2 = __builtin_cpu_supports("avx2");
  features.fma = __builtin_cpu_supports("fma");
  features.bmi2 = __builtin_cpu_supports("bmi2");
  features.f16c = __builtin_cpu_supports("f16c");
  return features;
}

std::string missingCpuFeatures(const CpuFeatures& features) {
  std::string names;
  for (const auto& [name, there] : {std::pair("AVX2", features.avx2), std::pair("FMA", features.fma),
                                    std::pair("BMI2", features.bmi2), std::pair("F16C", features.f16c)})
    if (!there)
      names += (names.empty() ? "" : ", ") + std::string(name);
  return names;
}

}  // namespace zefuse
