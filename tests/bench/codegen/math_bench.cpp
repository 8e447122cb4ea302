// ns per element of the inline polynomials against glibc's libmvec, on data in the first-level cache. Minimum of many
// runs: other work on the machine only adds.
#include "drivers/cpu/codegen/codegen.h"
#include "tests/bench/codegen/mvec_loops.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>

using namespace zefuse::cpu;

namespace {

constexpr int kRuns = 3000;

template <typename F> double nsPerElement(F f) {
  double best = 1e30;
  for (int r = 0; r < kRuns; ++r) {
    auto t = std::chrono::steady_clock::now();
    f();
    best = std::min(best, std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - t).count());
  }
  return best / kElements;
}

struct Row {
  const char* name;
  void (*mvec256)(const float*, float*);
  void (*mvec512)(const float*, float*);
};
const Row kRows[] = {
    {"exp", exp_256, exp_512},       {"tanh", tanh_256, tanh_512}, {"erf", erf_256, erf_512},
    {"log", log_256, log_512},       {"exp2", exp2_256, exp2_512}, {"expm1", expm1_256, expm1_512},
    {"log1p", log1p_256, log1p_512}, {"sin", sin_256, sin_512},
};

}  // namespace

int main() {
  std::ifstream f(KERNEL_FILE, std::ios::binary | std::ios::ate);
  std::vector<uint32_t> words(f.tellg() / 4);
  f.seekg(0);
  f.read(reinterpret_cast<char*>(words.data()), words.size() * 4);
  alignas(64) static float x[kElements], y[kElements];
  for (IsaLevel isa : {IsaLevel::x86_64_v3, IsaLevel::avx512}) {
    if (isa > hostIsaLevel())
      break;
    CompileResult r = compileSpirv(words, {.isa = isa});
    std::string log = r.log;
    auto m = r.ok ? LoadedModule::load(r.native, log) : nullptr;
    if (!m) {
      fprintf(stderr, "%s\n", log.c_str());
      return 1;
    }
    printf("%s\n%-8s %12s %12s %12s   (ns per element)\n", isaLevelName(isa), "", "16 lanes", "scalar loop", "libmvec");
    for (const Row& row : kRows) {
      bool positive = row.name[0] == 'l';
      for (long i = 0; i < kElements; ++i)
        x[i] = positive ? 0.01f + 0.005f * i : -8 + 16.0f * i / kElements;
      const float* px = x;
      float* py = y;
      long n = kElements;
      const void* args[] = {&px, &py, &n};
      auto time = [&](const char* suffix, uint64_t local) {
        for (size_t k = 0; k < m->kernels().size(); ++k)
          if (m->kernels()[k].name == std::string(row.name) + suffix) {
            LaunchContext launch{{kElements / 1024, 1, 1}, {local, 1, 1}, {0, 0, 0}, 1};
            return nsPerElement([&] {
              for (uint64_t g = 0; g < (local == 1 ? 1 : kElements / local); ++g) {
                uint64_t id[3] = {g, 0, 0};
                m->entry(k)(args, &launch, id, nullptr);
              }
            });
          }
        return -1.0;
      };
      double wide = time("_16", 1), scalar = time("_1", 1024);
      double mvec = nsPerElement([&] { (isa == IsaLevel::x86_64_v3 ? row.mvec256 : row.mvec512)(x, y); });
      printf("%-8s %12.3f %12.3f %12.3f\n", row.name, wide, scalar, mvec);
    }
  }
}
