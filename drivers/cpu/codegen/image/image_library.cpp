// What kernels do with images: zf_image_<what>. Compiled to LLVM bitcode; only what a kernel calls is linked into it.
//
// No coordinate reaches memory outside of the image: what lies outside reads as the border and is not written.
// Sampling follows OpenCL C's chapter on image addressing and filtering.
#include "drivers/cpu/codegen/image/texels.h"
#include "drivers/spirv/sampler.h"

using namespace zefuse::cpu;    // NOLINT(google-build-using-namespace): one source, no other names
using namespace zefuse::spirv;  // NOLINT(google-build-using-namespace)

namespace {

ZF_INLINE bool inside(const ImageView& image, int32_t x, int32_t y, int32_t z) {
  return static_cast<uint32_t>(x) < image.size[0] && static_cast<uint32_t>(y) < image.size[1] &&
         static_cast<uint32_t>(z) < image.size[2];
}

v4f fetchFloat(const ImageView& image, int32_t x, int32_t y, int32_t z) {
  if (!inside(image, x, y, z))
    return v4f{0, 0, 0, image.border_opaque ? 1.0f : 0.0f};
  const unsigned char* p = texelAt(image, x, y, z);
  return readTexel<v4f>(image, p,
                        [](const ImageView& i, uint32_t raw, uint32_t width) { return channelToFloat(i, raw, width); });
}

v4i fetchInt(const ImageView& image, int32_t x, int32_t y, int32_t z) {
  if (!inside(image, x, y, z))
    return v4i{0, 0, 0, image.border_opaque ? 1 : 0};
  const unsigned char* p = texelAt(image, x, y, z);
  return readTexel<v4i>(image, p,
                        [](const ImageView& i, uint32_t raw, uint32_t width) { return channelToInt(i, raw, width); });
}

// Any float, a NaN too, becomes an index that arithmetic does not overflow.
ZF_INLINE int32_t toIndex(float value) {
  constexpr float kFar = 1 << 30;
  value = value > -kFar ? value : -kFar;
  return static_cast<int32_t>(value < kFar ? value : kFar);
}

ZF_INLINE int32_t clamped(int32_t i, int32_t low, int32_t high) { return i < low ? low : i > high ? high : i; }

// The texels of one dimension that a sample takes, and the weight of the second.
struct Span {
  int32_t first, second;
  float weight;
};

ZF_INLINE Span spanOf(uint32_t sampler, float coordinate, uint32_t size) {
  const int32_t last = static_cast<int32_t>(size) - 1;
  const uint32_t addressing = sampler & kSamplerAddressingMask;
  const float scale = static_cast<float>(size);
  const bool normalized = (sampler & kSamplerNormalized) != 0;
  float u = normalized ? coordinate * scale : coordinate;
  if (addressing == kAddressRepeat) {
    const float s = normalized ? coordinate : coordinate / scale;
    u = (s - __builtin_floorf(s)) * scale;
  } else if (addressing == kAddressRepeatMirrored) {
    const float s = normalized ? coordinate : coordinate / scale;
    u = __builtin_fabsf(s - 2.0f * __builtin_roundevenf(0.5f * s)) * scale;
  }
  const bool linear = (sampler & kSamplerLinear) != 0;
  const float at = linear ? u - 0.5f : u;
  const float below = __builtin_floorf(at);
  Span span = {toIndex(below), 0, linear ? at - below : 0.0f};
  span.second = span.first + 1;
  switch (addressing) {
  case kAddressRepeat:
    span.first = span.first < 0 ? span.first + last + 1 : span.first > last ? span.first - last - 1 : span.first;
    span.second = span.second > last ? span.second - last - 1 : span.second;
    break;
  case kAddressClampToBorder: break;  // the texels beside the image are its border
  default: span.first = clamped(span.first, 0, last); span.second = clamped(span.second, 0, last);
  }
  return span;
}

struct Spans {
  Span of[3];
};

ZF_INLINE Spans spansOf(const ImageView& image, uint32_t sampler, float x, float y, float z, uint32_t shape) {
  const float coordinates[3] = {x, y, z};
  const uint32_t dimensions = shape & kShapeDimensionsMask;
  Spans spans = {};
  for (uint32_t d = 0; d < 3; ++d) {
    if (d < dimensions) {
      spans.of[d] = spanOf(sampler, coordinates[d], image.size[d]);
    } else if (d == dimensions && (shape & kShapeArrayed)) {
      const int32_t layer =
          clamped(toIndex(__builtin_roundevenf(coordinates[d])), 0, static_cast<int32_t>(image.size[d]) - 1);
      spans.of[d] = {layer, layer, 0};
    }
  }
  return spans;
}

}  // namespace

extern "C" {

v4f zf_image_read_f32(const ImageView* image, int32_t x, int32_t y, int32_t z) { return fetchFloat(*image, x, y, z); }
v4i zf_image_read_i32(const ImageView* image, int32_t x, int32_t y, int32_t z) { return fetchInt(*image, x, y, z); }

void zf_image_write_f32(const ImageView* image, int32_t x, int32_t y, int32_t z, v4f texel) {
  if (inside(*image, x, y, z))
    writeTexel(*image, texelAt(*image, x, y, z), texel,
               [](const ImageView& i, float value, uint32_t width) { return floatToChannel(i, value, width); });
}
void zf_image_write_i32(const ImageView* image, int32_t x, int32_t y, int32_t z, v4i texel) {
  if (inside(*image, x, y, z))
    writeTexel(*image, texelAt(*image, x, y, z), texel,
               [](const ImageView& i, int32_t value, uint32_t width) { return intToChannel(i, value, width); });
}

v4f zf_image_sample_f32(const ImageView* image, uint32_t sampler, float x, float y, float z, uint32_t shape) {
  const Spans spans = spansOf(*image, sampler, x, y, z, shape);
  const Span *a = &spans.of[0], *b = &spans.of[1], *c = &spans.of[2];
  if (!(sampler & kSamplerLinear))
    return fetchFloat(*image, a->first, b->first, c->first);
  const uint32_t corners = 1u << (shape & kShapeDimensionsMask);
  v4f sum = v4f(0.0f);
  for (uint32_t corner = 0; corner < corners; ++corner) {
    float weight = corner & 1 ? a->weight : 1 - a->weight;
    if (corners > 2)
      weight *= corner & 2 ? b->weight : 1 - b->weight;
    if (corners > 4)
      weight *= corner & 4 ? c->weight : 1 - c->weight;
    sum += weight * fetchFloat(*image, corner & 1 ? a->second : a->first, corner & 2 ? b->second : b->first,
                               corner & 4 ? c->second : c->first);
  }
  return sum;
}

// Integers are not filtered.
v4i zf_image_sample_i32(const ImageView* image, uint32_t sampler, float x, float y, float z, uint32_t shape) {
  const Spans spans = spansOf(*image, sampler & ~kSamplerLinear, x, y, z, shape);
  return fetchInt(*image, spans.of[0].first, spans.of[1].first, spans.of[2].first);
}

uint32_t zf_image_size(const ImageView* image, uint32_t dimension) { return image->size[dimension]; }
uint32_t zf_image_order(const ImageView* image) { return image->order; }
uint32_t zf_image_format(const ImageView* image) { return image->data_type; }

}  // extern "C"
