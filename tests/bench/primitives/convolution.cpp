// `zefuse_convolution_bench [unpacked] [weights] [panels] [depthwise] [normalized] [groups=GROUPS]
// [slices=DEPTH[,WINDOW]] BATCH,IN,OUT,HEIGHT,WIDTH[,DILATION[,WINDOW[,STRIDE]]] ...`: oneDNN's direct convolutions and
// our own in turns: processor time of one thread, medians. Ours are Winograd's for 3x3 and steps of one, panels for
// windows of one, and depthwise ones, whose OUT is IN; `normalized`: with a batch norm and relu behind it. HEIGHT 1 is
// a convolution along one dimension. Says which is taken. `unpacked`: with the weight's transformation in each call.
// `weights`: the weight's gradient, by Winograd's or, with `panels`, in panels. `slices`: images of three dimensions.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

#include "common/plan/plan_generated.h"
#include "runtime/primitives/convolution/convolution.h"
#include "runtime/primitives/core/sequence.h"
#include "runtime/primitives/core/team.h"

namespace {

using namespace zefuse::primitives;
using zefuse::plan::ConvolutionKind;
using zefuse::plan::DType;
using zefuse::plan::LibraryWay;
using zefuse::plan::PostOpKind;

double milliseconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return double(now.tv_sec) * 1e3 + double(now.tv_nsec) * 1e-6;
}

struct Memory {
  explicit Memory(size_t bytes) : data(static_cast<float*>(std::aligned_alloc(64, (bytes + 127) / 64 * 64))) {
    for (size_t i = 0; i < bytes / sizeof(float); ++i)
      data[i] = float(i % 251) / 251 - 0.5f;
  }
  Memory(const Memory&) = delete;
  ~Memory() { std::free(data); }
  float* data;
};

TensorDesc image(int64_t batch, int64_t channels, int64_t height, int64_t width) {
  return {DType::f32, {batch, channels, height, width}, {channels * height * width, 1, channels * width, channels}};
}

// Of one dimension: an image of one row.
TensorDesc alongOne(TensorDesc image) {
  image.sizes.erase(image.sizes.begin() + 2);
  image.strides.erase(image.strides.begin() + 2);
  return image;
}

// Images of one slice become such of `depth`, with one of padding on each side of a window of 3.
void deepen(ConvolutionDesc& desc, int64_t depth, int64_t window) {
  auto insert = [](TensorDesc& tensor, int64_t size, int64_t stride) {
    tensor.sizes.insert(tensor.sizes.begin() + 2, size);
    tensor.strides.insert(tensor.strides.begin() + 2, stride);
  };
  for (TensorDesc* tensor : {&desc.input, &desc.out}) {
    insert(*tensor, depth, tensor->strides[0]);
    tensor->strides[0] *= depth;
  }
  insert(desc.weight, window, desc.weight.strides[1]);
  for (int64_t d : {0, 1})
    desc.weight.strides[size_t(d)] *= window;
  desc.stride.insert(desc.stride.begin(), 1);
  desc.padding.insert(desc.padding.begin(), (window - 1) / 2);
  desc.dilation.insert(desc.dilation.begin(), 1);
}

struct Contender {
  std::shared_ptr<const Convolution> convolution;
  std::unique_ptr<Memory> packed, scratch;
  std::vector<double> times;
};

struct Slices {
  int64_t depth = 0, window = 3;
};

struct Options {
  bool pack = true, gradient = false, panels = false, depthwise = false, normalized = false;
  int64_t groups = 1;
};

