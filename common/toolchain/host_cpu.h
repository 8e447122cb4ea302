// Whether this processor runs what zefuse compiles: everything needs the lowest level of cpuTargets(). The libraries
// themselves are for any x86-64, so that they can say so.
#pragma once

#include <string>

namespace zefuse {

struct CpuFeatures {
  bool avx2 = false, fma = false, bmi2 = false, f16c = false;
};

CpuFeatures hostCpuFeatures();
// "AVX2, FMA"; empty: nothing of x86-64-v3's vector features is missing.
std::string missingCpuFeatures(const CpuFeatures& features);

}  // namespace zefuse
