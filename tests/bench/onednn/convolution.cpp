// `zefuse_convolution_bench [unpacked] [weights] BATCH,IN,OUT,HEIGHT,WIDTH[,DILATION] ...`: convolutions of 3x3 with
// steps of one, oneDNN's direct ones and Winograd's in turns: processor time of one thread, medians. Says which of the
// two is taken. `unpacked`: with the weight's transformation in each call. `weights`: the weight's gradient.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

#include "common/plan/plan_generated.h"
#include "runtime/onednn/convolution.h"
#include "runtime/onednn/team.h"

namespace {

using namespace zefuse::onednn;
using zefuse::plan::ConvolutionKind;
using zefuse::plan::DType;
using zefuse::plan::LibraryWay;

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

struct Contender {
  std::shared_ptr<const Convolution> convolution;
  std::unique_ptr<Memory> packed, scratch;
  std::vector<double> times;
};

void compare(const std::vector<int64_t>& shape, bool pack, bool gradient) {
  const int64_t batch = shape[0], in = shape[1], out = shape[2], height = shape[3], width = shape[4];
  const int64_t dilation = shape.size() > 5 ? shape[5] : 1;
  ConvolutionDesc desc;
  desc.kind = gradient ? ConvolutionKind::weights : ConvolutionKind::forward;
  desc.input = image(batch, in, height, width);
  desc.weight = {DType::f32, {out, in, 3, 3}, {in * 9, 9, 3, 1}};
  desc.out = image(batch, out, height, width);
  if (gradient)
    std::swap(desc.weight, desc.out);
  else
    desc.bias = TensorDesc{DType::f32, {out}, {1}};
  desc.stride = {1, 1};
  desc.padding = desc.dilation = {dilation, dilation};
  desc.pack_weight = pack && !gradient;
  const size_t images = size_t(batch * height * width) * sizeof(float), window = size_t(in * out * 9) * sizeof(float);
  Memory x(images * size_t(in)), y(images * size_t(out)), w(window), bias(size_t(out) * sizeof(float));
  std::vector<Contender> contenders;
  std::string taken;
  for (LibraryWay way : {LibraryWay::automatic, LibraryWay::direct, LibraryWay::winograd}) {
    desc.way = way;
    auto found = Convolution::get(desc);
    if (!found.ok()) {
      std::printf("%s\n", found.status().toString().c_str());
      return;
    }
    if (way == LibraryWay::automatic) {
      taken = (*found)->implementation();
      continue;
    }
    Contender each{*found, nullptr, nullptr, {}};
    each.scratch = std::make_unique<Memory>((*found)->scratchBytes());
    if ((*found)->packedBytes()) {
      each.packed = std::make_unique<Memory>((*found)->packedBytes());
      (void)(*found)->packB(w.data, each.packed->data);
    }
    contenders.push_back(std::move(each));
  }
  double spent = 0;
  for (int turn = 0; turn < 400 && (turn < 5 || spent < 400); ++turn)
    for (Contender& each : contenders) {
      const void* b = gradient ? y.data : each.packed ? each.packed->data : w.data;
      void* to = gradient ? w.data : y.data;
      const double begin = milliseconds();
      (void)each.convolution->run({x.data, b, gradient ? nullptr : bias.data, to, {}, each.scratch->data});
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
  std::printf("%2ld x c%ld-%ld, %ldx%ld, dilation %ld: direct %8.3f ms, Winograd %8.3f, ratio %5.2f; taken: %s\n",
              long(batch), long(in), long(out), long(height), long(width), long(dilation), medians[0], medians[1],
              medians[0] / medians[1], taken.c_str());
  std::fflush(stdout);
}

}  // namespace

int main(int count, char** arguments) {
  bool pack = true, gradient = false;
  setMaxThreads(1);
  for (int i = 1; i < count; ++i) {
    const std::string text = arguments[i];
    if (text == "unpacked") {
      pack = false;
    } else if (text == "weights") {
      gradient = true;
    } else {
      std::vector<int64_t> shape;
      for (const char* at = arguments[i]; *at;) {
        char* end;
        shape.push_back(std::strtol(at, &end, 10));
        at = *end ? end + 1 : end;
      }
      if (shape.size() != 5 && shape.size() != 6) {
        std::fprintf(stderr, "%s is not BATCH,IN,OUT,HEIGHT,WIDTH or that with DILATION\n", arguments[i]);
        return 1;
      }
      compare(shape, pack, gradient);
    }
  }
}
