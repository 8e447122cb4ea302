#include "runtime/primitives/simd/vector_memory.h"

#include <dnnl.hpp>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

namespace zefuse::primitives::testing {
namespace {

template <int lanes> [[gnu::always_inline]] inline void loadAndStore(const float* from, float* to, int64_t count) {
  typename VectorOf<lanes>::Float x;
  load<lanes>(x, from, count);
  *reinterpret_cast<typename VectorOf<lanes>::Float*>(to) = x;
  store<lanes>(to + lanes, x, count);
}
void four(const float* from, float* to, int64_t count) { loadAndStore<4>(from, to, count); }
[[ZEFUSE_AVX2]] void eight(const float* from, float* to, int64_t count) { loadAndStore<8>(from, to, count); }
[[ZEFUSE_AVX512]] void sixteen(const float* from, float* to, int64_t count) { loadAndStore<16>(from, to, count); }

// Elements that end where the next page may not be read.
class Edge {
public:
  Edge() : page_(size_t(sysconf(_SC_PAGESIZE))) {
    begin_ = static_cast<char*>(mmap(nullptr, 2 * page_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    mprotect(begin_ + page_, page_, PROT_NONE);
  }
  Edge(const Edge&) = delete;
  ~Edge() { munmap(begin_, 2 * page_); }
  float* end() const { return reinterpret_cast<float*>(begin_ + page_); }

private:
  size_t page_;
  char* begin_;
};

void expectParts(int lanes, void (*move)(const float*, float*, int64_t)) {
  Edge edge;
  for (int64_t count = -1; count <= lanes; ++count) {
    const int64_t some = std::max<int64_t>(count, 0);
    float* from = edge.end() - some;
    for (int64_t i = 0; i < some; ++i)
      from[i] = float(i + 1);
    std::vector<float> to(size_t(3 * lanes), -1.f);
    move(from, to.data(), count);
    for (int64_t i = 0; i < lanes; ++i) {
      EXPECT_EQ(to[size_t(i)], i < some ? float(i + 1) : 0.f) << lanes << " " << count << " " << i;
      EXPECT_EQ(to[size_t(lanes + i)], i < some ? float(i + 1) : -1.f) << lanes << " " << count << " " << i;
      EXPECT_EQ(to[size_t(2 * lanes + i)], -1.f);
    }
  }
}

TEST(VectorMemory, PartsOfVectors) {
  const auto isa = unsigned(dnnl::get_effective_cpu_isa());
  auto has = [&](dnnl::cpu_isa wanted) { return (isa & unsigned(wanted)) == unsigned(wanted); };
  expectParts(4, four);
  if (has(dnnl::cpu_isa::avx2))
    expectParts(8, eight);
  if (has(dnnl::cpu_isa::avx512_core))
    expectParts(16, sixteen);
}

}  // namespace
}  // namespace zefuse::primitives::testing
