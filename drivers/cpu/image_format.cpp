#include "drivers/cpu/image_format.h"

#include <algorithm>
#include <iterator>

namespace zefuse::cpu {
namespace {

struct Layout {
  ze_image_format_layout_t layout;
  TexelPacking packing;
  uint8_t channels, channel_bytes, texel_bytes;
};
constexpr Layout kLayouts[] = {
    {ZE_IMAGE_FORMAT_LAYOUT_8, TexelPacking::channels, 1, 1, 1},
    {ZE_IMAGE_FORMAT_LAYOUT_16, TexelPacking::channels, 1, 2, 2},
    {ZE_IMAGE_FORMAT_LAYOUT_32, TexelPacking::channels, 1, 4, 4},
    {ZE_IMAGE_FORMAT_LAYOUT_8_8, TexelPacking::channels, 2, 1, 2},
    {ZE_IMAGE_FORMAT_LAYOUT_8_8_8_8, TexelPacking::channels, 4, 1, 4},
    {ZE_IMAGE_FORMAT_LAYOUT_16_16, TexelPacking::channels, 2, 2, 4},
    {ZE_IMAGE_FORMAT_LAYOUT_16_16_16_16, TexelPacking::channels, 4, 2, 8},
    {ZE_IMAGE_FORMAT_LAYOUT_32_32, TexelPacking::channels, 2, 4, 8},
    {ZE_IMAGE_FORMAT_LAYOUT_32_32_32_32, TexelPacking::channels, 4, 4, 16},
    {ZE_IMAGE_FORMAT_LAYOUT_10_10_10_2, TexelPacking::r10_g10_b10_a2, 4, 0, 4},
    {ZE_IMAGE_FORMAT_LAYOUT_11_11_10, TexelPacking::r11_g11_b10, 3, 0, 4},
    {ZE_IMAGE_FORMAT_LAYOUT_5_6_5, TexelPacking::b5_g6_r5, 3, 0, 2},
    {ZE_IMAGE_FORMAT_LAYOUT_5_5_5_1, TexelPacking::b5_g5_r5_a1, 4, 0, 2},
    {ZE_IMAGE_FORMAT_LAYOUT_4_4_4_4, TexelPacking::b4_g4_r4_a4, 4, 0, 2},
    // Of headers newer than the installed one: three channels.
    {static_cast<ze_image_format_layout_t>(43), TexelPacking::channels, 3, 1, 3},
    {static_cast<ze_image_format_layout_t>(44), TexelPacking::channels, 3, 2, 6},
    {static_cast<ze_image_format_layout_t>(45), TexelPacking::channels, 3, 4, 12},
};

bool fits(const Layout& layout, TexelKind kind) {
  switch (layout.packing) {
  case TexelPacking::channels: return kind != TexelKind::floating || layout.channel_bytes >= 2;
  case TexelPacking::r10_g10_b10_a2: return kind != TexelKind::floating;
  case TexelPacking::r11_g11_b10: return kind == TexelKind::floating;
  default: return kind == TexelKind::unorm;
  }
}

// SPIR-V's Image Channel Data Type.
uint8_t dataType(const Layout& layout, TexelKind kind) {
  switch (layout.packing) {
  case TexelPacking::r10_g10_b10_a2: return 16;  // UnormInt101010_2: nothing says more
  case TexelPacking::r11_g11_b10: return 14;     // Float: nothing says 11
  case TexelPacking::b5_g6_r5: return 4;
  case TexelPacking::b5_g5_r5_a1: return 5;
  case TexelPacking::b4_g4_r4_a4: return 2;
  default: break;
  }
  const int by_size = layout.channel_bytes == 1 ? 0 : layout.channel_bytes == 2 ? 1 : 2;
  switch (kind) {
  case TexelKind::snorm: return static_cast<uint8_t>(std::min(by_size, 1));      // SnormInt8, SnormInt16
  case TexelKind::unorm: return static_cast<uint8_t>(2 + std::min(by_size, 1));  // UnormInt8, UnormInt16
  case TexelKind::sint: return static_cast<uint8_t>(7 + by_size);                // SignedInt8 to 32
  case TexelKind::uint: return static_cast<uint8_t>(10 + by_size);               // UnsignedInt8 to 32
  case TexelKind::floating: return layout.channel_bytes == 2 ? 13 : 14;          // HalfFloat, Float
  }
  return 14;
}

// SPIR-V's Image Channel Order, of what components a kernel sees.
uint8_t channelOrder(const Layout& layout, const uint8_t (&source)[4]) {
  auto is = [&](uint8_t x, uint8_t y, uint8_t z, uint8_t w) {
    return source[0] == x && source[1] == y && source[2] == z && source[3] == w;
  };
  if (is(2, 1, 0, 3))
    return 6;  // BGRA
  if (is(1, 2, 3, 0))
    return 7;  // ARGB
  if (is(3, 2, 1, 0))
    return 19;  // ABGR
  if (is(0, 0, 0, 0))
    return 8;  // Intensity
  if (is(0, 0, 0, kSourceOne))
    return 9;  // Luminance
  if (is(kSourceZero, kSourceZero, kSourceZero, 0))
    return 1;  // A
  if (layout.channels == 2 && is(0, kSourceZero, kSourceZero, 1))
    return 3;                                      // RA
  constexpr uint8_t kByChannels[] = {0, 2, 4, 5};  // R, RG, RGB, RGBA
  return kByChannels[layout.channels - 1];
}

}  // namespace

bool describeFormat(const ze_image_format_t& format, ImageView& view) {
  auto layout = std::find_if(std::begin(kLayouts), std::end(kLayouts),
                             [&](const Layout& each) { return each.layout == format.layout; });
  if (layout == std::end(kLayouts) || static_cast<uint32_t>(format.type) > ZE_IMAGE_FORMAT_TYPE_FLOAT)
    return false;
  const auto kind = static_cast<TexelKind>(format.type);  // in the same order
  static_assert(static_cast<int>(TexelKind::floating) == ZE_IMAGE_FORMAT_TYPE_FLOAT);
  if (!fits(*layout, kind))
    return false;
  view.texel_bytes = layout->texel_bytes;
  view.channel_bytes = layout->channel_bytes;
  view.channel_count = layout->channels;
  view.packing = layout->packing;
  view.kind = kind;
  view.border_opaque = true;
  std::fill(std::begin(view.target), std::end(view.target), kSourceZero);
  const ze_image_format_swizzle_t swizzles[4] = {format.x, format.y, format.z, format.w};
  for (uint8_t i = 0; i < 4; ++i) {
    if (static_cast<uint32_t>(swizzles[i]) > ZE_IMAGE_FORMAT_SWIZZLE_X)
      return false;
    view.source[i] = swizzles[i] == ZE_IMAGE_FORMAT_SWIZZLE_X ? kSourceZero : static_cast<uint8_t>(swizzles[i]);
    if (view.source[i] == 3)
      view.border_opaque = false;
    // A channel that several components show takes the first of them.
    if (view.source[i] < 4 && view.target[view.source[i]] == kSourceZero)
      view.target[view.source[i]] = i;
  }
  view.order = channelOrder(*layout, view.source);
  view.data_type = dataType(*layout, kind);
  return true;
}

bool canFilter(const ImageView& view) { return view.kind != TexelKind::uint && view.kind != TexelKind::sint; }

}  // namespace zefuse::cpu
