#include "runtime/onednn/winograd_gradient.h"

#include "runtime/onednn/team.h"
#include "runtime/onednn/winograd_gradient_tiles.h"

namespace zefuse::onednn {

namespace {

// How the channels are cut up; in elements.
struct GradientPanels {
  int64_t inputs, gradients;  // how many
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
  panels.inputs_position = winogradPanelPosition(level.lanes, level.input_vectors);
  panels.gradients_position = winogradPanelPosition(level.lanes, level.gradient_vectors);
  panels.inputs_block = panels.inputs * winograd_positions * panels.inputs_position;
  panels.gradients_block = panels.gradients * winograd_positions * panels.gradients_position;
  panels.sums_position = winogradSumsPosition(level, shape.out.channels);
  panels.sums_of_pair = winogradSumsPosition(level, level.gradient_vectors * level.lanes);
  return panels;
}

}  // namespace

bool winogradGradientPays(const WinogradShape& shape) {
  using Costs = WinogradCosts;
  if (!winogradAvailable() || std::min(shape.input.channels, shape.out.channels) < Costs::fewest_channels)
    return false;
  const int64_t lanes = winogradGradientLevel()->lanes;
  const double tiles = double(winogradTiles(shape).count);
  const double places = double(shape.images * shape.out.height * shape.out.width);
  const double in = double(shape.input.channels), out = double(shape.out.channels);
  const double multiplied = double((shape.input.channels + lanes - 1) / lanes * lanes);
  const double ours = winograd_positions * tiles * multiplied * out + Costs::transformation * tiles * (in + out) +
                      Costs::packing * in * out;
  return Costs::margin * ours < (9 * places + Costs::copying) * in * out;
}

WinogradGradientStep::WinogradGradientStep(Sequence& sequence, WinogradShape shape)
    : shape_(std::move(shape)), threads_(maxThreads()) {
  const GradientPanels panels = gradientPanels(shape_);
  tiles_ = winogradTiles(shape_).count;
  const int64_t blocks = (tiles_ + winograd_gradient_tiles - 1) / winograd_gradient_tiles;
  const int64_t sums = panels.inputs * winograd_positions * panels.sums_position;
  const bool fits = blocks * (panels.inputs_block + panels.gradients_block) <= sums;
  at_once_ = fits ? blocks : std::min<int64_t>(blocks, threads_);
  by_pair_ = at_once_ == blocks && panels.inputs * panels.gradients >= threads_;
  auto reserve = [&](int64_t count) { return sequence.reserve(size_t(count) * sizeof(float)); };
  inputs_at_ = reserve(at_once_ * panels.inputs_block);
  gradients_at_ = reserve(at_once_ * panels.gradients_block);
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
  // The blocks that are transformed, the first of which begins at tile `first`, one after the other.
  auto multiply = [&](int64_t first, int64_t count, int64_t position, int64_t input, int64_t gradient, float* sums) {
    const int64_t channels = std::min(gradient_panel, shape_.out.channels - gradient * gradient_panel);
    const bool half = shape_.input.channels - input * input_panel <= level.lanes;
    const float* x = inputs + (input * winograd_positions + position) * panels.inputs_position;
    const float* y = gradients + (gradient * winograd_positions + position) * panels.gradients_position;
    for (int64_t at = 0; at < count; at += block, x += panels.inputs_block, y += panels.gradients_block)
      level.multiply(std::min(block, count - at), x, y, channels, half, first + at == 0, sums);
  };
  auto transform = [&](int64_t first, int64_t count) {
    overTeam(count, 1, [&](int64_t begin, int64_t end) {
      for (int64_t at = begin; at < end;) {
        const int64_t number = at / block, some = std::min(end, (number + 1) * block) - at;
        level.transform(call, first + at, some, at % block, inputs + number * panels.inputs_block,
                        gradients + number * panels.gradients_block);
        at += some;
      }
    });
  };
  if (by_pair_) {
    transform(0, tiles_);
    overTeamWithScratch(panels.inputs * panels.gradients, scratch + sums_at_,
                        size_t(winograd_positions * panels.sums_of_pair) * sizeof(float), threads_,
                        [&](int64_t begin, int64_t end, std::byte* own) {
                          auto* sums = reinterpret_cast<float*>(own);
                          for (int64_t pair = begin; pair < end; ++pair) {
                            const int64_t input = pair / panels.gradients, gradient = pair % panels.gradients;
                            for (int64_t position = 0; position < winograd_positions; ++position)
                              multiply(0, tiles_, position, input, gradient, sums + position * panels.sums_of_pair);
                            const int64_t from = gradient * gradient_panel;
                            const int64_t to = std::min(shape_.out.channels, from + gradient_panel);
                            for (int64_t channel = from; channel < to; ++channel)
                              level.finish(call, sums + (channel - from) * input_panel, panels.sums_of_pair, input,
                                           channel);
                          }
                        });
    return;
  }
  auto* sums = reinterpret_cast<float*>(scratch + sums_at_);
  const int64_t pairs = panels.inputs * panels.gradients;
  for (int64_t first = 0; first < tiles_; first += at_once_ * block) {
    const int64_t count = std::min(tiles_ - first, at_once_ * block);
    transform(first, count);
    overTeam(winograd_positions * pairs, 1, [&](int64_t begin, int64_t end) {
      for (int64_t task = begin; task < end; ++task) {
        const int64_t position = task / pairs, input = task % pairs / panels.gradients;
        const int64_t gradient = task % panels.gradients;
        multiply(first, count, position, input, gradient,
                 sums + (input * winograd_positions + position) * panels.sums_position +
                     gradient * gradient_panel * input_panel);
      }
    });
  }
  overTeam(panels.inputs * shape_.out.channels, 1, [&](int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end; ++at) {
      const int64_t input = at / shape_.out.channels, channel = at % shape_.out.channels;
      level.finish(call, sums + input * winograd_positions * panels.sums_position + channel * input_panel,
                   panels.sums_position, input, channel);
    }
  });
}

}  // namespace zefuse::onednn
