// The packing and the products of panel_gradient.h, by vectors of so many lanes. Everything is inlined into a function
// that is compiled for a level of processors (panel_gradient_levels.cpp).
#pragma once

#include <algorithm>
#include <span>

#include "runtime/primitives/simd/vector_memory.h"

namespace zefuse::primitives {

// Places whose products are summed together: `places` of the gradient one behind the other, and those of the input
// that they meet. Numbers of places, in a packed panel.
struct GradientRun {
  int64_t input, gradient, places;
};

struct PanelGradientLevel {
  int lanes;
  int input_vectors, gradient_vectors;  // of a panel's place
  int64_t places;                       // that are summed in registers: they stay in the nearest cache
  // Places of a row, `stride` numbers apart, to the same place of each panel, `panel` numbers apart.
  void (*packInputs)(const float* from, int64_t stride, int64_t places, int64_t channels, float* to, int64_t panel);
  void (*packGradients)(const float* from, int64_t stride, int64_t places, int64_t channels, float* to, int64_t panel);
  // Adds the products of the runs to the sums [channels][input_vectors]: of `channels` of a panel of the gradient by a
  // panel of the input, of which `half`: the first vector alone. `step`: places of the input from one of the gradient's
  // to the next. `begins`: there are no sums yet.
  void (*sum)(std::span<const GradientRun> runs, const float* inputs, int64_t step, const float* gradients,
              int64_t channels, bool half, bool begins, float* sums);

  int64_t inputChannels() const { return int64_t(lanes) * input_vectors; }
  int64_t gradientChannels() const { return int64_t(lanes) * gradient_vectors; }
};

// nullptr without AVX2.
const PanelGradientLevel* panelGradientLevel();

namespace panel_gradient {

template <int lanes, int vectors>
[[gnu::always_inline]] inline void packPanels(const float* from, int64_t stride, int64_t places, int64_t channels,
                                              float* to, int64_t panel) {
  for (int64_t channel = 0; channel < channels; channel += vectors * lanes, to += panel)
    for (int64_t place = 0; place < places; ++place) {
      const float* line = from + place * stride + channel;
#pragma clang loop unroll(full)
      for (int v = 0; v < vectors; ++v) {
        const int64_t left = channels - channel - v * lanes;
        if (left <= 0)
          break;
        typename VectorOf<lanes>::Float numbers;
        load<lanes>(numbers, line + v * lanes, left);
        *reinterpret_cast<typename VectorOf<lanes>::Float*>(to + (place * vectors + v) * lanes) = numbers;
      }
    }
}

// `height` channels of the gradient by `width` vectors of the input's, in registers.
template <int lanes, int input_vectors, int gradient_vectors, int height, int width>
[[gnu::always_inline]] inline void sumRuns(std::span<const GradientRun> runs, const float* inputs, int64_t step,
                                           const float* gradients, bool begins, float* sums) {
  using V = typename VectorOf<lanes>::Float;
  constexpr int64_t row = input_vectors * lanes, gradient_row = gradient_vectors * lanes;
  V sum[height][width];
#pragma clang loop unroll(full)
  for (int r = 0; r < height; ++r)
#pragma clang loop unroll(full)
    for (int v = 0; v < width; ++v)
      sum[r][v] = V{};
  for (const GradientRun& run : runs) {
    const float* x = inputs + run.input * row;
    const float* y = gradients + run.gradient * gradient_row;
#pragma clang loop unroll_count(4)
    for (int64_t place = 0; place < run.places; ++place, x += step * row, y += gradient_row) {
      V b[width];
#pragma clang loop unroll(full)
      for (int v = 0; v < width; ++v)
        b[v] = *reinterpret_cast<const V*>(x + v * lanes);
#pragma clang loop unroll(full)
      for (int r = 0; r < height; ++r)
#pragma clang loop unroll(full)
        for (int v = 0; v < width; ++v)
          sum[r][v] += b[v] * y[r];
    }
  }
  // Added when complete: errors grow with the blocks of places, not with the places.
#pragma clang loop unroll(full)
  for (int r = 0; r < height; ++r)
#pragma clang loop unroll(full)
    for (int v = 0; v < width; ++v) {
      auto* at = reinterpret_cast<V*>(sums + r * row + v * lanes);
      if (!begins)
        sum[r][v] += *at;
      *at = sum[r][v];
    }
}

template <int lanes, int input_vectors, int gradient_vectors, int height, int width>
[[gnu::always_inline]] inline void sumSome(int64_t rows, std::span<const GradientRun> runs, const float* inputs,
                                           int64_t step, const float* gradients, bool begins, float* sums) {
  if (rows == height)
    sumRuns<lanes, input_vectors, gradient_vectors, height, width>(runs, inputs, step, gradients, begins, sums);
  else if constexpr (height > 1)
    sumSome<lanes, input_vectors, gradient_vectors, height - 1, width>(rows, runs, inputs, step, gradients, begins,
                                                                       sums);
}

// In groups of rows as high as each other.
template <int lanes, int rows, int input_vectors, int gradient_vectors>
[[gnu::always_inline]] inline void sumPanels(std::span<const GradientRun> runs, const float* inputs, int64_t step,
                                             const float* gradients, int64_t channels, bool half, bool begins,
                                             float* sums) {
  const int64_t groups = (channels + rows - 1) / rows, group = (channels + groups - 1) / groups;
  for (int64_t at = 0; at < channels; at += group) {
    const int64_t some = std::min(group, channels - at);
    float* to = sums + at * input_vectors * lanes;
    if (half)
      sumSome<lanes, input_vectors, gradient_vectors, rows, input_vectors - 1>(some, runs, inputs, step, gradients + at,
                                                                               begins, to);
    else
      sumSome<lanes, input_vectors, gradient_vectors, rows, input_vectors>(some, runs, inputs, step, gradients + at,
                                                                           begins, to);
  }
}

}  // namespace panel_gradient

}  // namespace zefuse::primitives
