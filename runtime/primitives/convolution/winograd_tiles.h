// The transformations and products of winograd.h, by vectors of so many lanes. Everything is inlined into a function
// that is compiled for a level of processors (winograd_levels.cpp).
#pragma once

#include <algorithm>

#include "runtime/primitives/convolution/winograd.h"
#include "runtime/primitives/simd/vector_post_ops.h"

namespace zefuse::primitives {

constexpr int64_t winograd_positions = 16;
// Of a tile whose results are one row, of windows of 1x3, or two, of windows of 3x3.
constexpr int64_t winogradPositions(int64_t high) { return high == 1 ? 4 : winograd_positions; }
// Positions of an input, and a gap: what lies a multiple of 4 KiB apart would share lines of the nearest cache.
constexpr int64_t winogradSpaced(int64_t high) { return winogradPositions(high) + 1; }

// What decides whether it pays, in products of one thread: those that take as long as transforming one channel of a
// tile, one number of each window of a weight or of its gradient, and as oneDNN's copy of it.
struct WinogradCosts {
  static constexpr double transformation = 80, packing = 380, copying = 200;
  static constexpr double flat_transformation = 45;  // of a tile of one row
  static constexpr double margin = 1.1;
  // Fewer channels are multiplied in less time than they are transformed.
  static constexpr int64_t fewest_channels = 16;
};

// One call, and where everything is.
struct WinogradCall {
  const WinogradShape* shape;
  const float* input;
  const float* weight;  // packed
  const float* bias;    // or nullptr
  float* out;
  const void* const* addresses;  // by slot, of the post-ops' operands
  int64_t tiles_high, tiles_wide;
  bool plain;             // the packed weight holds the window's numbers, not those made of them
  int64_t first_channel;  // of the result, for the post-ops' operands
};

// Some tiles one behind the other, in groups of so many, the rows of a product in registers; of each of some slices of
// the result.
struct WinogradBlock {
  int64_t first, count, group;
  int64_t first_slice, slices;  // of the result
  int64_t first_input;          // the first of the input's slices that `inputs` has room for
  float* inputs;                // [slice][group][chunk of `lanes` channels][16 and 1][rows][lanes]; group <= rows
  float* sums;                  // [slice][group][16][rows][vectors * lanes]

  int64_t groups() const { return (count + group - 1) / group; }
};

// Along one dimension, the window's elements that meet an input of `size`, for the result at `place`: first and count.
struct WinogradMet {
  int64_t first, count;
};
inline WinogradMet winogradMet(const WinogradDepth& along, int64_t size, int64_t place) {
  const auto [window, padding, dilation] = along;
  const int64_t before = padding - place, last = size - 1 + before;
  const int64_t first = before > 0 ? (before + dilation - 1) / dilation : 0;
  return {first, std::max<int64_t>(0, std::min(window, last < 0 ? 0 : last / dilation + 1) - first)};
}
inline WinogradMet winogradSlices(const WinogradShape& shape, int64_t slice) {
  return winogradMet(shape.depth, shape.input.depth, slice);
}

struct WinogradLevel {
  int lanes, rows, vectors;  // of a product in registers
  // Tiles `begin` to `end` of the block's, those of a slice behind those of the slice before.
  void (*transformInputs)(const WinogradCall& call, const WinogradBlock& block, int64_t begin, int64_t end);
  void (*multiply)(const WinogradCall& call, const WinogradBlock& block, int64_t panel);
  // Whether all numbers are far from infinity: if not, only the plain weight is of use.
  bool (*packPanel)(const WinogradShape& shape, const WinogradWeight& weight, const float* from, bool plain,
                    int64_t panel, float* packed);
};

// nullptr without AVX2. `flat`: for windows of one row.
const WinogradLevel* winogradLevel(bool flat = false);

namespace winograd {

using primitives::load;
using primitives::store;
template <int lanes> using Vector = typename VectorOf<lanes>::Float;

// A place of the result: a tile's first.
struct Place {
  int64_t image, slice, y, x;
};

[[gnu::always_inline]] inline int64_t offsetOf(const ChannelsLast& images, const Place& place) {
  return place.image * images.image + place.slice * images.slice + place.y * images.row + place.x * images.place;
}

// The tiles of a slice in order. With a dilation, the results at every so many places are convolved by themselves.
class Tiles {
public:
  [[gnu::always_inline]] Tiles(const WinogradCall& call, int64_t number, int64_t slice = 0)
      : call_(call), x_(number % call.tiles_wide), y_(number / call.tiles_wide % call.tiles_high),
        image_(number / call.tiles_wide / call.tiles_high), slice_(slice) {}