void compare(const std::vector<int64_t>& shape, const Slices& slices, const Options& options) {
  const auto [pack, gradient, panels, depthwise, normalized, groups] = options;
  const int64_t batch = shape[0], in = shape[1], out = shape[2], height = shape[3], width = shape[4];
  auto at = [&](size_t i, int64_t usual) { return shape.size() > i ? shape[i] : usual; };
  const int64_t dilation = at(5, 1), window = at(6, 3), stride = at(7, 1), each = depthwise ? 1 : in / groups;
  const int64_t padding = dilation * (window - 1) / 2, reach = dilation * (window - 1) + 1;
  auto results = [&](int64_t size) { return (size + 2 * padding - reach) / stride + 1; };
  ConvolutionDesc desc;
  desc.kind = gradient ? ConvolutionKind::weights : ConvolutionKind::forward;
  desc.groups = depthwise ? in : groups;
  desc.input = image(batch, in, height, width);
  desc.weight = {DType::f32, {out, each, window, window}, {each * window * window, window * window, window, 1}};
  desc.out = image(batch, out, height == 1 ? 1 : results(height), results(width));
  desc.stride = {stride, stride};
  desc.padding = {padding, padding};
  desc.dilation = {dilation, dilation};
  if (height == 1) {
    desc.input = alongOne(desc.input);
    desc.out = alongOne(desc.out);
    desc.weight = {DType::f32, {out, each, window}, {each * window, window, 1}};
    desc.stride = {stride};
    desc.padding = {padding};
    desc.dilation = {dilation};
  }
  if (slices.depth)
    deepen(desc, slices.depth, slices.window);
  if (gradient)
    std::swap(desc.weight, desc.out);
  else
    desc.bias = TensorDesc{DType::f32, {out}, {1}};
  desc.pack_weight = pack && !gradient;
  if (normalized) {
    TensorDesc each{DType::f32, std::vector<int64_t>(desc.out.sizes.size(), 1), {}};
    each.sizes[1] = out;
    each.strides = each.sizes;
    each.strides[0] = out;
    each.strides[1] = 1;
    desc.post_ops = {{PostOpKind::mul, each}, {PostOpKind::add, each}, {PostOpKind::relu, {}}};
  }
  const TensorDesc &result = gradient ? desc.weight : desc.out, &windows = gradient ? desc.out : desc.weight;
  Memory x(bytesOf(desc.input)), y(bytesOf(result)), w(bytesOf(windows)), bias(size_t(out) * sizeof(float));
  std::vector<Contender> contenders;
  std::string taken, other;
  const LibraryWay ours = depthwise               ? LibraryWay::automatic
                          : panels || window == 1 ? LibraryWay::panels
                                                  : LibraryWay::winograd;
  for (LibraryWay way : {LibraryWay::automatic, LibraryWay::direct, ours}) {
    desc.way = way;
    auto found = Convolution::get(desc);
    if (!found.ok()) {
      std::printf("%s\n", found.status().toString().c_str());
      return;
    }
    if (taken.empty()) {
      taken = (*found)->implementation();
      continue;
    }
    Contender each{*found, nullptr, nullptr, {}};
    if (way == LibraryWay::direct)
      other = (*found)->implementation();
    each.scratch = std::make_unique<Memory>((*found)->scratchBytes());
    if ((*found)->packedBytes()) {
      each.packed = std::make_unique<Memory>((*found)->packedBytes());
      (void)(*found)->packB(w.data, each.packed->data);
    }
    contenders.push_back(std::move(each));
  }
  const void* operands[] = {bias.data, bias.data, nullptr};
  const std::span<const void* const> post_ops(operands, desc.post_ops.size());
  double spent = 0;
  for (int turn = 0; turn < 400 && (turn < 5 || spent < 400); ++turn)
    for (Contender& each : contenders) {
      const void* b = gradient ? y.data : each.packed ? each.packed->data : w.data;
      void* to = gradient ? w.data : y.data;
      const double begin = milliseconds();
      (void)each.convolution->run({x.data, b, gradient ? nullptr : bias.data, to, post_ops, each.scratch->data});
      const double took = milliseconds() - begin;
      spent += took;
      if (turn >= 2)  // what is touched for the first time
        each.times.push_back(took);
    }
  double medians[2];
  for (size_t i = 0; i < 2; ++i) {
    auto& times = contenders[i].times;
    std::ranges::nth_element(times, times.begin() + std::ptrdiff_t(times.size() / 2));
    medians[i] = times[times.size() / 2];
  }
  if (slices.depth)
    std::printf("%ld slices, window of %ld: ", long(slices.depth), long(slices.window));
  std::printf("%2ld x c%ld-%ld, %ldx%ld, window %ld by %ld, dilation %ld: direct %8.3f ms, ours %8.3f, ratio %5.2f; "
              "direct is %s; taken: %s\n",
              long(batch), long(in), long(out), long(height), long(width), long(window), long(stride), long(dilation),
              medians[0], medians[1], medians[0] / medians[1], other.c_str(), taken.c_str());
  std::fflush(stdout);
}

}  // namespace

int main(int count, char** arguments) {
  Options options;
  Slices slices;
  setMaxThreads(1);
  for (int i = 1; i < count; ++i) {
    const std::string text = arguments[i];
    if (text == "unpacked") {
      options.pack = false;
    } else if (text == "weights") {
      options.gradient = true;
    } else if (text == "panels") {
      options.panels = true;
    } else if (text == "depthwise") {
      options.depthwise = true;
    } else if (text == "normalized") {
      options.normalized = true;
    } else if (text.starts_with("groups=")) {
      options.groups = std::atol(arguments[i] + 7);
    } else if (text.starts_with("slices=")) {
      slices = {};
      if (std::sscanf(arguments[i], "slices=%ld,%ld", &slices.depth, &slices.window) < 1)
        return 1;
    } else {
      std::vector<int64_t> shape;
      for (const char* at = arguments[i]; *at;) {
        char* end;
        shape.push_back(std::strtol(at, &end, 10));
        at = *end ? end + 1 : end;
      }
      if (shape.size() < 5 || shape.size() > 8) {
        std::fprintf(stderr, "%s is not BATCH,IN,OUT,HEIGHT,WIDTH[,DILATION[,WINDOW[,STRIDE]]]\n", arguments[i]);
        return 1;
      }
      compare(shape, slices, options);
    }
  }
}
