#include "runtime/primitives/convolution/panel_gradient.h"

#include <algorithm>
#include <array>

#include "runtime/primitives/convolution/panel_gradient_sums.h"
#include "runtime/primitives/core/team.h"

namespace zefuse::primitives {

namespace {

constexpr int last = gradient_axes - 1;  // the places of a row
constexpr int64_t gap = 16;  // behind the sums of a tap: a multiple of 4 KiB apart they would share cache lines

int64_t pieces(int64_t whole, int64_t piece) { return (whole + piece - 1) / piece; }

int64_t product(const int64_t (&sizes)[gradient_axes]) {
  int64_t result = 1;
  for (int64_t size : sizes)
    result *= size;
  return result;
}

int64_t tapsOf(const PanelGradientShape& shape) {
  int64_t taps = 1;
  for (const GradientWindow& along : shape.window)
    taps *= along.size;
  return taps;
}

// The input's places along an axis that these of the result meet with any tap.
struct Met {
  int64_t begin, end;
};
Met metBy(const GradientWindow& along, int64_t size, int64_t begin, int64_t count) {
  const int64_t first = begin * along.stride - along.padding;
  const int64_t end = first + (count - 1) * along.stride + (along.size - 1) * along.dilation + 1;
  const int64_t inside = std::clamp<int64_t>(first, 0, size);
  return {inside, std::clamp<int64_t>(end, inside, size)};
}

// At most, wherever they begin.
int64_t mostMet(const GradientWindow& along, int64_t size, int64_t count) {
  return std::min(size, (count - 1) * along.stride + (along.size - 1) * along.dilation + 1);
}

// The numbers of places, from `at` on, of which a tap meets the input.
Met metByTap(const GradientWindow& along, int64_t size, int64_t tap, int64_t at, int64_t count) {
  const int64_t first = at * along.stride - along.padding + tap * along.dilation;
  const int64_t begin = first < 0 ? pieces(-first, along.stride) : 0;
  const int64_t end = first < size ? (size - 1 - first) / along.stride + 1 : 0;
  return {std::min(begin, count), std::clamp<int64_t>(end, std::min(begin, count), count)};
}

// Axes that no window goes across become one with the next where they lie as one: runs of places are longer, and
// steps over places that nothing meets are part of the strides.
PanelGradientShape joined(PanelGradientShape shape) {
  auto isPlain = [&](int axis) {
    const GradientWindow& along = shape.window[axis];
    return along.size == 1 && along.stride == 1 && along.padding == 0 &&
           shape.input.sizes[axis] == shape.gradient.sizes[axis];
  };
  for (int axis = 0; axis < gradient_axes; ++axis) {
    GradientWindow& along = shape.window[axis];
    int64_t &size = shape.input.sizes[axis], results = shape.gradient.sizes[axis];
    if (along.size > 1 || along.padding || (results - 1) * along.stride >= size)
      continue;
    shape.input.strides[axis] *= along.stride;
    size = results;
    along = {};
  }
  for (int axis = 0; axis < last; ++axis) {
    auto lies = [&](const GradientImages& images) {
      return images.sizes[axis] == 1 || images.sizes[axis + 1] == 1 ||
             images.strides[axis] == images.sizes[axis + 1] * images.strides[axis + 1];
    };
    if (!isPlain(axis) || !isPlain(axis + 1) || !lies(shape.input) || !lies(shape.gradient))
      continue;
    for (GradientImages* images : {&shape.input, &shape.gradient}) {
      if (images->sizes[axis + 1] == 1)
        images->strides[axis + 1] = images->strides[axis];
      images->sizes[axis + 1] *= images->sizes[axis];
      images->sizes[axis] = 1;
    }
  }
  return shape;
}

}  // namespace

// Results' places that are packed at once, and the input's that they meet.
struct PanelGradientStep::Chunk {
  int64_t begin[gradient_axes], count[gradient_axes];              // of the result's places
  int64_t input_begin[gradient_axes], input_count[gradient_axes];  // of the input's

