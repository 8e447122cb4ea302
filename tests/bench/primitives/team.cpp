// What it costs that consecutive parallel regions want different numbers of threads: libgomp ends the threads that a
// smaller team does not use and starts them again. `make bench-team`; more threads than cores are worth a look, since
// the cost is in starting threads, not in running them.
//
//   shrinking   regions that ask for as many threads as they have parts, the way overTeam once did
//   whole team  regions of the whole team, of which some have nothing to do (overTeam)
#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <set>
#include <string>
#include <vector>

#include "common/plan/plan_generated.h"
#include "runtime/primitives/core/team.h"
#include "runtime/primitives/matmul/matmul.h"

extern "C" void GOMP_parallel(void (*function)(void*), void* data, unsigned threads, unsigned flags);

namespace zefuse {
namespace {

constexpr int rounds = 101;

// Median microseconds of `work`.
template <typename Work> double median(const Work& work) {
  for (int i = 0; i < 5; ++i)
    work();
  std::vector<double> times;
  for (int i = 0; i < rounds; ++i) {
    const auto start = std::chrono::steady_clock::now();
    work();
    times.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count());
  }
  std::ranges::nth_element(times, times.begin() + rounds / 2);
  return times[rounds / 2];
}

// Threads of this process that were started since the first call: their numbers only grow.
int startedThreads() {
  static int last = 0;
  int newest = last, count = 0;
  DIR* tasks = opendir("/proc/self/task");
  while (const dirent* task = readdir(tasks)) {
    const int id = std::atoi(task->d_name);
    count += id > last;
    newest = std::max(newest, id);
  }
  closedir(tasks);
  last = newest;
  return count;
}

// A large region and then a small one of `parts`, as a large and a small tensor in turn.
double shrinking(int threads, int parts) {
  const auto nothing = [](void*) {};
  return median([&] {
    GOMP_parallel(nothing, nullptr, unsigned(threads), 0);
    GOMP_parallel(nothing, nullptr, unsigned(parts), 0);
  });
}

double wholeTeam(int threads, int parts) {
  const std::function<void(int64_t, int64_t)> nothing = [](int64_t, int64_t) {};
  return median([&] {
    primitives::overTeam(threads, 1, nothing);
    primitives::overTeam(parts, 1, nothing);
  });
}

// Whether oneDNN, after a region of the whole team, started threads anew within ten products of this shape.
std::string threadsOfProduct(int64_t rows, int64_t inner, int64_t columns) {
  primitives::MatmulDesc desc;
  const auto dense = [](int64_t a, int64_t b) { return primitives::TensorDesc{plan::DType::f32, {a, b}, {b, 1}}; };
  desc.a = dense(rows, inner), desc.b = dense(inner, columns), desc.out = dense(rows, columns);
  auto product = primitives::Matmul::get(desc);
  if (!product.ok())
    return product.status().message();
  std::vector<float> a(size_t(rows * inner), 1), b(size_t(inner * columns), 1), out(size_t(rows * columns));
  const size_t scratch = (*product)->scratchBytes();
  void* memory = std::aligned_alloc(64, (scratch + 128) / 64 * 64);
  const primitives::Primitive::Arguments arguments{a.data(), b.data(), nullptr, out.data(), {}, memory};
  const std::function<void(int64_t, int64_t)> nothing = [](int64_t, int64_t) {};
  int started = 0;
  for (int i = 0; i < 10; ++i) {
    primitives::overTeam(primitives::maxThreads(), 1, nothing);
    started += i ? startedThreads() : (startedThreads(), 0);
    if (!(*product)->run(arguments).ok())
      return "failed";
  }
  std::free(memory);
  return std::to_string(started) + " threads in 9 turns (" + (*product)->implementation() + ")";
}

}  // namespace
}  // namespace zefuse

int main() {
  using namespace zefuse;
  std::printf("%ld cores; median us of a region of all parts and one of few\n", sysconf(_SC_NPROCESSORS_ONLN));
  std::printf("%8s %6s %10s %11s\n", "threads", "parts", "shrinking", "whole team");
  for (int threads : {4, 8, 16, 32, 64}) {
    primitives::setMaxThreads(threads);
    for (int parts : std::set{2, threads / 2}) {
      const double before = shrinking(threads, parts), after = wholeTeam(threads, parts);
      std::printf("%8d %6d %10.1f %11.1f\n", threads, parts, before, after);
    }
  }
  std::printf("\nthreads that oneDNN's own regions let end, 16 threads\n");
  primitives::setMaxThreads(16);
  for (auto [rows, inner, columns] :
       {std::array<int64_t, 3>{1, 64, 64}, {16, 384, 1536}, {128, 384, 384}, {512, 768, 768}, {1, 768, 32000}})
    std::printf("  %ldx%ldx%ld: %s\n", long(rows), long(inner), long(columns),
                threadsOfProduct(rows, inner, columns).c_str());
}
