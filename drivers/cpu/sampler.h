// Samplers: a word that kernels get by value.
#pragma once

#include <level_zero/ze_api.h>

#include <cstdint>

#include "drivers/cpu/level_zero.h"

namespace zefuse::cpu {

struct Sampler : Object<Sampler> {
  static constexpr uint32_t kMagic = magicOf("ZSMP");
  const uint32_t word;  // spirv/sampler.h

  explicit Sampler(uint32_t word) : word(word) {}
};

decltype(::zeSamplerCreate) samplerCreate;
decltype(::zeSamplerDestroy) samplerDestroy;

}  // namespace zefuse::cpu
