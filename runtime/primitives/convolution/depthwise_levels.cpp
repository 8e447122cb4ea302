#include "runtime/primitives/convolution/depthwise_rows.h"
#include "runtime/primitives/simd/cpu_isa.h"

namespace zefuse::primitives {

namespace {

using namespace depthwise;

[[ZEFUSE_AVX512]] void rowAvx512(const DepthwiseCall& call) { sumRow<16>(call); }
[[ZEFUSE_AVX2]] void rowAvx2(const DepthwiseCall& call) { sumRow<8>(call); }

[[ZEFUSE_AVX512]] void gradientAvx512(const DepthwiseShape& shape, const DepthwisePlaces& places,
                                      std::span<const DepthwiseTap> taps, std::span<const DepthwiseProduct> products,
                                      int64_t channel, float* sums) {
  sumSomeProducts<16, depthwise_taps>(shape, places, taps, products, channel, sums);
}
[[ZEFUSE_AVX2]] void gradientAvx2(const DepthwiseShape& shape, const DepthwisePlaces& places,
                                  std::span<const DepthwiseTap> taps, std::span<const DepthwiseProduct> products,
                                  int64_t channel, float* sums) {
  sumSomeProducts<8, depthwise_taps>(shape, places, taps, products, channel, sums);
}

}  // namespace

const DepthwiseLevel* depthwiseLevel() {
  static constexpr DepthwiseLevel avx512 = {16, rowAvx512, gradientAvx512}, avx2 = {8, rowAvx2, gradientAvx2};
  return hasIsa(dnnl_cpu_isa_avx512_core) ? &avx512 : hasIsa(dnnl_cpu_isa_avx2) ? &avx2 : nullptr;
}

}  // namespace zefuse::primitives
