#include "runtime/primitives/convolution/winograd.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "runtime/primitives/convolution/winograd_tiles.h"
#include "runtime/primitives/core/team.h"

namespace zefuse::primitives {

namespace {

int64_t positionsOf(const WinogradShape& shape) { return winogradPositions(shape.flat ? 1 : 2); }
int64_t windowOf(const WinogradShape& shape) { return shape.flat ? 3 : 9; }
double transformationOf(const WinogradShape& shape) {
  return shape.flat ? WinogradCosts::flat_transformation : WinogradCosts::transformation;
}

int64_t upTo(int64_t count, int64_t whole) { return (count + whole - 1) / whole * whole; }

int64_t tilesAlong(int64_t size, int64_t dilation) {
  const int64_t results = (size + dilation - 1) / dilation;  // of each of the images that a dilation makes
  return dilation * ((results + 1) / 2);
}

int64_t paddedOutChannels(const WinogradShape& shape, const WinogradLevel& level) {
  return upTo(shape.out.channels, level.lanes);
}

int64_t panelsOf(const WinogradShape& shape, const WinogradLevel& level) {
  const int64_t panel = level.vectors * level.lanes;
  return (shape.out.channels + panel - 1) / panel;
}

// Of one position's weight, in elements.
int64_t packedElements(const WinogradShape& shape, const WinogradLevel& level) {
  return positionsOf(shape) * shape.depth.window * shape.input.channels * paddedOutChannels(shape, level);
}

// How many slices of the input so many of the result take.
int64_t slicesBehind(const WinogradShape& shape, int64_t slices) {
  return std::min(shape.input.depth, slices + (shape.depth.window - 1) * shape.depth.dilation);
}

// Tiles of a slice and slices of the result.
struct Blocking {
  int64_t tiles, slices;
};

// So many that their transformed inputs stay in the second-level cache while the weight goes by, and that the weight
// goes by few times. With slices, also that each input is transformed for as many of them as it takes part in.
Blocking blockingOf(const WinogradShape& shape, const WinogradLevel& level) {
  constexpr int64_t bytes = 512 << 10, fewest = 24, most = 48;
  const int64_t tiles = winogradTiles(shape).count, all = upTo(tiles, level.rows);
  const int64_t tile = positionsOf(shape) * shape.input.channels * int64_t(sizeof(float));
  if (shape.out.depth == 1 && shape.depth.window == 1) {
    const int64_t wanted = upTo(std::clamp(bytes / tile, fewest, most), level.rows);
    return {std::min(tiles <= 2 * wanted ? upTo(tiles, level.rows) : wanted, all), 1};
  }
  auto pieces = [](int64_t whole, int64_t piece) { return (whole + piece - 1) / piece; };
  const double sliced = double(tiles * shape.out.depth);
  Blocking best{};
  double least = 0;
  for (int64_t count = level.rows; count <= std::min(most, all); count += level.rows)
    for (int64_t slices = 1; slices <= shape.out.depth && count * slices <= 2 * most; ++slices) {
      const int64_t behind = slicesBehind(shape, slices), slice_blocks = pieces(shape.out.depth, slices);
      if (best.tiles && count * slices > fewest && count * behind * tile > bytes)
        break;
      // For one channel of the input.
      const double products = double(positionsOf(shape) * shape.depth.window * shape.out.channels) *
                              std::max(sliced, double(fewest * pieces(tiles, count) * slice_blocks));
      const double time = products + transformationOf(shape) * double(tiles * behind * slice_blocks);
      if (!best.tiles || time < least) {
        best = {count, slices};
        least = time;
      }
    }
  return best;
}

}  // namespace

WinogradTiles winogradTiles(const WinogradShape& shape) {
  const int64_t high = shape.flat ? shape.out.height : tilesAlong(shape.out.height, shape.dilation[0]);
  const int64_t wide = tilesAlong(shape.out.width, shape.dilation[1]);
  return {high, wide, shape.images * high * wide};
}

bool winogradAvailable() {
  static const bool wanted = [] {
    const char* value = std::getenv("ZEFUSE_WINOGRAD");
    return !value || std::string_view(value) != "off";
  }();
  return wanted && winogradLevel();
}

bool winogradPays(const WinogradShape& shape, bool packed, int threads) {
  const WinogradLevel* level = winogradLevel(shape.flat);
  using Costs = WinogradCosts;
  if (!winogradAvailable() || std::min(shape.input.channels, shape.out.channels) < Costs::fewest_channels)
    return false;
  const double tiles = double(winogradTiles(shape).count * shape.out.depth);
  const double places = double(shape.images * shape.out.depth * shape.out.height * shape.out.width);
  const double in = double(shape.depth.window * shape.input.channels), out = double(shape.out.channels);
  // The part of the window, over all results, that does not meet padding along one dimension.
  auto met = [](const WinogradDepth& along, int64_t size, int64_t results) {
    int64_t count = 0;
    for (int64_t place = 0; place < results; ++place)
      count += winogradMet(along, size, place).count;
    return double(count) / double(results * along.window);
  };
  const double slices_met = met(shape.depth, shape.input.depth, shape.out.depth);
  // oneDNN leaves out what meets padding, a tile multiplies it.
  const double met_in_slice =
      met({shape.flat ? 1 : 3, shape.padding[0], shape.dilation[0]}, shape.input.height, shape.out.height) *
      met({3, shape.padding[1], shape.dilation[1]}, shape.input.width, shape.out.width);
  // An input's channels are transformed once for all slices of a block.
  const int64_t slices = blockingOf(shape, *level).slices;
  const double transformed = double(shape.input.channels * slicesBehind(shape, slices)) / double(slices) + out;
  // Products that take as long as a byte of a weight that no second-level cache holds; six threads read as fast as
  // more.
  constexpr double near_bytes = 1 << 20, reading = 6.5, readers = 6;
  auto whole = [&](double products, double weight_bytes) {
    const double reads = weight_bytes > near_bytes ? weight_bytes * reading * std::max(1.0, threads / readers) : 0;
    return std::max(double(shape.groups) * products, reads);
  };
  const double ours = double(positionsOf(shape)) * slices_met * tiles * in * double(paddedOutChannels(shape, *level)) +
                      transformationOf(shape) * tiles * transformed +
                      (packed ? 0 : Costs::packing * double(windowOf(shape)) / 9 * in * out);
  const double direct =
      (double(windowOf(shape)) * (slices_met * met_in_slice * places + (packed ? 0 : Costs::copying / 9))) * in * out;
  // Groups do the same one after the other; what they read is theirs together.
  const double of_weight = double(shape.groups) * in * out * sizeof(float);
  return Costs::margin * whole(ours, double(positionsOf(shape)) * of_weight) <
         whole(direct, double(windowOf(shape)) * of_weight);
}

WinogradStep::WinogradStep(Sequence& sequence, WinogradShape shape, const WinogradWeight& weight, bool has_bias,
                           bool packed)
    : shape_(std::move(shape)), weight_(weight), has_bias_(has_bias), packed_(packed), threads_(maxThreads()) {
  const WinogradLevel& level = *winogradLevel(shape_.flat);
  tiles_ = winogradTiles(shape_).count;
  const Blocking blocking = blockingOf(shape_, level);
  block_ = blocking.tiles;
  slices_ = blocking.slices;
  blocks_ = (tiles_ + block_ - 1) / block_;
  slice_blocks_ = (shape_.out.depth + slices_ - 1) / slices_;
  transforms_first_ = threads_ > 1 && shape_.groups * blocks_ * slice_blocks_ < 3 * threads_;
  inputs_bytes_ = winogradSpaced(shape_.flat ? 1 : 2) * block_ * upTo(shape_.input.channels, level.lanes) *
                  int64_t(sizeof(float)) * (transforms_first_ ? shape_.input.depth : slicesBehind(shape_, slices_));
  sums_bytes_ =
      winogradPositions(shape_.flat ? 1 : 2) * block_ * slices_ * level.vectors * level.lanes * int64_t(sizeof(float));
  inputs_at_ = transforms_first_ ? sequence.reserve(size_t(inputs_bytes_ * blocks_)) : 0;
  sums_at_ = sequence.reserve(size_t(threads_ * (sums_bytes_ + (transforms_first_ ? 0 : inputs_bytes_))));
}

// Of each group, with a line behind it, for whether it holds the plain weight.
size_t WinogradStep::groupBytes() const {
  return size_t(upTo(packedElements(shape_, *winogradLevel(shape_.flat)) * int64_t(sizeof(float)), 64)) + 64;
}

size_t WinogradStep::packedBytes() const { return groupBytes() * size_t(shape_.groups); }

void WinogradStep::pack(const void* weight, void* packed) const {
  const auto* from = reinterpret_cast<const float*>(static_cast<const std::byte*>(weight) + weight_.origin);
  for (int64_t group = 0; group < shape_.groups; ++group)
    packGroup(from + group * weight_.group,
              reinterpret_cast<float*>(static_cast<std::byte*>(packed) + size_t(group) * groupBytes()));
}

void WinogradStep::packGroup(const float* from, float* to) const {
  const WinogradLevel& level = *winogradLevel(shape_.flat);
  auto packAll = [&](bool plain) {
    std::atomic<bool> tame{true};
    overTeam(panelsOf(shape_, level), 1, [&](int64_t begin, int64_t end) {
      for (int64_t panel = begin; panel < end; ++panel)
        if (!level.packPanel(shape_, weight_, from, plain, panel, to))
          tame.store(false, std::memory_order_relaxed);
    });
    return tame.load();
  };
  const bool plain = !packAll(false);
  if (plain)
    packAll(true);
  std::memset(to + packedElements(shape_, level), plain, 64);
}

WinogradCall WinogradStep::callOf(std::span<void* const> addresses, int64_t group) const {
  const WinogradTiles tiles = winogradTiles(shape_);
  const auto* weight = reinterpret_cast<const float*>(static_cast<const std::byte*>(addresses[slotWeights]) +
                                                      size_t(group) * groupBytes());
  uint8_t plain;
  std::memcpy(&plain, weight + packedElements(shape_, *winogradLevel(shape_.flat)), 1);
  const int64_t first = group * shape_.out.channels;
  return {&shape_,
          static_cast<const float*>(addresses[slotA]) + group * shape_.input.channels,
          weight,
          has_bias_ ? static_cast<const float*>(addresses[slotBias]) + first : nullptr,
          static_cast<float*>(addresses[slotOut]) + first,
          addresses.data(),
          tiles.high,
          tiles.wide,
          plain != 0,
          first};
}

void WinogradStep::run(std::span<void* const> addresses, std::byte* scratch) const {
  const WinogradLevel& level = *winogradLevel(shape_.flat);
  if (!packed_)
    pack(addresses[slotB], addresses[slotWeights]);
  auto blockAt = [&](int64_t number, int64_t first_slice, int64_t slices, std::byte* inputs, std::byte* sums) {
    const int64_t first = number * block_, count = std::min(block_, tiles_ - first);
    // As many in each: a product of one row takes half as long as one of twelve.
    const int64_t groups = (count + level.rows - 1) / level.rows;
    return WinogradBlock{first,
                         count,
                         (count + groups - 1) / groups,
                         first_slice,
                         std::min(slices, shape_.out.depth - first_slice),
                         transforms_first_ ? 0 : std::max<int64_t>(0, first_slice - shape_.depth.padding),
                         reinterpret_cast<float*>(inputs),
                         reinterpret_cast<float*>(sums)};
  };
  const int64_t panels = panelsOf(shape_, level);
  if (!transforms_first_) {
    overTeamWithScratch(
        shape_.groups * blocks_ * slice_blocks_, scratch + sums_at_, size_t(sums_bytes_ + inputs_bytes_), threads_,
        [&](int64_t begin, int64_t end, std::byte* own) {
          for (int64_t at = begin; at < end; ++at) {
            const WinogradCall call = callOf(addresses, at / slice_blocks_ / blocks_);
            const WinogradBlock block =
                blockAt(at / slice_blocks_ % blocks_, at % slice_blocks_ * slices_, slices_, own + sums_bytes_, own);
            const int64_t inputs = std::min(slicesBehind(shape_, slices_), shape_.input.depth - block.first_input);
            if (!call.plain)
              level.transformInputs(call, block, 0, block.count * inputs);
            for (int64_t panel = 0; panel < panels; ++panel)
              level.multiply(call, block, panel);
          }
        });
    return;
  }
  std::byte* inputs = scratch + inputs_at_;
  for (int64_t group = 0; group < shape_.groups; ++group) {
    const WinogradCall call = callOf(addresses, group);
    if (!call.plain)
      overTeam(tiles_ * shape_.input.depth, 1, [&](int64_t begin, int64_t end) {
        const int64_t of_block = block_ * shape_.input.depth;
        for (int64_t at = begin; at < end;) {
          const int64_t number = at / of_block, last = std::min(end, (number + 1) * of_block);
          level.transformInputs(call, blockAt(number, 0, shape_.out.depth, inputs + number * inputs_bytes_, nullptr),
                                at - number * of_block, last - number * of_block);
          at = last;
        }
      });
    overTeamWithScratch(blocks_ * panels * slice_blocks_, scratch + sums_at_, size_t(sums_bytes_), threads_,
                        [&](int64_t begin, int64_t end, std::byte* sums) {
                          for (int64_t at = begin; at < end; ++at) {
                            const int64_t number = at / slice_blocks_ / panels;
                            level.multiply(call,
                                           blockAt(number, at % slice_blocks_ * slices_, slices_,
                                                   inputs + number * inputs_bytes_, sums),
                                           at / slice_blocks_ % panels);
                          }
                        });
  }
}

}  // namespace zefuse::primitives