  [[gnu::always_inline]] Place place() const {
    const WinogradShape& shape = *call_.shape;
    return {image_, slice_, shape.flat ? y_ : first(y_, shape.dilation[0]), first(x_, shape.dilation[1])};
  }
  [[gnu::always_inline]] void advance() {
    if (++x_ < call_.tiles_wide)
      return;
    x_ = 0;
    if (++y_ < call_.tiles_high)
      return;
    y_ = 0;
    ++image_;
  }

private:
  [[gnu::always_inline]] static int64_t first(int64_t tile, int64_t dilation) {
    return dilation == 1 ? 2 * tile : tile / dilation * 2 * dilation + tile % dilation;
  }

  const WinogradCall& call_;
  int64_t x_, y_, image_, slice_;
};

// B^T d B, or d B of one row, for one vector of channels, to places that are `position` apart. d by read(x, row,
// place).
template <int lanes, int position, int high, typename Read>
[[gnu::always_inline]] inline void transformChannels(float* to, Read&& read) {
  using V = Vector<lanes>;
  V d[high == 1 ? 1 : 4][4];
  for (int j = 0; j < 4; ++j) {
    if constexpr (high == 1) {
      read(d[0][j], 0, j);
    } else {
      V e[4];
      for (int i = 0; i < 4; ++i)
        read(e[i], i, j);
      d[0][j] = e[0] - e[2];
      d[1][j] = e[1] + e[2];
      d[2][j] = e[2] - e[1];
      d[3][j] = e[1] - e[3];
    }
  }
  for (int i = 0; i < (high == 1 ? 1 : 4); ++i) {
    float* row = to + i * 4 * position;
    *reinterpret_cast<V*>(row) = d[i][0] - d[i][2];
    *reinterpret_cast<V*>(row + position) = d[i][1] + d[i][2];
    *reinterpret_cast<V*>(row + 2 * position) = d[i][2] - d[i][1];
    *reinterpret_cast<V*>(row + 3 * position) = d[i][1] - d[i][3];
  }
}

// A tile of a slice of the input for all vectors of channels, each to at(number), its places `position` apart. Zeros
// beside the image.
template <int lanes, int position, int high, typename At>
[[gnu::always_inline]] inline void transformImage(const WinogradCall& call, const Place& tile, At&& at) {
  const WinogradShape& shape = *call.shape;
  const ChannelsLast& input = shape.input;
  const int64_t y = tile.y - shape.padding[0], x = tile.x - shape.padding[1];
  const int64_t down = shape.dilation[0], across = shape.dilation[1];
  const bool whole = y >= 0 && y + (high == 1 ? 0 : 3 * down) < input.height && x >= 0 && x + 3 * across < input.width;
  const int64_t row = down * input.row, place = across * input.place;
  const float* from = call.input + offsetOf(input, {tile.image, tile.slice, y, x});
  int64_t count = input.channels, number = 0;
  for (; whole && count >= lanes; count -= lanes, from += lanes, ++number)
    transformChannels<lanes, position, high>(at(number),
                                             [&](Vector<lanes>& e, int i, int j) __attribute__((always_inline)) {
                                               e = *reinterpret_cast<const Vector<lanes>*>(from + i * row + j * place);
                                             });
  for (; count > 0; count -= lanes, from += lanes, ++number)
    transformChannels<lanes, position, high>(at(number),
                                             [&](Vector<lanes>& e, int i, int j) __attribute__((always_inline)) {
                                               const bool inside = y + i * down >= 0 && y + i * down < input.height &&
                                                                   x + j * across >= 0 && x + j * across < input.width;
                                               load<lanes>(e, from + i * row + j * place, inside ? count : 0);
                                             });
}

// Of one group, in elements.
template <int lanes, int rows, int high>
[[gnu::always_inline]] inline int64_t inputsOfGroup(const WinogradShape& shape) {
  return (shape.input.channels + lanes - 1) / lanes * winogradSpaced(high) * rows * lanes;
}

// Whether a slice of the input takes part in the block's results.
inline bool takesPart(const WinogradShape& shape, const WinogradBlock& block, int64_t slice) {
  for (int64_t i = 0; i < shape.depth.window; ++i) {
    const int64_t result = slice + shape.depth.padding - i * shape.depth.dilation - block.first_slice;
    if (result >= 0 && result < block.slices)
      return true;
  }
  return false;
}

template <int lanes, int rows, int high>
[[gnu::always_inline]] inline void transformTiles(const WinogradCall& call, const WinogradBlock& block, int64_t begin,
                                                  int64_t end) {
  const int64_t of_group = inputsOfGroup<lanes, rows, high>(*call.shape);
  constexpr int position = rows * lanes;
  while (begin < end) {
    const int64_t number = begin / block.count, slice = block.first_input + number;
    const int64_t last = std::min(end, (number + 1) * block.count);
    if (!takesPart(*call.shape, block, slice)) {
      begin = last;
      continue;
    }
    Tiles tiles(call, block.first + begin % block.count, slice);
    for (; begin < last; ++begin, tiles.advance()) {
      const int64_t at = begin - number * block.count;
      float* to = block.inputs + (number * block.groups() + at / block.group) * of_group + at % block.group * lanes;
      transformImage<lanes, position, high>(call, tiles.place(), [&](int64_t vector) __attribute__((always_inline)) {
        return to + vector * winogradSpaced(high) * position;
      });
    }
  }
}

// What is summed in registers, one by one: so many channels of each of some slices.
struct Summed {
  int64_t channels, slices;
  int64_t slice;  // elements from one to the next
  bool begins;    // there are no sums yet
};

// Of one position: `height` tiles by `width` vectors of the result's channels, in registers.
template <int lanes, int rows, int high, int height, int width>
[[gnu::always_inline]] inline void multiplyTiles(const Summed& summed, const float* left, const float* right,
                                                 float* sums, int64_t sums_row) {
  using V = Vector<lanes>;
  constexpr int64_t ahead = 48;  // channels whose weights are on their way
  V sum[height][width];
  for (int r = 0; r < height; ++r)
    for (int v = 0; v < width; ++v)
      sum[r][v] = V{};
  auto step = [&](int64_t i) __attribute__((always_inline)) {
    V b[width];
    for (int v = 0; v < width; ++v) {
      b[v] = *reinterpret_cast<const V*>(right + v * lanes);
      __builtin_prefetch(right + (ahead * width + v) * lanes);
    }
#pragma clang loop unroll(full)
    for (int r = 0; r < height; ++r) {
      const float one = left[r * lanes + i];
      V a;
      for (int lane = 0; lane < lanes; ++lane)
        a[lane] = one;
      for (int v = 0; v < width; ++v)
        sum[r][v] += a * b[v];
    }
    right += width * lanes;
  };
  const float* of_slice = left;
  for (int64_t slice = 0; slice < summed.slices; ++slice, left = of_slice += summed.slice) {
    int64_t channels = summed.channels;
    for (; channels >= lanes; channels -= lanes, left += winogradSpaced(high) * rows * lanes)
#pragma clang loop unroll_count(4)
      for (int64_t i = 0; i < lanes; ++i)
        step(i);
    for (int64_t i = 0; i < channels; ++i)
      step(i);
  }
#pragma clang loop unroll(full)
  for (int r = 0; r < height; ++r)
#pragma clang loop unroll(full)
    for (int v = 0; v < width; ++v) {
      auto* at = reinterpret_cast<V*>(sums + r * sums_row + v * lanes);
      if (!summed.begins)
        sum[r][v] += *at;
      *at = sum[r][v];
    }
}

template <int lanes, int rows, int high, int height, int width>
[[gnu::always_inline]] inline void multiplySome(int64_t count, const Summed& summed, const float* left,
                                                const float* right, float* sums, int64_t sums_row) {
  if (count == height)
    multiplyTiles<lanes, rows, high, height, width>(summed, left, right, sums, sums_row);
  else if constexpr (height > 1)
    multiplySome<lanes, rows, high, height - 1, width>(count, summed, left, right, sums, sums_row);
}

// All that is summed, a piece at a time: errors grow with the channels of a piece and with the pieces.
template <int lanes, int rows, int high, int width>
[[gnu::always_inline]] inline void multiplyPieces(int64_t count, Summed summed, const float* left, const float* right,
                                                  float* sums, int64_t sums_row) {
  constexpr int64_t piece = 128;
  const int64_t channels = summed.channels, slices = summed.slices, some = std::max<int64_t>(1, piece / channels);
  // As often as there are pieces: also once without a slice, sums of nothing.
  int64_t slice = 0, channel = 0;
  do {
    summed.slices = std::min(some, slices - slice);
    summed.channels = std::min(piece, channels - channel);
    multiplySome<lanes, rows, high, rows, width>(
        count, summed, left + channel / lanes * winogradSpaced(high) * rows * lanes, right, sums, sums_row);
    right += summed.channels * summed.slices * width * lanes;
    summed.begins = false;
    channel += piece;
    if (channel >= channels) {
      channel = 0;
      slice += some;
      left += some * summed.slice;
    }
  } while (slice < slices);
}

// The results of a tile for one vector of channels from `channel` on.
template <int lanes, int high> using Results = Vector<lanes>[high][2];

// One post-op's operand at a place.
template <int lanes, bool whole>
[[gnu::always_inline]] inline Vector<lanes> operandAt(const WinogradCall& call, const WinogradPostOp& op,
                                                      const Place& place, int64_t channel, int64_t count) {
  const float* from = static_cast<const float*>(call.addresses[op.slot]) + place.image * op.image +
                      place.slice * op.slice + place.y * op.row + place.x * op.place +
                      (call.first_channel + channel) * op.channel;
  Vector<lanes> x = {};
  if (op.channel)
    load<lanes>(x, from, whole ? lanes : count);
  else
    x = x + *from;
  return x;
}

// Bias and post-ops, and to memory. `first`: the tile's first place.
template <int lanes, bool whole, int high>
[[gnu::always_inline]] inline void finish(const WinogradCall& call, Results<lanes, high>& y, const Place& first,
                                          int64_t channel) {
  const ChannelsLast& out = call.shape->out;
  const int64_t count = out.channels - channel, *dilation = call.shape->dilation;
  const int64_t rows = high == 2 && first.y + dilation[0] < out.height ? 2 : first.y < out.height;
  const int64_t wide = first.x + dilation[1] < out.width ? 2 : first.x < out.width;
  auto overPlaces = [&](auto&& body) __attribute__((always_inline)) {
    for (int64_t i = 0; i < high; ++i)
      for (int64_t j = 0; j < 2; ++j)
        if (i < rows && j < wide)
          body(y[i][j], Place{first.image, first.slice, first.y + i * dilation[0], first.x + j * dilation[1]});
  };
  if (call.bias) {
    Vector<lanes> bias;
    load<lanes>(bias, call.bias + channel, whole ? lanes : count);
    for (auto& row : y)
      for (auto& each : row)
        each += bias;
  }
  for (const WinogradPostOp& op : call.shape->post_ops)
    switch (op.kind) {
    case plan::PostOpKind::add:
      overPlaces([&](Vector<lanes>& x, const Place& place)
                     __attribute__((always_inline)) { x += operandAt<lanes, whole>(call, op, place, channel, count); });
      break;
    case plan::PostOpKind::mul:
      overPlaces([&](Vector<lanes>& x, const Place& place)
                     __attribute__((always_inline)) { x *= operandAt<lanes, whole>(call, op, place, channel, count); });
      break;
    default:
      for (auto& row : y)
        for (auto& each : row)
          activate<lanes>(op.kind, each);
    }
  overPlaces([&](const Vector<lanes>& x, const Place& place) __attribute__((always_inline)) {
    store<lanes>(call.out + offsetOf(out, place) + channel, x, whole ? lanes : count);
  });
}

// The window's numbers again, from those made of them, within a last bit of the largest.
template <int lanes, int high>
[[gnu::always_inline]] inline void windowOf(const float* packed, int64_t position, bool plain,
                                            Vector<lanes> (&g)[high == 1 ? 1 : 3][3]) {
  using V = Vector<lanes>;
  constexpr int window_rows = high == 1 ? 1 : 3;
  auto at = [&](int64_t number)
                __attribute__((always_inline)) { return reinterpret_cast<const V*>(packed + number * position); };
  if (plain) {
    for (int i = 0; i < window_rows; ++i)
      for (int j = 0; j < 3; ++j)
        g[i][j] = *at(i * 3 + j);
    return;
  }
  V rows[window_rows][4];
  for (int j = 0; j < 4; ++j) {
    rows[0][j] = *at(j);
    if constexpr (high == 2) {
      rows[1][j] = *at(4 + j) - *at(8 + j);
      rows[2][j] = *at(12 + j);
    }
  }
  for (int i = 0; i < window_rows; ++i) {
    g[i][0] = rows[i][0];
    g[i][1] = rows[i][1] - rows[i][2];
    g[i][2] = rows[i][3];
  }
}

// A tile's results for one vector of channels by the definition. What lies beside the image takes no part.
template <int lanes, int high>
[[gnu::always_inline]] inline void convolvePlainly(const WinogradCall& call, const Place& tile, const float* packed,
                                                   int64_t packed_channel, Results<lanes, high>& y) {
  const WinogradShape& shape = *call.shape;
  const ChannelsLast& input = shape.input;
  const int64_t position = shape.depth.window * input.channels * packed_channel;
  for (auto& row : y)
    for (auto& each : row)
      each = Vector<lanes>{};
  const auto [first, slices] = winogradSlices(shape, tile.slice);
  packed += first * input.channels * packed_channel;
  for (int64_t at = 0; at < slices * input.channels; ++at, packed += packed_channel) {
    const int64_t c = at % input.channels;
    const int64_t slice = tile.slice - shape.depth.padding + (first + at / input.channels) * shape.depth.dilation;
    Vector<lanes> g[high == 1 ? 1 : 3][3];
    windowOf<lanes, high>(packed, position, call.plain, g);
    for (int64_t i = 0; i < (high == 1 ? 1 : 4); ++i)
      for (int64_t j = 0; j < 4; ++j) {
        const int64_t row = tile.y - shape.padding[0] + i * shape.dilation[0];
        const int64_t place = tile.x - shape.padding[1] + j * shape.dilation[1];
        if (row < 0 || row >= input.height || place < 0 || place >= input.width)
          continue;
        const float x = call.input[offsetOf(input, {tile.image, slice, row, place}) + c];
        for (int64_t a = 0; a < high; ++a)
          for (int64_t b = 0; b < 2; ++b)
            if (i >= a && i - a < (high == 1 ? 1 : 3) && j >= b && j - b < 3)
              y[a][b] += x * g[i - a][j - b];
      }
  }
}

// A^T m A, or m A of one row, for one vector of channels of one tile.
template <int lanes, int position, int high>
[[gnu::always_inline]] inline void transformSums(const float* sums, Results<lanes, high>& y) {
  using V = Vector<lanes>;
  V e[high][4];
  for (int j = 0; j < 4; ++j) {
    if constexpr (high == 1) {
      e[0][j] = *reinterpret_cast<const V*>(sums + j * position);
    } else {
      V q[4];
      for (int i = 0; i < 4; ++i)
        q[i] = *reinterpret_cast<const V*>(sums + (i * 4 + j) * position);
      e[0][j] = (q[0] + q[1]) + q[2];
      e[1][j] = (q[1] - q[2]) - q[3];
    }
  }
  for (int i = 0; i < high; ++i) {
    y[i][0] = (e[i][0] + e[i][1]) + e[i][2];
    y[i][1] = (e[i][1] - e[i][2]) - e[i][3];
  }
}

// Whether one of the first `count` lanes is NaN.
template <int lanes> [[gnu::always_inline]] inline bool hasNan(const Vector<lanes>& x, int64_t count) {
  const auto other = x != x;
  int32_t any = 0;
  for (int lane = 0; lane < count; ++lane)
    any |= other[lane];
  return any != 0;
}

template <int lanes, int high> [[gnu::always_inline]] inline bool isFinite(const Results<lanes, high>& y) {
  Vector<lanes> sum = y[0][0] + y[0][1];
  if constexpr (high == 2)
    sum += y[1][0] + y[1][1];
  return !hasNan<lanes>(sum * 0.f, lanes);
}

// All tiles of a block for the `width` vectors of channels from `channel` on.
template <int lanes, int rows, int high, int width>
[[gnu::always_inline]] inline void multiplyPanel(const WinogradCall& call, const WinogradBlock& block,
                                                 int64_t channel) {
  const WinogradShape& shape = *call.shape;
  const int64_t channels = shape.input.channels, of_slice = channels * width * lanes, groups = block.groups();
  constexpr int row = width * lanes;
  constexpr int64_t positions = winogradPositions(high);
  const float* right = call.weight + channel * positions * shape.depth.window * channels;
  const int64_t to_next_input = inputsOfGroup<lanes, rows, high>(shape);
  for (int64_t position = 0; position < positions && !call.plain; ++position)
    for (int64_t slice = 0; slice < block.slices; ++slice) {
      const auto [first, count] = winogradSlices(shape, block.first_slice + slice);
      const Summed summed = {channels, count, shape.depth.dilation * groups * to_next_input, true};
      const int64_t input = block.first_slice + slice - shape.depth.padding + first * shape.depth.dilation;
      const float* left = block.inputs + (input - block.first_input) * groups * to_next_input + position * rows * lanes;
      for (int64_t at = 0, number = 0; at < block.count; at += block.group, ++number)
        multiplyPieces<lanes, rows, high, width>(
            std::min(block.group, block.count - at), summed, left + number * to_next_input,
            right + (position * shape.depth.window + first) * of_slice,
            block.sums + ((slice * groups + number) * positions + position) * rows * row, row);
    }
  for (int64_t slice = 0; slice < block.slices; ++slice) {
    Tiles tiles(call, block.first, block.first_slice + slice);
    const float* sums = block.sums + slice * groups * positions * rows * row;
    for (int64_t at = 0; at < block.count; ++at, tiles.advance()) {
      const Place tile = tiles.place();
      for (int v = 0; v < width && channel + v * lanes < shape.out.channels; ++v) {
        Results<lanes, high> y;
        if (!call.plain)
          transformSums<lanes, rows * row, high>(
              sums + (at / block.group * positions * rows + at % block.group) * row + v * lanes, y);
        if (call.plain || !isFinite<lanes, high>(y)) [[unlikely]]
          convolvePlainly<lanes, high>(call, tile, right + v * lanes, row, y);
        if (channel + (v + 1) * lanes <= shape.out.channels)
          finish<lanes, true, high>(call, y, tile, channel + v * lanes);
        else
          finish<lanes, false, high>(call, y, tile, channel + v * lanes);
      }
    }
  }
}

// G g G^T, or g G^T of one row, for the channels of a panel: [positions][slices][channels][width * lanes], zeros where
// the result has no channel.
template <int lanes, int width, int high>
[[gnu::always_inline]] inline bool packChannels(const WinogradShape& shape, const WinogradWeight& weight,
                                                const float* from, bool plain, int64_t channel, float* packed) {
  using V = Vector<lanes>;
  constexpr int window_rows = high == 1 ? 1 : 3;
  constexpr int64_t row = width * lanes;
  const int64_t channels = shape.depth.window * shape.input.channels, position = channels * row;  // of all slices
  const V limit = V{} + 0x1p100f;  // what is made of less stays far from infinity
  auto tame = V{} == V{};
  packed += channel * winogradPositions(high) * channels;
  for (int v = 0; v < width; ++v) {
    const int64_t first = channel + v * lanes, count = std::min<int64_t>(lanes, shape.out.channels - first);
    for (int64_t c = 0; c < channels; ++c) {
      V g[3][3] = {};
      const float* window = from + first * weight.out_channel + c % shape.input.channels * weight.channel +
                            c / shape.input.channels * weight.slice;
      for (int64_t lane = 0; lane < count; ++lane, window += weight.out_channel)
        for (int i = 0; i < window_rows; ++i)
          for (int j = 0; j < 3; ++j)
            g[i][j][lane] = window[i * weight.row + j * weight.place];
      float* to = packed + c * row + v * lanes;
      auto put = [&](int64_t number, const V& x)
                     __attribute__((always_inline)) { *reinterpret_cast<V*>(to + number * position) = x; };
      V t[4][3];
      for (int j = 0; j < 3; ++j) {
        t[0][j] = g[0][j];
        t[1][j] = ((g[0][j] + g[2][j]) + g[1][j]) * 0.5f;
        t[2][j] = ((g[0][j] + g[2][j]) - g[1][j]) * 0.5f;
        t[3][j] = g[2][j];
        for (int i = 0; i < 3; ++i) {
          const V size = g[i][j] < 0.f ? -g[i][j] : g[i][j];
          tame &= size < limit;  // not NaN either
        }
      }
      for (int i = 0; i < (high == 1 ? 1 : 4) && !plain; ++i) {
        put(i * 4, t[i][0]);
        put(i * 4 + 1, ((t[i][0] + t[i][2]) + t[i][1]) * 0.5f);
        put(i * 4 + 2, ((t[i][0] + t[i][2]) - t[i][1]) * 0.5f);
        put(i * 4 + 3, t[i][2]);
      }
      for (int i = 0; i < 3 * window_rows && plain; ++i)
        put(i, g[i / 3][i % 3]);
    }
  }
  int32_t all = -1;
  for (int lane = 0; lane < lanes; ++lane)
    all &= tame[lane];
  return all != 0;
}

// The last panel may have one vector.
template <int lanes, int vectors> [[gnu::always_inline]] inline bool isHalf(const WinogradShape& shape, int64_t panel) {
  return shape.out.channels - panel * vectors * lanes <= (vectors - 1) * lanes;
}

}  // namespace winograd

}  // namespace zefuse::primitives
