// Numbers of bf16 from and to f32, on any processor: the compiler's own conversion would call a library that is not
// everywhere.
#pragma once

#include <bit>
#include <cstdint>

namespace zefuse::primitives {

// To the nearest, even where two are; a NaN stays one.
inline uint16_t bitsOfBf16(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u)
    return uint16_t((bits >> 16) | 0x40);  // rounding could carry a NaN's payload into infinity
  return uint16_t((bits + 0x7fffu + ((bits >> 16) & 1)) >> 16);
}

inline float floatOfBf16(uint16_t bits) { return std::bit_cast<float>(uint32_t(bits) << 16); }

inline __bf16 toBf16(float value) { return std::bit_cast<__bf16>(bitsOfBf16(value)); }

}  // namespace zefuse::primitives
