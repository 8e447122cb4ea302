#include "runtime/primitives/convolution/depthwise.h"

#include <algorithm>
#include <utility>

#include "runtime/primitives/convolution/depthwise_rows.h"
#include "runtime/primitives/core/team.h"
#include "runtime/primitives/simd/bf16.h"

namespace zefuse::primitives {

namespace {

int64_t vectorsOf(const DepthwiseShape& shape) {
  const int lanes = depthwiseLevel()->lanes;
  return (shape.channels + lanes - 1) / lanes;
}

int64_t paddedChannels(const DepthwiseShape& shape) { return vectorsOf(shape) * depthwiseLevel()->lanes; }

int64_t elementsOf(const DepthwiseShape& shape) { return shape.window[0] * shape.window[1] * shape.window[2]; }

// Which place of the input an element of the window meets at a place of the result; -1 for none.
int64_t metBy(const DepthwiseShape& shape, int d, int64_t place, int64_t element) {
  int64_t x = 0;
  if (!shape.transposed) {
    x = place * shape.stride[d] + element * shape.dilation[d] - shape.padding[d];
  } else {
    x = place + shape.padding[d] - element * shape.dilation[d];
    if (x % shape.stride[d])
      return -1;
    x /= shape.stride[d];
  }
  return x < shape.input.sizes[d] ? x : -1;
}

// Numbers of places at which x = number * step + offset lies in [0, size).
std::pair<int64_t, int64_t> inside(int64_t offset, int64_t step, int64_t size, int64_t count) {
  const int64_t begin = offset >= 0 ? 0 : (-offset + step - 1) / step;
  const int64_t end = offset >= size ? 0 : (size - 1 - offset) / step + 1;
  return {std::min(begin, count), std::min(end, count)};
}

std::vector<DepthwisePlaces> placesOf(const DepthwiseShape& shape) {
  std::vector<DepthwisePlaces> all;
  const int64_t kinds = shape.transposed ? shape.stride[2] : 1, size = shape.out.sizes[2];
  for (int64_t kind = 0; kind < std::min(kinds, size); ++kind) {
    DepthwisePlaces places{kind, kinds, (size - kind + kinds - 1) / kinds, shape.transposed ? 1 : shape.stride[2], 0,
                           0,    {}};
    places.whole_end = places.count;
    for (int64_t t = 0; t < shape.window[2]; ++t) {
      int64_t offset = t * shape.dilation[2] - shape.padding[2];
      if (shape.transposed) {
        if ((kind - offset) % kinds)
          continue;
        offset = (kind - offset) / kinds;
      }
      places.taps.push_back({t, offset});
      const auto [begin, end] = inside(offset, places.input_step, shape.input.sizes[2], places.count);
      places.whole_begin = std::max(places.whole_begin, begin);
      places.whole_end = std::min(places.whole_end, end);
    }
    places.whole_begin = std::min(places.whole_begin, places.count);
    all.push_back(std::move(places));
  }
  return all;
}

}  // namespace

bool depthwiseAvailable() { return depthwiseLevel(); }

DepthwiseStep::DepthwiseStep(Sequence& sequence, DepthwiseShape shape, const DepthwiseWeight& weight, bool has_bias,
                             bool packed)
    : shape_(std::move(shape)), weight_(weight), has_bias_(has_bias), packed_(packed), threads_(maxThreads()),
      places_(placesOf(shape_)), rows_bytes_(size_t(shape_.window[0] * shape_.window[1]) * sizeof(DepthwiseRow)),
      rows_at_(sequence.reserve(rows_bytes_ * size_t(threads_))) {}

DepthwiseStep::~DepthwiseStep() = default;

size_t DepthwiseStep::packedBytes() const {
  return size_t(elementsOf(shape_) * paddedChannels(shape_)) * sizeof(float);
}

void DepthwiseStep::pack(const void* weight, void* packed) const {
  const std::byte* from = static_cast<const std::byte*>(weight) + weight_.origin;
  auto at = [&](int64_t element) {
    return weight_.narrow ? floatOfBf16(reinterpret_cast<const uint16_t*>(from)[element])
                          : reinterpret_cast<const float*>(from)[element];
  };
  auto* to = static_cast<float*>(packed);
  const int64_t padded = paddedChannels(shape_);
  for (int64_t z = 0; z < shape_.window[0]; ++z)
    for (int64_t y = 0; y < shape_.window[1]; ++y)
      for (int64_t x = 0; x < shape_.window[2]; ++x, to += padded) {
        const int64_t element = z * weight_.strides[0] + y * weight_.strides[1] + x * weight_.strides[2];
        for (int64_t c = 0; c < padded; ++c)
          to[c] = c < shape_.channels ? at(element + c * weight_.channel) : 0;
      }
}

void DepthwiseStep::run(std::span<void* const> addresses, std::byte* scratch) const {
  if (!packed_)
    pack(addresses[slotB], addresses[slotWeights]);
  const DepthwiseLevel& level = *depthwiseLevel();
  const DepthwiseVolume &input = shape_.input, &out = shape_.out;
  const auto* from = static_cast<const float*>(addresses[slotA]);
  auto* to = static_cast<float*>(addresses[slotOut]);
  // A line of channels down some rows at a time: rows of the input that the next ones meet too stay in the nearest
  // cache.
  constexpr int64_t most_rows = 16;
  const int64_t lines = (shape_.channels + depthwise_channels - 1) / depthwise_channels;
  const int64_t strips = (out.sizes[1] + most_rows - 1) / most_rows;
  auto overStrips = [&](int64_t begin, int64_t end, std::byte* own) {
    auto* rows = reinterpret_cast<DepthwiseRow*>(own);
    for (int64_t number = begin; number < end; ++number) {
      const int64_t line = number % lines, strip = number / lines % strips;
      const int64_t z = number / lines / strips % out.sizes[0], image = number / lines / strips / out.sizes[0];
      const int64_t channel = line * depthwise_channels;
      for (int64_t y = strip * most_rows; y < std::min(out.sizes[1], (strip + 1) * most_rows); ++y) {
        size_t count = 0;
        for (int64_t a = 0; a < shape_.window[0]; ++a)
          for (int64_t b = 0; b < shape_.window[1]; ++b) {
            const int64_t in_z = metBy(shape_, 0, z, a), in_y = metBy(shape_, 1, y, b);
            if (in_z >= 0 && in_y >= 0)
              rows[count++] = {from + image * input.image + in_z * input.strides[0] + in_y * input.strides[1],
                               (a * shape_.window[1] + b) * shape_.window[2]};
          }
        level.row({&shape_, places_, std::span(rows, count), static_cast<const float*>(addresses[slotWeights]),
                   has_bias_ ? static_cast<const float*>(addresses[slotBias]) : nullptr,
                   to + image * out.image + z * out.strides[0] + y * out.strides[1], addresses.data(), image, z, y,
                   channel, std::min(shape_.channels, channel + depthwise_channels)});
      }
    }
  };
  overTeamWithScratch(shape_.images * out.sizes[0] * strips * lines, scratch + rows_at_, rows_bytes_, threads_,
                      overStrips);
}

DepthwiseGradientStep::DepthwiseGradientStep(Sequence& sequence, DepthwiseShape shape, const DepthwiseWeight& gradient)
    : shape_(std::move(shape)), gradient_(gradient), threads_(maxThreads()), places_(placesOf(shape_)),
      products_bytes_(size_t(shape_.images * shape_.out.sizes[0] * shape_.out.sizes[1]) * sizeof(DepthwiseProduct)),
      products_at_(sequence.reserve(products_bytes_ * size_t(threads_))) {}

DepthwiseGradientStep::~DepthwiseGradientStep() = default;

// A unit of work is a row of the window for a vector of channels: its sums stay in registers over all images, so that
// bits do not depend on how many threads there are.
void DepthwiseGradientStep::run(std::span<void* const> addresses, std::byte* scratch) const {
  const DepthwiseLevel& level = *depthwiseLevel();
  const DepthwiseVolume &input = shape_.input, &out = shape_.out;
  const DepthwisePlaces& places = places_[0];
  const auto* from = static_cast<const float*>(addresses[slotA]);
  const auto* gradient = static_cast<const float*>(addresses[slotB]);
  auto* to = static_cast<float*>(addresses[slotOut]);
  const int64_t rows = shape_.window[0] * shape_.window[1];
  auto overRows = [&](int64_t begin, int64_t end, std::byte* own) {
    auto* products = reinterpret_cast<DepthwiseProduct*>(own);
    float sums[depthwise_taps * 16];
    for (int64_t number = begin; number < end; ++number) {
      const int64_t channel = number / rows * level.lanes;
      const int64_t channels = std::min<int64_t>(level.lanes, shape_.channels - channel);
      const int64_t a = number % rows / shape_.window[1], b = number % shape_.window[1];
      size_t count = 0;
      for (int64_t image = 0; image < shape_.images; ++image)
        for (int64_t z = 0; z < out.sizes[0]; ++z)
          for (int64_t y = 0; y < out.sizes[1]; ++y) {
            const int64_t in_z = metBy(shape_, 0, z, a), in_y = metBy(shape_, 1, y, b);
            if (in_z >= 0 && in_y >= 0)
              products[count++] = {gradient + image * out.image + z * out.strides[0] + y * out.strides[1],
                                   from + image * input.image + in_z * input.strides[0] + in_y * input.strides[1]};
          }
      for (size_t first = 0; first < places.taps.size(); first += depthwise_taps) {
        const auto all = std::span(places.taps);
        const auto taps = all.subspan(first, std::min<size_t>(depthwise_taps, all.size() - first));
        level.gradient(shape_, places, taps, std::span(products, count), channel, sums);
        for (size_t t = 0; t < taps.size(); ++t)
          for (int64_t lane = 0; lane < channels; ++lane)
            to[(channel + lane) * gradient_.channel + a * gradient_.strides[0] + b * gradient_.strides[1] +
               taps[t].element * gradient_.strides[2]] = sums[t * size_t(level.lanes) + size_t(lane)];
      }
    }
  };
  overTeamWithScratch(vectorsOf(shape_) * rows, scratch + products_at_, products_bytes_, threads_, overRows);
}

}  // namespace zefuse::primitives
