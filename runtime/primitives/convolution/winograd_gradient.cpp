#include "runtime/primitives/convolution/winograd_gradient.h"

#include "runtime/primitives/convolution/winograd_gradient_tiles.h"
#include "runtime/primitives/core/team.h"

namespace zefuse::primitives {

namespace {

// How the channels are cut up; in elements.
struct GradientPanels {
  int64_t inputs, gradients;  // how many
  int64_t pairs;              // of these, for each slice of the window
  int64_t inputs_position, gradients_position, inputs_block, gradients_block;
  int64_t sums_position, sums_of_pair;  // of all channels of the result; of one panel of each
};

GradientPanels gradientPanels(const WinogradShape& shape) {
  const WinogradGradientLevel& level = *winogradGradientLevel();
  auto count = [&](int64_t channels, int vectors) {
    return (channels + vectors * level.lanes - 1) / (vectors * level.lanes);
  };
  GradientPanels panels{};
  panels.inputs = count(shape.input.channels, level.input_vectors);
  panels.gradients = count(shape.out.channels, level.gradient_vectors);
  panels.pairs = shape.depth.window * panels.inputs * panels.gradients;
  panels.inputs_position = winogradPanelPosition(level.lanes, level.input_vectors);
  panels.gradients_position = winogradPanelPosition(level.lanes, level.gradient_vectors);
  panels.inputs_block = panels.inputs * winograd_positions * panels.inputs_position;
  panels.gradients_block = panels.gradients * winograd_positions * panels.gradients_position;
  panels.sums_position = winogradSumsPosition(level, shape.out.channels);
  panels.sums_of_pair = winogradSumsPosition(level, level.gradient_vectors * level.lanes);
  return panels;
}

// How many slices of the input so many of the gradient meet.
int64_t slicesMet(const WinogradShape& shape, int64_t slices) {
  return std::min(shape.input.depth, slices + (shape.depth.window - 1) * shape.depth.dilation);
}

// Of all blocks of a slice, or of one: so many slices of the gradient that their transformed numbers, with those of the
// inputs that they meet, stay in a share of the third-level cache. Not by the number of threads: it is part of the
// order of sums.
int64_t slicesAtOnce(const WinogradShape& shape, const GradientPanels& panels) {
  constexpr int64_t elements = 512 << 10;
  const int64_t reach = (shape.depth.window - 1) * shape.depth.dilation;
  const int64_t wanted = (elements - reach * panels.inputs_block) / (panels.inputs_block + panels.gradients_block);
  return std::clamp<int64_t>(wanted, std::min<int64_t>(4, shape.out.depth), shape.out.depth);
}

}  // namespace

bool winogradGradientPays(const WinogradShape& shape) {
  using Costs = WinogradCosts;
  if (!winogradAvailable() || std::min(shape.input.channels, shape.out.channels) < Costs::fewest_channels)
    return false;
  const int64_t lanes = winogradGradientLevel()->lanes;
  int64_t pairs = 0;  // of slices, of the gradient and of the window
  for (int64_t slice = 0; slice < shape.depth.window; ++slice)
    pairs += winogradMeets(shape, slice).count;
  const double tiles = double(winogradTiles(shape).count), slices = double(shape.depth.window);
  const double places = double(shape.images * shape.out.height * shape.out.width);
  const double in = double(shape.input.channels), out = double(shape.out.channels);
  const double multiplied = double((shape.input.channels + lanes - 1) / lanes * lanes);
  const int64_t at_once = slicesAtOnce(shape, gradientPanels(shape));
  const double transformed =
      in * double(shape.out.depth * slicesMet(shape, at_once)) / double(at_once) + out * double(shape.out.depth);
  const double ours = winograd_positions * tiles * double(pairs) * multiplied * out +
                      Costs::transformation * tiles * transformed + Costs::packing * slices * in * out;
  return Costs::margin * ours < (9 * places * double(pairs) + Costs::copying * slices) * in * out;
}

WinogradGradientStep::WinogradGradientStep(Sequence& sequence, WinogradShape shape)
    : shape_(std::move(shape)), threads_(maxThreads()) {
  const GradientPanels panels = gradientPanels(shape_);
  tiles_ = winogradTiles(shape_).count;
  const int64_t blocks = (tiles_ + winograd_gradient_tiles - 1) / winograd_gradient_tiles;
  const int64_t sums = shape_.depth.window * panels.inputs * winograd_positions * panels.sums_position;
  const bool fits =
      blocks * (shape_.input.depth * panels.inputs_block + shape_.out.depth * panels.gradients_block) <= sums;
  at_once_ = fits ? blocks : std::min<int64_t>(blocks, threads_);
  slices_ = fits ? shape_.out.depth : slicesAtOnce(shape_, panels);
  by_pair_ = at_once_ == blocks && slices_ == shape_.out.depth && panels.pairs >= threads_;
  auto reserve = [&](int64_t count) { return sequence.reserve(size_t(count) * sizeof(float)); };
  inputs_at_ = reserve(at_once_ * slicesMet(shape_, slices_) * panels.inputs_block);
  gradients_at_ = reserve(at_once_ * slices_ * panels.gradients_block);
  sums_at_ = reserve(by_pair_ ? threads_ * winograd_positions * panels.sums_of_pair : sums);
}

void WinogradGradientStep::run(std::span<void* const> addresses, std::byte* scratch) const {
  const WinogradGradientLevel& level = *winogradGradientLevel();
  const GradientPanels panels = gradientPanels(shape_);
  const WinogradTiles tiles = winogradTiles(shape_);
  WinogradGradientCall call{};
  call.forward.shape = &shape_;
  call.forward.input = static_cast<const float*>(addresses[slotA]);
  call.forward.tiles_high = tiles.high;
  call.forward.tiles_wide = tiles.wide;
  call.gradient = static_cast<const float*>(addresses[slotB]);
  call.out = static_cast<float*>(addresses[slotOut]);
  auto* inputs = reinterpret_cast<float*>(scratch + inputs_at_);
  auto* gradients = reinterpret_cast<float*>(scratch + gradients_at_);
  constexpr int64_t block = winograd_gradient_tiles;
  const int64_t input_panel = level.input_vectors * level.lanes, gradient_panel = level.gradient_vectors * level.lanes;
  // Some blocks of tiles, of some slices of the gradient and the input's that these meet: block by block, and of each
  // its slices. Each sum takes them in that order.
  struct Chunk {
    int64_t first, count;               // tiles
    int64_t first_slice, slices;        // of the gradient
    int64_t first_input, input_slices;  // of the input
  };
  auto chunkOf = [&](int64_t first, int64_t first_slice) {
    const int64_t slices = std::min(slices_, shape_.out.depth - first_slice);
    const int64_t input = std::max<int64_t>(0, first_slice - shape_.depth.padding);
    return Chunk{first,       std::min(tiles_ - first, at_once_ * block),
                 first_slice, slices,
                 input,       std::min(slicesMet(shape_, slices_), shape_.input.depth - input)};
  };
  struct Pair {
    int64_t slice, input, gradient;  // of the window; panels
  };
  auto pairAt = [&](int64_t number) {
    return Pair{number / panels.gradients / panels.inputs, number / panels.gradients % panels.inputs,
                number % panels.gradients};
  };
  auto multiply = [&](const Chunk& chunk, int64_t position, const Pair& pair, float* sums) {
    const int64_t channels = std::min(gradient_panel, shape_.out.channels - pair.gradient * gradient_panel);
    const bool half = shape_.input.channels - pair.input * input_panel <= level.lanes;
    const float* x = inputs + (pair.input * winograd_positions + position) * panels.inputs_position;
    const float* y = gradients + (pair.gradient * winograd_positions + position) * panels.gradients_position;
    const auto [met, slices_met] = winogradMeets(shape_, pair.slice);
    if (!slices_met && !chunk.first && !chunk.first_slice)
      level.multiply({}, x, y, channels, half, true, sums);
    const int64_t to_input = pair.slice * shape_.depth.dilation - shape_.depth.padding - chunk.first_input;
    const int64_t begin = std::max(met, chunk.first_slice);
    const int64_t end = std::min(met + slices_met, chunk.first_slice + chunk.slices);
    for (int64_t at = 0, number = 0; at < chunk.count; at += block, ++number) {
      const int64_t count = std::min(block, chunk.count - at), together = block / count;  // slices of a run
      for (int64_t slice = begin; slice < end; slice += together)
        level.multiply({count, std::min(together, end - slice), panels.inputs_block, panels.gradients_block},
                       x + (number * chunk.input_slices + slice + to_input) * panels.inputs_block,
                       y + (number * chunk.slices + slice - chunk.first_slice) * panels.gradients_block, channels, half,
                       chunk.first + at == 0 && slice == met, sums);
    }
  };
  auto transform = [&](const Chunk& chunk) {
    overTeam((chunk.input_slices + chunk.slices) * chunk.count, 1, [&](int64_t begin, int64_t end) {
      while (begin < end) {
        const int64_t slice = begin / chunk.count, at = begin % chunk.count, number = at / block;
        const int64_t last = std::min({end - begin, chunk.count - at, (number + 1) * block - at});
        if (slice < chunk.input_slices)
          level.transformInputs(call, chunk.first_input + slice, chunk.first + at, last, at % block,
                                inputs + (number * chunk.input_slices + slice) * panels.inputs_block);
        else
          level.transformGradients(
              call, chunk.first_slice + slice - chunk.input_slices, chunk.first + at, last, at % block,
              gradients + (number * chunk.slices + slice - chunk.input_slices) * panels.gradients_block);
        begin += last;
      }
    });
  };
  if (by_pair_) {
    const Chunk chunk = chunkOf(0, 0);
    transform(chunk);
    overTeamWithScratch(panels.pairs, scratch + sums_at_,
                        size_t(winograd_positions * panels.sums_of_pair) * sizeof(float), threads_,
                        [&](int64_t begin, int64_t end, std::byte* own) {
                          auto* sums = reinterpret_cast<float*>(own);
                          for (int64_t number = begin; number < end; ++number) {
                            const Pair pair = pairAt(number);
                            for (int64_t position = 0; position < winograd_positions; ++position)
                              multiply(chunk, position, pair, sums + position * panels.sums_of_pair);
                            const int64_t from = pair.gradient * gradient_panel;
                            const int64_t to = std::min(shape_.out.channels, from + gradient_panel);
                            for (int64_t channel = from; channel < to; ++channel)
                              level.finish(call, sums + (channel - from) * input_panel, panels.sums_of_pair, pair.slice,
                                           pair.input, channel);
                          }
                        });
    return;
  }
  auto* sums = reinterpret_cast<float*>(scratch + sums_at_);
  const int64_t of_panel = winograd_positions * panels.sums_position;
  for (int64_t first_slice = 0; first_slice < shape_.out.depth; first_slice += slices_)
    for (int64_t first = 0; first < tiles_; first += at_once_ * block) {
      const Chunk chunk = chunkOf(first, first_slice);
      transform(chunk);
      overTeam(winograd_positions * panels.pairs, 1, [&](int64_t begin, int64_t end) {
        for (int64_t task = begin; task < end; ++task) {
          const int64_t position = task / panels.pairs;
          const Pair pair = pairAt(task % panels.pairs);
          multiply(chunk, position, pair,
                   sums + (pair.slice * panels.inputs + pair.input) * of_panel + position * panels.sums_position +
                       pair.gradient * gradient_panel * input_panel);
        }
      });
    }
  overTeam(shape_.depth.window * panels.inputs * shape_.out.channels, 1, [&](int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end; ++at) {
      const int64_t panel = at / shape_.out.channels, channel = at % shape_.out.channels;
      level.finish(call, sums + panel * of_panel + channel * input_panel, panels.sums_position, panel / panels.inputs,
                   panel % panels.inputs, channel);
    }
  });
}

}  // namespace zefuse::primitives
