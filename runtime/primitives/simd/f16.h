// Numbers of f16 from and to f32, on any processor: the compiler's own conversion would call a library that is not
// everywhere. Without branches, so that loops over them become vectors.
#pragma once

#include <bit>
#include <cstdint>

namespace zefuse::primitives {

inline float floatOfF16(uint16_t bits) {
  const uint32_t sign = uint32_t(bits & 0x8000u) << 16, magnitude = bits & 0x7fffu;
  // Normal numbers, infinities and NaN by their exponent; subnormal ones as a difference, which needs none in f32.
  const uint32_t moved = magnitude << 13, exponent = moved & 0x0f800000u;
  const uint32_t normal = moved + (exponent == 0x0f800000u ? 224u << 23 : 112u << 23);
  const float subnormal = std::bit_cast<float>(moved + (113u << 23)) - std::bit_cast<float>(113u << 23);
  return std::bit_cast<float>(sign | (exponent == 0 ? std::bit_cast<uint32_t>(subnormal) : normal));
}

// To the nearest, even where two are; too large ones are infinite, a NaN stays one.
inline uint16_t f16OfFloat(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value), magnitude = bits & 0x7fffffffu;
  const uint32_t special = magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u;
  const uint32_t normal = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1)) >> 13;
  // Adding one half leaves what a subnormal number keeps in the last bits, rounded.
  const uint32_t subnormal = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - (126u << 23);
  const uint32_t finite = magnitude < (113u << 23) ? subnormal : normal;
  return uint16_t((bits >> 16 & 0x8000u) | (magnitude >= (143u << 23) ? special : finite));
}

}  // namespace zefuse::primitives
