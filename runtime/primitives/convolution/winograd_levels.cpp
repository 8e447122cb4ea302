#include "runtime/primitives/convolution/winograd_tiles.h"
#include "runtime/primitives/simd/cpu_isa.h"

namespace zefuse::primitives {

namespace {

using namespace winograd;

// Of registers: 24 of 32, and 12 of 16, hold sums.
template <int lanes> constexpr int rows_of = lanes == 16 ? 12 : 6;
constexpr int vectors = 2;

template <int lanes, int high>
[[gnu::always_inline]] inline void transformAll(const WinogradCall& call, const WinogradBlock& block, int64_t begin,
                                                int64_t end) {
  transformTiles<lanes, rows_of<lanes>, high>(call, block, begin, end);
}

template <int lanes, int high>
[[gnu::always_inline]] inline void multiplyBlock(const WinogradCall& call, const WinogradBlock& block, int64_t panel) {
  constexpr int rows = rows_of<lanes>;
  if (isHalf<lanes, vectors>(*call.shape, panel))
    multiplyPanel<lanes, rows, high, 1>(call, block, panel * vectors * lanes);
  else
    multiplyPanel<lanes, rows, high, vectors>(call, block, panel * vectors * lanes);
}

template <int lanes, int high>
[[gnu::always_inline]] inline bool packOne(const WinogradShape& shape, const WinogradWeight& weight, const float* from,
                                           bool plain, int64_t panel, float* packed) {
  if (isHalf<lanes, vectors>(shape, panel))
    return packChannels<lanes, 1, high>(shape, weight, from, plain, panel * vectors * lanes, packed);
  return packChannels<lanes, vectors, high>(shape, weight, from, plain, panel * vectors * lanes, packed);
}

// One function for each: a template's instances would not ask for their vectors' width.
[[ZEFUSE_AVX512]] void transformAvx512(const WinogradCall& call, const WinogradBlock& block, int64_t begin,
                                       int64_t end) {
  transformAll<16, 2>(call, block, begin, end);
}
[[ZEFUSE_AVX512]] void multiplyAvx512(const WinogradCall& call, const WinogradBlock& block, int64_t panel) {
  multiplyBlock<16, 2>(call, block, panel);
}
[[ZEFUSE_AVX512]] bool packAvx512(const WinogradShape& shape, const WinogradWeight& weight, const float* from,
                                  bool plain, int64_t panel, float* packed) {
  return packOne<16, 2>(shape, weight, from, plain, panel, packed);
}

[[ZEFUSE_AVX512]] void transformFlatAvx512(const WinogradCall& call, const WinogradBlock& block, int64_t begin,
                                           int64_t end) {
  transformAll<16, 1>(call, block, begin, end);
}
[[ZEFUSE_AVX512]] void multiplyFlatAvx512(const WinogradCall& call, const WinogradBlock& block, int64_t panel) {
  multiplyBlock<16, 1>(call, block, panel);
}
[[ZEFUSE_AVX512]] bool packFlatAvx512(const WinogradShape& shape, const WinogradWeight& weight, const float* from,
                                      bool plain, int64_t panel, float* packed) {
  return packOne<16, 1>(shape, weight, from, plain, panel, packed);
}

[[ZEFUSE_AVX2]] void transformAvx2(const WinogradCall& call, const WinogradBlock& block, int64_t begin, int64_t end) {
  transformAll<8, 2>(call, block, begin, end);
}
[[ZEFUSE_AVX2]] void multiplyAvx2(const WinogradCall& call, const WinogradBlock& block, int64_t panel) {
  multiplyBlock<8, 2>(call, block, panel);
}
[[ZEFUSE_AVX2]] bool packAvx2(const WinogradShape& shape, const WinogradWeight& weight, const float* from, bool plain,
                              int64_t panel, float* packed) {
  return packOne<8, 2>(shape, weight, from, plain, panel, packed);
}

[[ZEFUSE_AVX2]] void transformFlatAvx2(const WinogradCall& call, const WinogradBlock& block, int64_t begin,
                                       int64_t end) {
  transformAll<8, 1>(call, block, begin, end);
}
[[ZEFUSE_AVX2]] void multiplyFlatAvx2(const WinogradCall& call, const WinogradBlock& block, int64_t panel) {
  multiplyBlock<8, 1>(call, block, panel);
}
[[ZEFUSE_AVX2]] bool packFlatAvx2(const WinogradShape& shape, const WinogradWeight& weight, const float* from,
                                  bool plain, int64_t panel, float* packed) {
  return packOne<8, 1>(shape, weight, from, plain, panel, packed);
}

}  // namespace

const WinogradLevel* winogradLevel(bool flat) {
  static constexpr WinogradLevel avx512[] = {
      {16, rows_of<16>, vectors, transformAvx512, multiplyAvx512, packAvx512},
      {16, rows_of<16>, vectors, transformFlatAvx512, multiplyFlatAvx512, packFlatAvx512}};
  static constexpr WinogradLevel avx2[] = {{8, rows_of<8>, vectors, transformAvx2, multiplyAvx2, packAvx2},
                                           {8, rows_of<8>, vectors, transformFlatAvx2, multiplyFlatAvx2, packFlatAvx2}};
  return hasIsa(dnnl_cpu_isa_avx512_core) ? &avx512[flat] : hasIsa(dnnl_cpu_isa_avx2) ? &avx2[flat] : nullptr;
}

}  // namespace zefuse::primitives
