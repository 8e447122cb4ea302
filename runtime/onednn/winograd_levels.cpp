#include <dnnl.h>

#include "runtime/onednn/winograd_tiles.h"

namespace zefuse::onednn {

namespace {

using namespace winograd;

// Of registers: 24 of 32, and 12 of 16, hold sums.
template <int lanes> constexpr int rows_of = lanes == 16 ? 12 : 6;
constexpr int vectors = 2;

template <int lanes>
[[gnu::always_inline]] inline void transformAll(const WinogradCall& call, const WinogradBlock& block, int64_t begin,
                                                int64_t end) {
  transformTiles<lanes, rows_of<lanes>>(call, block, begin, end);
}

template <int lanes>
[[gnu::always_inline]] inline void multiplyBlock(const WinogradCall& call, const WinogradBlock& block, int64_t panel) {
  constexpr int rows = rows_of<lanes>;
  if (isHalf<lanes, vectors>(*call.shape, panel))
    multiplyPanel<lanes, rows, 1>(call, block, panel * vectors * lanes);
  else
    multiplyPanel<lanes, rows, vectors>(call, block, panel * vectors * lanes);
}

template <int lanes>
[[gnu::always_inline]] inline bool packOne(const WinogradShape& shape, const WinogradWeight& weight, const float* from,
                                           bool plain, int64_t panel, float* packed) {
  if (isHalf<lanes, vectors>(shape, panel))
    return packChannels<lanes, 1>(shape, weight, from, plain, panel * vectors * lanes, packed);
  return packChannels<lanes, vectors>(shape, weight, from, plain, panel * vectors * lanes, packed);
}

[[ZEFUSE_AVX512]] void transformAvx512(const WinogradCall& call, const WinogradBlock& block, int64_t begin,
                                       int64_t end) {
  transformAll<16>(call, block, begin, end);
}
[[ZEFUSE_AVX512]] void multiplyAvx512(const WinogradCall& call, const WinogradBlock& block, int64_t panel) {
  multiplyBlock<16>(call, block, panel);
}
[[ZEFUSE_AVX512]] bool packAvx512(const WinogradShape& shape, const WinogradWeight& weight, const float* from,
                                  bool plain, int64_t panel, float* packed) {
  return packOne<16>(shape, weight, from, plain, panel, packed);
}

[[ZEFUSE_AVX2]] void transformAvx2(const WinogradCall& call, const WinogradBlock& block, int64_t begin, int64_t end) {
  transformAll<8>(call, block, begin, end);
}
[[ZEFUSE_AVX2]] void multiplyAvx2(const WinogradCall& call, const WinogradBlock& block, int64_t panel) {
  multiplyBlock<8>(call, block, panel);
}
[[ZEFUSE_AVX2]] bool packAvx2(const WinogradShape& shape, const WinogradWeight& weight, const float* from, bool plain,
                              int64_t panel, float* packed) {
  return packOne<8>(shape, weight, from, plain, panel, packed);
}

}  // namespace

const WinogradLevel* winogradLevel() {
  static constexpr WinogradLevel avx512 = {16, rows_of<16>, vectors, transformAvx512, multiplyAvx512, packAvx512};
  static constexpr WinogradLevel avx2 = {8, rows_of<8>, vectors, transformAvx2, multiplyAvx2, packAvx2};
  const auto isa = unsigned(dnnl_get_effective_cpu_isa());
  auto has = [&](unsigned wanted) { return (isa & wanted) == wanted; };
  return has(dnnl_cpu_isa_avx512_core) ? &avx512 : has(dnnl_cpu_isa_avx2) ? &avx2 : nullptr;
}

}  // namespace zefuse::onednn