  int64_t rows() const { return count[0] * count[1] * count[2]; }
};

// Sums that one thread makes: of a slice of the chunk's places, for two panels and some taps.
struct PanelGradientStep::Task {
  int64_t slice, input_panel, gradient_panel;
  int64_t channels;  // of the panel of the gradient
  int64_t first_tap, taps;
};

bool panelGradientAvailable() { return panelGradientLevel(); }

// Nanoseconds of one thread of a processor that multiplies some 55 numbers in one: what counts is how they compare. All
// were measured where docs/convolution.md says.
bool panelGradientPays(const PanelGradientShape& given) {
  if (!panelGradientAvailable())
    return false;
  constexpr double margin = 1.1, packing = 0.12, of_run = 8;
  const PanelGradientLevel& level = *panelGradientLevel();
  const bool wide = level.lanes == 16;
  const double finishing = wide ? 1.3 : 2.2;
  const auto& window = given.window;
  const auto& axis = given.gradient.sizes;
  const bool steps = std::ranges::any_of(window, [](const GradientWindow& along) { return along.stride > 1; });
  const bool gaps =
      std::ranges::any_of(window, [](const GradientWindow& along) { return along.size > 1 && along.dilation > 1; });
  const bool flat = axis[1] == 1 && axis[2] == 1, volume = axis[1] > 1 || window[1].size > 1;
  const int64_t taps = tapsOf(given);
  if (taps == 1)
    return false;  // oneDNN has kernels for that
  // For each channel of the input.
  double products = double(given.gradient.channels);
  double runs = double(pieces(given.gradient.channels, level.gradientChannels()) *
                       pieces(given.input.channels, level.inputChannels()));
  for (int i = 0; i < gradient_axes; ++i) {
    int64_t pairs = 0;  // of a tap and a place of the result that meet an input
    for (int64_t tap = 0; tap < window[i].size; ++tap) {
      const auto [begin, end] = metByTap(window[i], given.input.sizes[i], tap, 0, axis[i]);
      pairs += end - begin;
    }
    products *= double(pairs);
    runs *= double(i == last ? window[i].size * pieces(axis[i], level.places) : pairs);
  }
  const double channels = double(given.input.channels);
  const double multiplied = double(pieces(given.input.channels, level.lanes) * level.lanes);
  const double packed =
      double(product(given.input.sizes)) * channels + double(product(axis)) * double(given.gradient.channels);
  const double ours = products * multiplied / (wide ? 52 : 45) + packing * packed + of_run * runs +
                      finishing * double(taps * given.gradient.channels) * channels;
  // oneDNN's: steps and gaps cost it time; along one dimension its kernel of AVX2 is slow, and that has no gaps and no
  // volumes: those are unfolded for a product.
  const bool slow_steps = steps && !volume && (flat || given.input.channels >= 48);
  double theirs = 0;
  if (wide)
    theirs = gaps ? 40 : slow_steps ? 36 : 50;
  else
    theirs = gaps || volume ? 36 : flat ? 24 : slow_steps ? 28 : 42;
  return margin * ours < products * channels / theirs;
}

PanelGradientStep::PanelGradientStep(Sequence& sequence, const PanelGradientShape& shape)
    : shape_(joined(shape)), threads_(maxThreads()), taps_(tapsOf(shape)) {
  const PanelGradientLevel& level = *panelGradientLevel();
  const GradientImages &input = shape_.input, &gradient = shape_.gradient;
  input_panels_ = pieces(input.channels, level.inputChannels());
  gradient_panels_ = pieces(gradient.channels, level.gradientChannels());
  // So many that they stay in a share of the third-level cache, cut along the outermost axis that is long enough. Not
  // by the number of threads: it is part of the order of sums.
  constexpr int64_t elements = 512 << 10;
  int64_t met[gradient_axes];
  std::ranges::copy(gradient.sizes, box_);
  auto packed = [&] {
    for (int axis = 0; axis < gradient_axes; ++axis)
      met[axis] = mostMet(shape_.window[axis], input.sizes[axis], box_[axis]);
    input_places_ = product(met);
    gradient_places_ = product(box_);
    return input_places_ * input_panels_ * level.inputChannels() +
           gradient_places_ * gradient_panels_ * level.gradientChannels();
  };
  for (int axis = 0; axis < gradient_axes && packed() > elements; ++axis) {
    const int64_t fewest = axis == last ? 4 * level.places : 1;
    const int64_t fits = std::max(std::min(fewest, box_[axis]), box_[axis] * elements / packed());
    box_[axis] = pieces(box_[axis], pieces(box_[axis], fits));
    packed();
  }
  const int64_t tasks = taps_ * input_panels_ * gradient_panels_;
  tap_sums_ = level.gradientChannels() * level.inputChannels() + gap;
  const int64_t sums = input_panels_ * gradient_panels_ * taps_ * tap_sums_;
  constexpr int64_t most_tasks = 64, fewest_blocks = 8;
  slices_ = std::max<int64_t>(
      1, std::min({most_tasks / tasks, gradient_places_ / level.places / fewest_blocks, elements / 4 / sums}));
  auto reserve = [&](int64_t count) { return sequence.reserve(size_t(count) * sizeof(float)); };
  input_at_ = reserve(input_panels_ * input_places_ * level.inputChannels());
  gradient_at_ = reserve(gradient_panels_ * gradient_places_ * level.gradientChannels());
  at_once_ = slices_ == 1 && std::ranges::equal(box_, gradient.sizes);
  sums_at_ = reserve(at_once_ ? threads_ * taps_ * tap_sums_ : slices_ * sums);
}

PanelGradientStep::Chunk PanelGradientStep::chunkAt(const int64_t (&begin)[gradient_axes]) const {
  Chunk chunk{};
  for (int axis = 0; axis < gradient_axes; ++axis) {
    chunk.begin[axis] = begin[axis];
    chunk.count[axis] = std::min(box_[axis], shape_.gradient.sizes[axis] - begin[axis]);
    const auto [first, end] = metBy(shape_.window[axis], shape_.input.sizes[axis], begin[axis], chunk.count[axis]);
    chunk.input_begin[axis] = first;
    chunk.input_count[axis] = end - first;
  }
  return chunk;
}

void PanelGradientStep::packChunk(const Chunk& chunk, const float* input, const float* gradient,
                                  std::byte* scratch) const {
  const PanelGradientLevel& level = *panelGradientLevel();
  auto pack = [&](const GradientImages& images, const int64_t (&first)[gradient_axes],
                  const int64_t (&count)[gradient_axes], const float* from, int64_t begin, int64_t end,
                  auto to_panels) {
    while (begin < end) {
      const int64_t row = begin / count[last], x = begin % count[last], places = std::min(end - begin, count[last] - x);
      int64_t offset = (first[last] + x) * images.strides[last];
      for (int64_t axis = last, rest = row; axis-- > 0; rest /= count[axis])
        offset += (first[axis] + rest % count[axis]) * images.strides[axis];
      to_panels(from + offset, images.strides[last], places, images.channels, begin);
      begin += places;
    }
  };
  const int64_t inputs = product(chunk.input_count), gradients = product(chunk.count);
  auto* to_inputs = reinterpret_cast<float*>(scratch + input_at_);
  auto* to_gradients = reinterpret_cast<float*>(scratch + gradient_at_);
  constexpr int64_t fewest_places = 64;
  overTeam(inputs + gradients, fewest_places, [&](int64_t begin, int64_t end) {
    pack(shape_.input, chunk.input_begin, chunk.input_count, input, std::min(begin, inputs), std::min(end, inputs),
         [&](const float* from, int64_t stride, int64_t places, int64_t channels, int64_t at) {
           level.packInputs(from, stride, places, channels, to_inputs + at * level.inputChannels(),
                            input_places_ * level.inputChannels());
         });
    pack(shape_.gradient, chunk.begin, chunk.count, gradient, std::max<int64_t>(0, begin - inputs),
         std::max<int64_t>(0, end - inputs),
         [&](const float* from, int64_t stride, int64_t places, int64_t channels, int64_t at) {
           level.packGradients(from, stride, places, channels, to_gradients + at * level.gradientChannels(),
                               gradient_places_ * level.gradientChannels());
         });
  });
}

void PanelGradientStep::sumTask(const Chunk& chunk, bool begins, const Task& task, const std::byte* scratch,
                                float* sums) const {
  constexpr int64_t most_runs = 256;
  const PanelGradientLevel& level = *panelGradientLevel();
  const auto* inputs =
      reinterpret_cast<const float*>(scratch + input_at_) + task.input_panel * input_places_ * level.inputChannels();
  const auto* gradients = reinterpret_cast<const float*>(scratch + gradient_at_) +
                          task.gradient_panel * gradient_places_ * level.gradientChannels();
  const bool half = shape_.input.channels - task.input_panel * level.inputChannels() <= level.lanes;
  const GradientWindow& along_row = shape_.window[last];
  // A block is a part of a row, or some rows.
  const int64_t width = chunk.count[last], parts = pieces(width, level.places), part = pieces(width, parts);
  const int64_t high = std::clamp<int64_t>(level.places / width, 1, std::min(most_runs, chunk.rows()));
  const int64_t blocks = pieces(chunk.rows(), high) * parts;
  const int64_t first = task.slice * blocks / slices_, end = (task.slice + 1) * blocks / slices_;
  std::array<GradientRun, most_runs> runs;
  for (int64_t block = first; block < std::max(end, first + begins); ++block) {
    const int64_t row_begin = block < end ? block / parts * high : 0;
    const int64_t row_end = block < end ? std::min(chunk.rows(), row_begin + high) : 0;
    const int64_t from = block % parts * part, places = std::min(part, width - from);
    for (int64_t tap = task.first_tap; tap < task.first_tap + task.taps; ++tap) {
      int64_t taps[gradient_axes];
      for (int64_t axis = gradient_axes, rest = tap; axis-- > 0; rest /= shape_.window[axis].size)
        taps[axis] = rest % shape_.window[axis].size;
      const auto [x_begin, x_end] =
          metByTap(along_row, shape_.input.sizes[last], taps[last], chunk.begin[last] + from, places);
      const int64_t x = (chunk.begin[last] + from + x_begin) * along_row.stride - along_row.padding +
                        taps[last] * along_row.dilation - chunk.input_begin[last];
      size_t count = 0;
      for (int64_t row = row_begin; row < row_end && x_begin < x_end; ++row) {
        int64_t input_row = 0, index[last];
        for (int64_t axis = last, rest = row; axis-- > 0; rest /= chunk.count[axis])
          index[axis] = rest % chunk.count[axis];
        bool inside = true;
        for (int axis = 0; axis < last && inside; ++axis) {
          const GradientWindow& along = shape_.window[axis];
          const int64_t met =
              (chunk.begin[axis] + index[axis]) * along.stride - along.padding + taps[axis] * along.dilation;
          inside = met >= 0 && met < shape_.input.sizes[axis];
          input_row = input_row * chunk.input_count[axis] + met - chunk.input_begin[axis];
        }
        if (inside)
          runs[count++] = {input_row * chunk.input_count[last] + x, row * width + from + x_begin, x_end - x_begin};
      }
      if (count || (begins && block == first))
        level.sum(std::span(runs.data(), count), inputs, along_row.stride, gradients, task.channels, half,
                  begins && block == first, sums + (tap - task.first_tap) * tap_sums_);
    }
  }
}

void PanelGradientStep::multiplyChunk(const Chunk& chunk, bool begins, std::byte* scratch, float* out) const {
  const PanelGradientLevel& level = *panelGradientLevel();
  const int64_t pairs = slices_ * input_panels_ * gradient_panels_;
  // All taps together read a block of the inputs once; apart they are more to share out.
  const int64_t threads = maxThreads(), groups = threads == 1 || pairs >= 4 * threads ? 1 : taps_;
  auto taskAt = [&](int64_t number) {
    const int64_t group = number % groups, pair = number / groups, panel = pair % gradient_panels_;
    return Task{pair / gradient_panels_ / input_panels_,
                pair / gradient_panels_ % input_panels_,
                panel,
                std::min(level.gradientChannels(), shape_.gradient.channels - panel * level.gradientChannels()),
                group,
                groups == 1 ? taps_ : 1};
  };
  if (at_once_) {
    overTeamWithScratch(pairs * groups, scratch + sums_at_, size_t(taps_ * tap_sums_) * sizeof(float), threads_,
                        [&](int64_t begin, int64_t end, std::byte* own) {
                          auto* sums = reinterpret_cast<float*>(own);
                          for (int64_t number = begin; number < end; ++number) {
                            const Task task = taskAt(number);
                            sumTask(chunk, begins, task, scratch, sums);
                            finish(task, sums, out);
                          }
                        });
    return;
  }
  overTeam(pairs * groups, 1, [&](int64_t begin, int64_t end) {
    for (int64_t number = begin; number < end; ++number) {
      const Task task = taskAt(number);
      sumTask(chunk, begins, task, scratch, sumsOf(task, scratch));
    }
  });
}

// [slice][panel of the input][panel of the gradient][tap][out channel][channels of the panel]
float* PanelGradientStep::sumsOf(const Task& task, std::byte* scratch) const {
  const int64_t pair = (task.slice * input_panels_ + task.input_panel) * gradient_panels_ + task.gradient_panel;
  return reinterpret_cast<float*>(scratch + sums_at_) + (pair * taps_ + task.first_tap) * tap_sums_;
}

// The task's sums, with those of all slices, become [out channel][channel][tap].
void PanelGradientStep::finish(const Task& task, const float* sums, float* out) const {
  const PanelGradientLevel& level = *panelGradientLevel();
  const int64_t columns = level.inputChannels(), all = shape_.input.channels;
  const int64_t first = task.input_panel * columns, count = std::min(columns, all - first);
  const int64_t slice_sums = input_panels_ * gradient_panels_ * taps_ * tap_sums_;
  for (int64_t channel = 0; channel < task.channels; ++channel) {
    const int64_t row = (task.gradient_panel * level.gradientChannels() + channel) * all + first;
    for (int64_t tap = 0; tap < task.taps; ++tap) {
      const float* from = sums + tap * tap_sums_ + channel * columns;
      float* to = out + row * taps_ + task.first_tap + tap;
      for (int64_t i = 0; i < count; ++i) {
        float sum = from[i];
        for (int64_t slice = 1; slice < slices_; ++slice)
          sum += from[i + slice * slice_sums];
        to[i * taps_] = sum;
      }
    }
  }
}

void PanelGradientStep::run(std::span<void* const> addresses, std::byte* scratch) const {
  const auto* input = static_cast<const float*>(addresses[slotA]);
  const auto* gradient = static_cast<const float*>(addresses[slotB]);
  auto* out = static_cast<float*>(addresses[slotOut]);
  int64_t begin[gradient_axes] = {};
  bool begins = true;
  for (int axis = 0; axis >= 0;) {
    const Chunk chunk = chunkAt(begin);
    packChunk(chunk, input, gradient, scratch);
    multiplyChunk(chunk, begins, scratch, out);
    begins = false;
    for (axis = last; axis >= 0; begin[axis--] = 0)
      if ((begin[axis] += box_[axis]) < shape_.gradient.sizes[axis])
        break;
  }
  if (at_once_)
    return;
  const PanelGradientLevel& level = *panelGradientLevel();
  overTeam(input_panels_ * gradient_panels_, 1, [&](int64_t first, int64_t end) {
    for (int64_t pair = first; pair < end; ++pair) {
      const int64_t panel = pair % gradient_panels_, channel = panel * level.gradientChannels();
      const Task task{0,     pair / gradient_panels_,
                      panel, std::min(level.gradientChannels(), shape_.gradient.channels - channel),
                      0,     taps_};
      finish(task, sumsOf(task, scratch), out);
    }
  });
}

}  // namespace zefuse::primitives
