// A sampler as a kernel sees it: one word, of SPIR-V's own numbers. No LLVM.
#pragma once

#include <stdint.h>  // not <cstdint>: kernels' libraries have no C++ library

namespace zefuse::spirv {

// SPIR-V's Sampler Addressing Mode.
enum SamplerAddressing : uint32_t {
  kAddressNone = 0,
  kAddressClampToEdge = 1,
  kAddressClampToBorder = 2,
  kAddressRepeat = 3,
  kAddressRepeatMirrored = 4,
};

constexpr uint32_t kSamplerAddressingMask = 7;
constexpr uint32_t kSamplerNormalized = 8;  // coordinates run from 0 to 1
constexpr uint32_t kSamplerLinear = 16;     // else the nearest texel

constexpr uint32_t samplerWord(uint32_t addressing, bool normalized, bool linear) {
  return addressing | (normalized ? kSamplerNormalized : 0) | (linear ? kSamplerLinear : 0);
}

// What a sampling function is told of the image's type: its dimensions that are filtered, and whether the coordinate
// after them is a layer.
constexpr uint32_t kShapeDimensionsMask = 3;
constexpr uint32_t kShapeArrayed = 4;

}  // namespace zefuse::spirv
