// The sums of depthwise.h along a row, by vectors of so many lanes. Everything is inlined into a function that is
// compiled for a level of processors (depthwise_levels.cpp).
#pragma once

#include <algorithm>
#include <span>

#include "runtime/primitives/convolution/depthwise.h"
#include "runtime/primitives/simd/vector_post_ops.h"

namespace zefuse::primitives {

// An element of the window in its row, and the place of the input that it meets at the row's first place.
struct DepthwiseTap {
  int64_t element, offset;
};

// Results of a row that are `step` apart from `first` on, and so meet the same elements of the window: all of them, or
// as many kinds as a transposed convolution has steps.
struct DepthwisePlaces {
  int64_t first, step, count;
  int64_t input_step;              // places of the input from one to the next
  int64_t whole_begin, whole_end;  // of which every element meets the input
  std::vector<DepthwiseTap> taps;
};

// A row of the window over a row of the input.
struct DepthwiseRow {
  const float* input;
  int64_t element;  // the window's first
};

// One row of results.
struct DepthwiseCall {
  const DepthwiseShape* shape;
  std::span<const DepthwisePlaces> places;
  std::span<const DepthwiseRow> rows;
  const float* weight;  // packed: [element][channels in whole vectors]
  const float* bias;    // or nullptr
  float* out;
  const void* const* addresses;  // by slot, of the post-ops' operands
  int64_t image, z, y;           // the row's place
  int64_t begin, end;            // channels
};

constexpr int64_t depthwise_channels = 16;  // of one call, at most: a line of the caches

// Rows of the result's gradient and of the input that a row of the window multiplies.
struct DepthwiseProduct {
  const float* gradient;
  const float* input;
};

struct DepthwiseLevel {
  int lanes;
  void (*row)(const DepthwiseCall& call);
  // Adds up the gradient of some elements of a row of the window, for a vector of channels: [tap][lanes].
  void (*gradient)(const DepthwiseShape& shape, const DepthwisePlaces& places, std::span<const DepthwiseTap> taps,
                   std::span<const DepthwiseProduct> products, int64_t channel, float* sums);
};

constexpr int64_t depthwise_taps = 4;  // of one call of `gradient`, at most

// nullptr without AVX2.
const DepthwiseLevel* depthwiseLevel();

namespace depthwise {

template <int lanes> using Vector = typename VectorOf<lanes>::Float;

// Post-ops, and to memory.
template <int lanes>
[[gnu::always_inline]] inline void finish(const DepthwiseCall& call, Vector<lanes>& sum, int64_t x, int64_t channel,
                                          int64_t count) {
  const DepthwiseShape& shape = *call.shape;
  for (const DepthwisePostOp& op : shape.post_ops) {
    if (op.slot < 0) {
      activate<lanes>(op.kind, sum);
      continue;
    }
    const float* from = static_cast<const float*>(call.addresses[op.slot]) + call.image * op.image +
                        call.z * op.strides[0] + call.y * op.strides[1] + x * op.strides[2] + channel * op.channel;
    Vector<lanes> operand = {};
    if (op.channel)
      load<lanes>(operand, from, count);
    else
      operand = operand + *from;
    sum = op.kind == plan::PostOpKind::add ? sum + operand : sum * operand;
  }
  store<lanes>(call.out + x * shape.out.strides[2] + channel, sum, count);
}

// `height` places from number `at` on, all of whose elements meet the input. `width`: elements in a row of the window;
// 0 for any.
template <int lanes, int height, int width, bool whole>
[[gnu::always_inline]] inline void sumWhole(const DepthwiseCall& call, const DepthwisePlaces& places, int64_t at,
                                            int64_t channel, int64_t padded_channels) {
  const int64_t count = whole ? lanes : call.shape->channels - channel;
  const int64_t place = call.shape->input.strides[2], step = places.input_step * place;
  Vector<lanes> sums[height];
  Vector<lanes> bias = {};
  if (call.bias)
    load<lanes>(bias, call.bias + channel, count);
  for (Vector<lanes>& sum : sums)
    sum = bias;
  const DepthwiseTap* taps = places.taps.data();
  for (const DepthwiseRow& row : call.rows) {
    const float* input = row.input + at * step + channel;
    const float* weights = call.weight + row.element * padded_channels + channel;
    auto add = [&](const DepthwiseTap& tap) __attribute__((always_inline)) {
      const float* from = input + tap.offset * place;
      const auto weight = *reinterpret_cast<const Vector<lanes>*>(weights + tap.element * padded_channels);
#pragma clang loop unroll(full)
      for (int i = 0; i < height; ++i) {
        Vector<lanes> x;
        load<lanes>(x, from + i * step, count);
        sums[i] += x * weight;
      }
    };
    if constexpr (width > 0) {
#pragma clang loop unroll(full)
      for (int t = 0; t < width; ++t)
        add(taps[t]);
    } else {
      for (int64_t t = 0; t < int64_t(places.taps.size()); ++t)
        add(taps[t]);
    }
  }
#pragma clang loop unroll(full)
  for (int i = 0; i < height; ++i)
    finish<lanes>(call, sums[i], places.first + (at + i) * places.step, channel, count);
}

// One place beside which the input ends, in several sums: one alone would wait for itself at each product.
template <int lanes>
[[gnu::always_inline]] inline void sumAtEdge(const DepthwiseCall& call, const DepthwisePlaces& places, int64_t at,
                                             int64_t channel, int64_t padded_channels) {
  constexpr size_t parts = 4;
  const DepthwiseShape& shape = *call.shape;
  const int64_t place = shape.input.strides[2], count = shape.channels - channel;
  Vector<lanes> sums[parts] = {};
  if (call.bias)
    load<lanes>(sums[0], call.bias + channel, count);
  for (const DepthwiseTap& tap : places.taps) {
    const int64_t x = at * places.input_step + tap.offset;
    if (x < 0 || x >= shape.input.sizes[2])
      continue;
    const float* weights = call.weight + tap.element * padded_channels + channel;
    auto add = [&](const DepthwiseRow& row, Vector<lanes>& sum) __attribute__((always_inline)) {
      Vector<lanes> input;
      load<lanes>(input, row.input + x * place + channel, count);
      sum += input * *reinterpret_cast<const Vector<lanes>*>(weights + row.element * padded_channels);
    };
    const DepthwiseRow* row = call.rows.data();
    size_t left = call.rows.size();
    for (; left >= parts; left -= parts, row += parts)
#pragma clang loop unroll(full)
      for (size_t part = 0; part < parts; ++part)
        add(row[part], sums[part]);
    for (; left > 0; --left, ++row)
      add(*row, sums[0]);
  }
  Vector<lanes> sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  finish<lanes>(call, sum, places.first + at * places.step, channel, count);
}

// All places between whose elements meet the input, in blocks of at most `height`, as long as each other: the last one
// computes few of the one before it again.
template <int lanes, int height, int width, bool whole>
[[gnu::always_inline]] inline void sumAllWhole(const DepthwiseCall& call, const DepthwisePlaces& places,
                                               int64_t channel, int64_t padded_channels, int64_t block) {
  if constexpr (height > 0) {
    if (block < height)
      return sumAllWhole<lanes, height - 1, width, whole>(call, places, channel, padded_channels, block);
    for (int64_t at = places.whole_begin; at < places.whole_end; at += height)
      sumWhole<lanes, height, width, whole>(call, places, std::min(at, places.whole_end - height), channel,
                                            padded_channels);
  }
}

template <int lanes> [[gnu::always_inline]] inline void sumRow(const DepthwiseCall& call) {
  constexpr int height = 8;
  const int64_t channels = call.shape->channels, padded = (channels + lanes - 1) / lanes * lanes;
  for (int64_t channel = call.begin; channel < call.end; channel += lanes)
    for (const DepthwisePlaces& places : call.places) {
      const bool any_whole = places.whole_begin < places.whole_end;
      const int64_t begin = any_whole ? places.whole_begin : places.count;
      const int64_t inside = any_whole ? places.whole_end - begin : 0, blocks = (inside + height - 1) / height;
      const int64_t block = blocks ? (inside + blocks - 1) / blocks : 0;
      for (int64_t at = 0; at < begin; ++at)
        sumAtEdge<lanes>(call, places, at, channel, padded);
      if (channels - channel < lanes)
        sumAllWhole<lanes, height, 0, false>(call, places, channel, padded, block);
      else if (places.taps.size() == 3)
        sumAllWhole<lanes, height, 3, true>(call, places, channel, padded, block);
      else
        sumAllWhole<lanes, height, 0, true>(call, places, channel, padded, block);
      for (int64_t at = any_whole ? places.whole_end : begin; at < places.count; ++at)
        sumAtEdge<lanes>(call, places, at, channel, padded);
    }
}

// Two places side by side, so that sums do not wait for each other.
template <int lanes, int width, bool whole>
[[gnu::always_inline]] inline void sumProducts(const DepthwiseShape& shape, const DepthwisePlaces& places,
                                               std::span<const DepthwiseTap> taps,
                                               std::span<const DepthwiseProduct> products, int64_t channel, float* to) {
  const int64_t count = whole ? lanes : shape.channels - channel;
  const int64_t place = shape.input.strides[2], step = places.input_step * place, out = shape.out.strides[2];
  Vector<lanes> sums[2][width] = {};
  auto add = [&](Vector<lanes>& sum, const float* gradient, const float* input) __attribute__((always_inline)) {
    Vector<lanes> g, x;
    load<lanes>(g, gradient, count);
    load<lanes>(x, input, count);
    sum += g * x;
  };
  for (const DepthwiseProduct& product : products) {
    const float *gradient = product.gradient + channel, *input = product.input + channel;
    auto atEdge = [&](int64_t begin, int64_t end) __attribute__((always_inline)) {
      for (int64_t at = begin; at < end; ++at)
        for (int t = 0; t < width; ++t) {
          const int64_t x = at * places.input_step + taps[t].offset;
          if (x >= 0 && x < shape.input.sizes[2])
            add(sums[0][t], gradient + at * out, input + x * place);
        }
    };
    const int64_t end = std::max(places.whole_begin, places.whole_end);
    atEdge(0, places.whole_begin);
    int64_t at = places.whole_begin;
    for (; at + 2 <= end; at += 2)
#pragma clang loop unroll(full)
      for (int i = 0; i < 2; ++i)
#pragma clang loop unroll(full)
        for (int t = 0; t < width; ++t)
          add(sums[i][t], gradient + (at + i) * out, input + (at + i) * step + taps[t].offset * place);
    atEdge(at, places.count);
  }
  for (int t = 0; t < width; ++t)
    *reinterpret_cast<Vector<lanes>*>(to + t * lanes) = sums[0][t] + sums[1][t];
}

template <int lanes, int width>
[[gnu::always_inline]] inline void
sumSomeProducts(const DepthwiseShape& shape, const DepthwisePlaces& places, std::span<const DepthwiseTap> taps,
                std::span<const DepthwiseProduct> products, int64_t channel, float* to) {
  if (int64_t(taps.size()) < width) {
    if constexpr (width > 1)
      sumSomeProducts<lanes, width - 1>(shape, places, taps, products, channel, to);
  } else if (shape.channels - channel >= lanes) {
    sumProducts<lanes, width, true>(shape, places, taps, products, channel, to);
  } else {
    sumProducts<lanes, width, false>(shape, places, taps, products, channel, to);
  }
}

}  // namespace depthwise

}  // namespace zefuse::primitives
