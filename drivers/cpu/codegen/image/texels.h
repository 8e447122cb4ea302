// Texels to four numbers and back: formats, for the image library.
#pragma once

#include "drivers/cpu/codegen/image/image_view.h"
#include "drivers/spirv/math/vec.h"

namespace zefuse::cpu {

using v4f = zf::Vec<float, 4>;
using v4i = zf::Vec<int32_t, 4>;

// Width in bits of channel `c`, and its lowest bit.
struct Bits {
  uint32_t width, first;
};
ZF_INLINE Bits bitsOf(TexelPacking packing, int c) {
  switch (packing) {
  case TexelPacking::r10_g10_b10_a2: return c == 3 ? Bits{2, 30} : Bits{10, uint32_t(c) * 10};
  case TexelPacking::r11_g11_b10: return c == 2 ? Bits{10, 22} : c == 3 ? Bits{0, 0} : Bits{11, uint32_t(c) * 11};
  case TexelPacking::b5_g6_r5: return c == 0 ? Bits{5, 11} : c == 1 ? Bits{6, 5} : c == 2 ? Bits{5, 0} : Bits{0, 0};
  case TexelPacking::b5_g5_r5_a1: return c == 3 ? Bits{1, 15} : Bits{5, uint32_t(2 - c) * 5};
  case TexelPacking::b4_g4_r4_a4: return c == 3 ? Bits{4, 12} : Bits{4, uint32_t(2 - c) * 4};
  default: return {0, 0};
  }
}
ZF_INLINE Bits bitsOf(const ImageView& image, int c) {
  return image.packing == TexelPacking::channels ? Bits{image.channel_bytes * 8u, 0} : bitsOf(image.packing, c);
}

ZF_INLINE uint32_t load(const unsigned char* p, uint32_t bytes) {
  uint32_t value = 0;
  switch (bytes) {
  case 1: return *p;
  case 2: {
    uint16_t half;
    __builtin_memcpy(&half, p, 2);
    return half;
  }
  default: __builtin_memcpy(&value, p, 4); return value;
  }
}
ZF_INLINE void store(unsigned char* p, uint32_t bytes, uint32_t value) {
  switch (bytes) {
  case 1: *p = static_cast<unsigned char>(value); return;
  case 2: {
    const uint16_t half = static_cast<uint16_t>(value);
    __builtin_memcpy(p, &half, 2);
    return;
  }
  default: __builtin_memcpy(p, &value, 4);
  }
}

ZF_INLINE int32_t signExtended(uint32_t value, uint32_t width) {
  return static_cast<int32_t>(value << (32 - width)) >> (32 - width);
}
ZF_INLINE uint32_t maxOf(uint32_t width) { return width == 32 ? UINT32_MAX : (1u << width) - 1; }

// A float of 5 bits of exponent, `mantissa` bits and no sign.
ZF_INLINE float fromSmallFloat(uint32_t value, uint32_t mantissa) {
  const uint16_t half = static_cast<uint16_t>(value << (10 - mantissa));
  return static_cast<float>(__builtin_bit_cast(_Float16, half));
}
ZF_INLINE uint32_t toSmallFloat(float value, uint32_t mantissa) {
  if (value != value)
    return (31u << mantissa) | 1;
  if (!(value > 0))
    return 0;
  const uint32_t bits = __builtin_bit_cast(uint32_t, value);
  const int32_t exponent = static_cast<int32_t>(bits >> 23) - 127;
  const uint32_t infinite = 31u << mantissa;
  if (exponent > 15)
    return infinite;
  if (exponent < -15 - static_cast<int32_t>(mantissa))
    return 0;
  // The significand with what is too small for it cut off, rounded to even; a carry goes into the exponent.
  const bool normal = exponent >= -14;
  const uint32_t significand = (bits & 0x7fffff) | 0x800000;
  const uint32_t shift = 23 - mantissa + (normal ? 0 : static_cast<uint32_t>(-14 - exponent));
  const uint32_t half = 1u << (shift - 1), cut = significand & ((1u << shift) - 1);
  uint32_t kept = significand >> shift;
  kept += cut > half || (cut == half && (kept & 1)) ? 1 : 0;
  const uint32_t result = normal ? kept + (static_cast<uint32_t>(exponent + 14) << mantissa) : kept;
  return result < infinite ? result : infinite;
}

ZF_INLINE float channelToFloat(const ImageView& image, uint32_t raw, uint32_t width) {
  switch (image.kind) {
  case TexelKind::unorm:
    return width == 32 ? static_cast<float>(raw / 4294967295.0)
                       : static_cast<float>(raw) / static_cast<float>(maxOf(width));
  case TexelKind::snorm: {
    const int32_t value = signExtended(raw, width);
    const float scaled = width == 32 ? static_cast<float>(value / 2147483647.0)
                                     : static_cast<float>(value) / static_cast<float>(maxOf(width - 1));
    return scaled < -1 ? -1.0f : scaled;
  }
  case TexelKind::floating:
    if (width == 32)
      return __builtin_bit_cast(float, raw);
    if (width == 16)
      return static_cast<float>(__builtin_bit_cast(_Float16, static_cast<uint16_t>(raw)));
    return fromSmallFloat(raw, width - 5);
  case TexelKind::sint: return static_cast<float>(signExtended(raw, width));
  default: return static_cast<float>(raw);
  }
}

// To the nearest of what the channel can hold; a NaN becomes 0 where there is none.
ZF_INLINE uint32_t floatToChannel(const ImageView& image, float value, uint32_t width) {
  const bool is_signed = image.kind == TexelKind::snorm || image.kind == TexelKind::sint;
  switch (image.kind) {
  case TexelKind::floating:
    if (width == 32)
      return __builtin_bit_cast(uint32_t, value);
    if (width == 16)
      return __builtin_bit_cast(uint16_t, static_cast<_Float16>(value));
    return toSmallFloat(value, width - 5);
  default: {
    const bool normalized = image.kind == TexelKind::unorm || image.kind == TexelKind::snorm;
    const double high = maxOf(is_signed ? width - 1 : width), low = is_signed ? (normalized ? -high : -high - 1) : 0;
    double scaled = value == value ? static_cast<double>(value) * (normalized ? high : 1.0) : 0.0;
    scaled = scaled < low ? low : scaled > high ? high : scaled;
    return static_cast<uint32_t>(static_cast<int64_t>(__builtin_roundeven(scaled))) & maxOf(width);
  }
  }
}

ZF_INLINE int32_t channelToInt(const ImageView& image, uint32_t raw, uint32_t width) {
  const bool is_signed = image.kind == TexelKind::sint || image.kind == TexelKind::snorm;
  return is_signed ? signExtended(raw, width) : static_cast<int32_t>(raw);
}

// Saturates, as a signed number where the channel has one.
ZF_INLINE uint32_t intToChannel(const ImageView& image, int32_t value, uint32_t width) {
  if (image.kind == TexelKind::sint || image.kind == TexelKind::snorm) {
    const int32_t high = static_cast<int32_t>(maxOf(width - 1)), low = -high - 1;
    return static_cast<uint32_t>(value < low ? low : value > high ? high : value) & maxOf(width);
  }
  if (image.kind == TexelKind::floating)
    return floatToChannel(image, static_cast<float>(value), width);
  const uint32_t given = static_cast<uint32_t>(value), high = maxOf(width);
  return given > high ? high : given;
}

ZF_INLINE unsigned char* texelAt(const ImageView& image, uint32_t x, uint32_t y, uint32_t z) {
  return image.texels + uint64_t{z} * image.slice_pitch + uint64_t{y} * image.row_pitch +
         uint64_t{x} * image.texel_bytes;
}

// `convert` makes an element of a channel's bits and width.
template <typename V, typename Convert>
ZF_INLINE V readTexel(const ImageView& image, const unsigned char* p, Convert convert) {
  using E = decltype(V{}[0] + V{}[0]);
  E parts[6] = {0, 0, 0, 1, 0, 1};  // missing channels, then the constants
  const uint32_t word = image.packing == TexelPacking::channels ? 0 : load(p, image.texel_bytes);
  for (int c = 0; c < image.channel_count; ++c) {
    const Bits bits = bitsOf(image, c);
    const uint32_t raw = image.packing == TexelPacking::channels
                             ? load(p + c * image.channel_bytes, image.channel_bytes)
                             : (word >> bits.first) & maxOf(bits.width);
    parts[c] = convert(image, raw, bits.width);
  }
  V result;
  for (int i = 0; i < 4; ++i)
    result[i] = parts[image.source[i]];
  return result;
}

template <typename V, typename Convert>
ZF_INLINE void writeTexel(const ImageView& image, unsigned char* p, V value, Convert convert) {
  using E = decltype(V{}[0] + V{}[0]);
  uint32_t word = 0;
  for (int c = 0; c < image.channel_count; ++c) {
    const Bits bits = bitsOf(image, c);
    const E given = image.target[c] < 4 ? value[image.target[c]] : E(0);
    const uint32_t raw = convert(image, given, bits.width);
    if (image.packing == TexelPacking::channels)
      store(p + c * image.channel_bytes, image.channel_bytes, raw);
    else
      word |= raw << bits.first;
  }
  if (image.packing != TexelPacking::channels)
    store(p, image.texel_bytes, word);
}

}  // namespace zefuse::cpu
