// An image as a kernel's image functions (image_library.cpp) see it; the driver fills it in. Both sides, and native
// binaries made earlier, rely on the layout: a change of it is a change of the container's version.
#pragma once

#include <stdint.h>  // not <cstdint>: the image library is bitcode without a C++ library

namespace zefuse::cpu {

enum class TexelKind : uint8_t { uint, sint, unorm, snorm, floating };

// Where channels lie: alike, one after the other, or in the bits of one word, of which the comments name the lowest
// first (as Intel's GPUs have them).
enum class TexelPacking : uint8_t {
  channels,
  r10_g10_b10_a2,
  r11_g11_b10,  // floats without a sign
  b5_g6_r5,
  b5_g5_r5_a1,
  b4_g4_r4_a4,
};

constexpr uint8_t kSourceZero = 4, kSourceOne = 5;

struct ImageView {
  unsigned char* texels;
  uint64_t row_pitch, slice_pitch;  // bytes
  // In texels; 1 where there is no such dimension. An array's layers are the dimension after its own. An image of
  // size 0 has no texels: reads give the border, writes go nowhere.
  uint32_t size[3];
  uint8_t texel_bytes;
  uint8_t channel_bytes;  // of TexelPacking::channels: 1, 2 or 4
  uint8_t channel_count;
  TexelPacking packing;
  TexelKind kind;
  uint8_t source[4];   // where component i of what a kernel reads comes from: a channel, or kSourceZero, kSourceOne
  uint8_t target[4];   // which component of what a kernel writes goes to channel c; kSourceZero: none
  bool border_opaque;  // what lies outside has an alpha of 1, as no alpha is in the image
  uint8_t order, data_type;  // SPIR-V's Image Channel Order and Data Type
};

}  // namespace zefuse::cpu
