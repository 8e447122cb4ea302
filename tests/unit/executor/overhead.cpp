// What a call and a launch cost besides their work, in nanoseconds. Run by hand; no test.
#include <algorithm>
#include <chrono>
#include <cstdio>

#include "runtime/executor/derived_weights.h"
#include "tests/unit/executor/call.h"
#include "tests/unit/executor/kernels.h"

extern "C" void omp_set_num_threads(int);

namespace zefuse {
namespace {

using test::HostTensor;
using test::PlanBuilder;

double nanosecondsPer(int count, const auto& work) {
  double best = 1e18;
  for (int round = 0; round < 20; ++round) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < count; ++i)
      work();
    best = std::min(best, std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count());
  }
  return best / count;
}

// `launches` kernels in a row over `extent` elements of [1024], by symbols or not; then `matmuls` of 4x4.
double callCost(int launches, int64_t extent, bool dynamic, int matmuls = 0) {
  PlanBuilder b;
  const uint32_t n = b.constant(1024), four = b.constant(4);
  const uint32_t s0 = dynamic ? b.symbol("s0", 0, 0) : n;
  const uint32_t x = b.tensorInput("x", plan::DType::f32, {s0});
  const uint32_t w = b.tensorInput("w", plan::DType::f32, {four, four}, plan::InputKind::parameter);
  const uint32_t out = b.outputTensor(plan::DType::f32, {s0});
  const uint32_t t = b.arenaTensor(plan::DType::f32, {n}, 0, uint32_t(launches + matmuls));
  const uint32_t square = b.value(b.plan.values[t]->buffer, plan::DType::f32, {four, four}, {four, b.constant(1)});
  if (launches)
    b.module("add", "add", test::kernelsSpirv());
  for (int i = 0; i < launches; ++i) {
    plan::LaunchT launch;
    launch.args = {i ? t : x, x, i + 1 < launches ? t : out};
    launch.outputs = 1;
    launch.extent = b.constant(extent);
    launch.symbols = {launch.extent};
    launch.grain = 8;
    b.step(std::move(launch));
  }
  for (int i = 0; i < matmuls; ++i)
    b.matmul(square, w, square);
  b.copy(x, out);
  auto made = Executable::create(b.finish(), {});
  if (!made.ok()) {
    std::fprintf(stderr, "%s\n", made.status().toString().c_str());
    std::exit(1);
  }
  HostTensor in = HostTensor::f32({1024}, std::vector<float>(1024, 1));
  HostTensor weight = HostTensor::f32({4, 4}, std::vector<float>(16, 1));
  const CallInput inputs[] = {in.input(), weight.input()};
  alignas(64) static float result[1024];
  const AllocateOutput allocate = [](const OutputRequest&) -> Result<void*> { return static_cast<void*>(result); };
  return nanosecondsPer(2000, [&] {
    auto outputs = (*made)->call(inputs, allocate);
    if (!outputs.ok()) {
      std::fprintf(stderr, "%s\n", outputs.status().toString().c_str());
      std::exit(1);
    }
  });
}

}  // namespace
}  // namespace zefuse

int main() {
  using namespace zefuse;
  for (int threads : {1, 2}) {
    omp_set_num_threads(threads);
    const double empty = callCost(0, 1, false), dynamic = callCost(0, 1, true);
    std::printf("%d threads: call with one 4 KB copy %.0f ns (dynamic size %.0f ns)\n", threads, empty, dynamic);
    const double one = callCost(1, 1, false), many = callCost(21, 1, false);
    std::printf("  launch of one group: %.0f ns each; first %.0f ns\n", (many - one) / 20, one - empty);
    const double wide = (callCost(21, 64, false) - callCost(1, 64, false)) / 20;
    std::printf("  launch of min(8, threads) groups: %.0f ns each\n", wide);
    std::printf("  matmul 4x4x4, weight checked: %.0f ns each\n",
                (callCost(0, 1, false, 21) - callCost(0, 1, false, 1)) / 20);
  }
  // Many weights, so that each is cold when it is looked at again.
  std::vector<std::vector<float>> weights(64, std::vector<float>(1 << 18, 1.5f));
  uint64_t sum = 0;
  size_t next = 0;
  const double cold =
      nanosecondsPer(640, [&] { sum += executor::fingerprint(weights[next++ % 64].data(), size_t(1) << 20); });
  const double warm = nanosecondsPer(640, [&] { sum += executor::fingerprint(weights[0].data(), size_t(1) << 20); });
  std::printf("fingerprint of 1 MB: %.0f ns cold, %.0f ns warm (%d)\n", cold, warm, int(sum & 1));
}
