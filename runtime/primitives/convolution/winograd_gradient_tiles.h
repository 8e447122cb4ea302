// The transformations and products of winograd_gradient.h, by vectors of so many lanes, as winograd_tiles.h.
#pragma once

#include "runtime/primitives/convolution/winograd_gradient.h"
#include "runtime/primitives/convolution/winograd_tiles.h"

namespace zefuse::primitives {

// Tiles whose products are summed in registers. So few that they stay in the nearest cache.
constexpr int64_t winograd_gradient_tiles = 64;

struct WinogradGradientCall {
  WinogradCall forward;  // the shape, the input, and how many tiles
  const float* gradient;
  float* out;
};

// What is summed in registers: so many tiles of each of some blocks, one behind the other.
struct WinogradRun {
  int64_t tiles, blocks;
  int64_t input, gradient;  // elements from a block to the next
};

// Layouts, in vectors of `lanes` channels. Panels of channels are apart, each with 16 positions and a gap behind each.
struct WinogradGradientLevel {
  int lanes;
  int input_vectors, gradient_vectors;  // of a panel
  // Tiles `first` and so on of a slice, `count` of them, to places `at` and so on of one block.
  void (*transformInputs)(const WinogradGradientCall& call, int64_t slice, int64_t first, int64_t count, int64_t at,
                          float* inputs);
  void (*transformGradients)(const WinogradGradientCall& call, int64_t slice, int64_t first, int64_t count, int64_t at,
                             float* gradients);
  // Adds the products of a run at one position to the sums: `channels` of one panel of the gradient by one panel of the
  // inputs, of which `half`: the first vector alone. `begins`: there are no sums yet.
  void (*multiply)(const WinogradRun& run, const float* inputs, const float* gradients, int64_t channels, bool half,
                   bool begins, float* sums);
  // One slice of the windows of one channel of the result and one panel of the input's, of sums that are `position`
  // apart.
  void (*finish)(const WinogradGradientCall& call, const float* sums, int64_t position, int64_t slice,
                 int64_t input_panel, int64_t out_channel);
};

// nullptr without AVX2.
const WinogradGradientLevel* winogradGradientLevel();

// The slices of the result that a slice of the window makes of a slice of the input, not of padding: first and count.
inline WinogradMet winogradMeets(const WinogradShape& shape, int64_t of_window) {
  const int64_t first = shape.depth.padding - of_window * shape.depth.dilation;
  const int64_t begin = std::max<int64_t>(0, first), end = std::min(shape.out.depth, shape.input.depth + first);
  return {begin, std::max<int64_t>(0, end - begin)};
}

// In elements.
constexpr int64_t winogradPanelPosition(int lanes, int vectors) {
  return (winograd_gradient_tiles * vectors + 1) * lanes;
}
inline int64_t winogradSumsPosition(const WinogradGradientLevel& level, int64_t out_channels) {
  return (out_channels * level.input_vectors + 1) * level.lanes;
}

namespace winograd {

template <int lanes, int vectors> constexpr int64_t panel_position = winogradPanelPosition(lanes, vectors);

// A dy A^T of one tile for one vector of channels.
template <int lanes, int64_t position>
[[gnu::always_inline]] inline void transformGradient(const Vector<lanes> (&y)[2][2], float* to) {
  using V = Vector<lanes>;
  V e[4][2];
  for (int j = 0; j < 2; ++j) {
    e[0][j] = y[0][j];
    e[1][j] = y[0][j] + y[1][j];
    e[2][j] = y[0][j] - y[1][j];
    e[3][j] = -y[1][j];
  }
  for (int i = 0; i < 4; ++i) {
    float* row = to + i * 4 * position;
    *reinterpret_cast<V*>(row) = e[i][0];
    *reinterpret_cast<V*>(row + position) = e[i][0] + e[i][1];
    *reinterpret_cast<V*>(row + 2 * position) = e[i][0] - e[i][1];
    *reinterpret_cast<V*>(row + 3 * position) = -e[i][1];
  }
}

template <int lanes, int input_vectors>
[[gnu::always_inline]] inline void transformInputs(const WinogradGradientCall& call, int64_t slice, int64_t first,
                                                   int64_t count, int64_t at, float* inputs) {
  constexpr int64_t of_input = panel_position<lanes, input_vectors>;
  Tiles tiles(call.forward, first, slice);
  for (int64_t end = at + count; at < end; ++at, tiles.advance())
    transformImage<lanes, int(of_input), 2>(call.forward, tiles.place(),
                                            [&](int64_t number) __attribute__((always_inline)) {
                                              return inputs + number / input_vectors * winograd_positions * of_input +
                                                     (at * input_vectors + number % input_vectors) * lanes;
                                            });
}

template <int lanes, int gradient_vectors>
[[gnu::always_inline]] inline void transformGradients(const WinogradGradientCall& call, int64_t slice, int64_t first,
                                                      int64_t count, int64_t at, float* gradients) {
  constexpr int64_t of_gradient = panel_position<lanes, gradient_vectors>;
  const WinogradShape& shape = *call.forward.shape;
  const ChannelsLast& out = shape.out;
  Tiles tiles(call.forward, first, slice);
  for (int64_t end = at + count; at < end; ++at, tiles.advance()) {
    const Place tile = tiles.place();
    const bool high = tile.y + shape.dilation[0] < out.height, wide = tile.x + shape.dilation[1] < out.width;
    const bool inside = tile.y < out.height && tile.x < out.width;
    const float* from = call.gradient + offsetOf(out, tile);
    int64_t number = 0;
    for (int64_t left = out.channels; left > 0; left -= lanes, ++number, from += lanes) {
      Vector<lanes> y[2][2];
      for (int i = 0; i < 2; ++i)
        for (int j = 0; j < 2; ++j)
          load<lanes>(y[i][j], from + i * shape.dilation[0] * out.row + j * shape.dilation[1] * out.place,
                      inside && (!i || high) && (!j || wide) ? left : 0);
      transformGradient<lanes, of_gradient>(y, gradients +
                                                   number / gradient_vectors * winograd_positions * of_gradient +
                                                   (at * gradient_vectors + number % gradient_vectors) * lanes);
    }
  }
}

// `height` channels of the gradient by `width` vectors of the input's, in registers.
template <int lanes, int input_vectors, int gradient_vectors, int height, int width>
[[gnu::always_inline]] inline void sumTiles(const WinogradRun& run, const float* gradients, const float* inputs,
                                            bool begins, float* sums) {
  using V = Vector<lanes>;
  constexpr int row = input_vectors * lanes;
  V sum[height][width];
  for (int r = 0; r < height; ++r)
    for (int v = 0; v < width; ++v)
      sum[r][v] = V{};
  for (int64_t block = 0; block < run.blocks; ++block, inputs += run.input, gradients += run.gradient)
#pragma clang loop unroll_count(4)
    for (int64_t tile = 0; tile < run.tiles; ++tile) {
      V b[width];
      for (int v = 0; v < width; ++v)
        b[v] = *reinterpret_cast<const V*>(inputs + tile * row + v * lanes);
#pragma clang loop unroll(full)
      for (int r = 0; r < height; ++r) {
        const float one = gradients[tile * gradient_vectors * lanes + r];
        V a;
        for (int lane = 0; lane < lanes; ++lane)
          a[lane] = one;
        for (int v = 0; v < width; ++v)
          sum[r][v] += a * b[v];
      }
    }
  // A run's sums are added to those before it, not one by one: errors grow with the runs, not with the tiles.
  for (int r = 0; r < height; ++r)
    for (int v = 0; v < width; ++v) {
      auto* at = reinterpret_cast<V*>(sums + r * row + v * lanes);
      if (!begins)
        sum[r][v] += *at;
      *at = sum[r][v];
    }
}

template <int lanes, int input_vectors, int gradient_vectors, int height, int width>
[[gnu::always_inline]] inline void sumSome(int64_t rows, const WinogradRun& run, const float* gradients,
                                           const float* inputs, bool begins, float* sums) {
  if (rows == height)
    sumTiles<lanes, input_vectors, gradient_vectors, height, width>(run, gradients, inputs, begins, sums);
  else if constexpr (height > 1)
    sumSome<lanes, input_vectors, gradient_vectors, height - 1, width>(rows, run, gradients, inputs, begins, sums);
}

template <int lanes, int rows, int input_vectors, int gradient_vectors>
[[gnu::always_inline]] inline void sumPanels(const WinogradRun& run, const float* inputs, const float* gradients,
                                             int64_t channels, bool half, bool begins, float* sums) {
  const int64_t groups = (channels + rows - 1) / rows, group = (channels + groups - 1) / groups;
  for (int64_t at = 0; at < channels; at += group) {
    const int64_t some = std::min(group, channels - at);
    float* to = sums + at * input_vectors * lanes;
    if (half)
      sumSome<lanes, input_vectors, gradient_vectors, rows, input_vectors - 1>(some, run, gradients + at, inputs,
                                                                               begins, to);
    else
      sumSome<lanes, input_vectors, gradient_vectors, rows, input_vectors>(some, run, gradients + at, inputs, begins,
                                                                           to);
  }
}

// G^T m G for one vector of channels.
template <int lanes>
[[gnu::always_inline]] inline void windowsOf(const float* sums, int64_t position, Vector<lanes> (&w)[9]) {
  using V = Vector<lanes>;
  V t[3][4];
  for (int j = 0; j < 4; ++j) {
    V m[4];
    for (int i = 0; i < 4; ++i)
      m[i] = *reinterpret_cast<const V*>(sums + (i * 4 + j) * position);
    const V both = (m[1] + m[2]) * 0.5f;
    t[0][j] = m[0] + both;
    t[1][j] = (m[1] - m[2]) * 0.5f;
    t[2][j] = both + m[3];
  }
  for (int i = 0; i < 3; ++i) {
    const V both = (t[i][1] + t[i][2]) * 0.5f;
    w[i * 3] = t[i][0] + both;
    w[i * 3 + 1] = (t[i][1] - t[i][2]) * 0.5f;
    w[i * 3 + 2] = both + t[i][3];
  }
}

// The same by the definition. What lies beside the image takes no part.
template <int lanes>
[[gnu::always_inline]] inline void sumPlainly(const WinogradGradientCall& call, int64_t slice, int64_t channel,
                                              int64_t out_channel, Vector<lanes> (&w)[9]) {
  const WinogradShape& shape = *call.forward.shape;
  const ChannelsLast &input = shape.input, &out = shape.out;
  for (auto& each : w)
    each = Vector<lanes>{};
  const auto [first, slices] = winogradMeets(shape, slice);
  for (int64_t number = 0; number < shape.images * slices; ++number)
    for (int64_t y = 0; y < out.height; ++y)
      for (int64_t x = 0; x < out.width; ++x) {
        const int64_t image = number / slices, from = first + number % slices;
        const int64_t met = from - shape.depth.padding + slice * shape.depth.dilation;
        const float one = call.gradient[offsetOf(out, {image, from, y, x}) + out_channel];
        for (int64_t i = 0; i < 9; ++i) {
          const int64_t row = y + i / 3 * shape.dilation[0] - shape.padding[0];
          const int64_t place = x + i % 3 * shape.dilation[1] - shape.padding[1];
          if (row < 0 || row >= input.height || place < 0 || place >= input.width)
            continue;
          Vector<lanes> value;
          load<lanes>(value, call.forward.input + offsetOf(input, {image, met, row, place}) + channel,
                      input.channels - channel);
          w[i] += one * value;
        }
      }
}

template <int lanes, int input_vectors>
[[gnu::always_inline]] inline void finishWindows(const WinogradGradientCall& call, const float* sums, int64_t position,
                                                 int64_t slice, int64_t input_panel, int64_t out_channel) {
  const WinogradShape& shape = *call.forward.shape;
  const int64_t of_channel = shape.depth.window * 9;
  for (int v = 0; v < input_vectors; ++v) {
    const int64_t channel = (input_panel * input_vectors + v) * lanes;
    const int64_t count = std::min<int64_t>(lanes, shape.input.channels - channel);
    if (count <= 0)
      return;
    Vector<lanes> w[9];
    windowsOf<lanes>(sums + v * lanes, position, w);
    Vector<lanes> none = {};
    for (const auto& each : w)
      none += each * 0.f;
    if (hasNan<lanes>(none, count)) [[unlikely]]
      sumPlainly<lanes>(call, slice, channel, out_channel, w);
    alignas(64) float windows[9][lanes];
    for (int i = 0; i < 9; ++i)
      *reinterpret_cast<Vector<lanes>*>(windows[i]) = w[i];
    float* to = call.out + (out_channel * shape.input.channels + channel) * of_channel + slice * 9;
    // One by one: a store that scatters takes longer.
#pragma clang loop vectorize(disable)
    for (int64_t lane = 0; lane < count; ++lane, to += of_channel)
#pragma clang loop vectorize(disable) unroll(full)
      for (int i = 0; i < 9; ++i)
        to[i] = windows[i][lane];
  }
}

}  // namespace winograd

}  // namespace zefuse::primitives
