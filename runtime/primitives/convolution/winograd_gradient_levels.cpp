#include <dnnl.h>

#include "runtime/primitives/convolution/winograd_gradient_tiles.h"

namespace zefuse::primitives {

namespace {

// As of forward products, 24 of 32 registers and 12 of 16 hold sums; panels of the gradient are some times as many
// rows.
constexpr int sums_of_input = 2, vectors_of_gradient = 3;

template <int lanes> constexpr int gradient_rows = lanes == 16 ? 12 : 6;

template <int lanes>
[[gnu::always_inline]] inline void sumFor(const WinogradRun& run, const float* inputs, const float* gradients,
                                          int64_t channels, bool half, bool begins, float* sums) {
  winograd::sumPanels<lanes, gradient_rows<lanes>, sums_of_input, vectors_of_gradient>(run, inputs, gradients, channels,
                                                                                       half, begins, sums);
}

[[ZEFUSE_AVX512]] void inputTilesAvx512(const WinogradGradientCall& call, int64_t slice, int64_t first, int64_t count,
                                        int64_t at, float* inputs) {
  winograd::transformInputs<16, sums_of_input>(call, slice, first, count, at, inputs);
}
[[ZEFUSE_AVX512]] void gradientTilesAvx512(const WinogradGradientCall& call, int64_t slice, int64_t first,
                                           int64_t count, int64_t at, float* gradients) {
  winograd::transformGradients<16, vectors_of_gradient>(call, slice, first, count, at, gradients);
}
[[ZEFUSE_AVX512]] void gradientSumsAvx512(const WinogradRun& run, const float* inputs, const float* gradients,
                                          int64_t channels, bool half, bool begins, float* sums) {
  sumFor<16>(run, inputs, gradients, channels, half, begins, sums);
}
[[ZEFUSE_AVX512]] void gradientWindowsAvx512(const WinogradGradientCall& call, const float* sums, int64_t position,
                                             int64_t slice, int64_t input_panel, int64_t out_channel) {
  winograd::finishWindows<16, sums_of_input>(call, sums, position, slice, input_panel, out_channel);
}

[[ZEFUSE_AVX2]] void inputTilesAvx2(const WinogradGradientCall& call, int64_t slice, int64_t first, int64_t count,
                                    int64_t at, float* inputs) {
  winograd::transformInputs<8, sums_of_input>(call, slice, first, count, at, inputs);
}
[[ZEFUSE_AVX2]] void gradientTilesAvx2(const WinogradGradientCall& call, int64_t slice, int64_t first, int64_t count,
                                       int64_t at, float* gradients) {
  winograd::transformGradients<8, vectors_of_gradient>(call, slice, first, count, at, gradients);
}
[[ZEFUSE_AVX2]] void gradientSumsAvx2(const WinogradRun& run, const float* inputs, const float* gradients,
                                      int64_t channels, bool half, bool begins, float* sums) {
  sumFor<8>(run, inputs, gradients, channels, half, begins, sums);
}
[[ZEFUSE_AVX2]] void gradientWindowsAvx2(const WinogradGradientCall& call, const float* sums, int64_t position,
                                         int64_t slice, int64_t input_panel, int64_t out_channel) {
  winograd::finishWindows<8, sums_of_input>(call, sums, position, slice, input_panel, out_channel);
}

}  // namespace

const WinogradGradientLevel* winogradGradientLevel() {
  static constexpr WinogradGradientLevel avx512 = {16,
                                                   sums_of_input,
                                                   vectors_of_gradient,
                                                   inputTilesAvx512,
                                                   gradientTilesAvx512,
                                                   gradientSumsAvx512,
                                                   gradientWindowsAvx512};
  static constexpr WinogradGradientLevel avx2 = {
      8, sums_of_input, vectors_of_gradient, inputTilesAvx2, gradientTilesAvx2, gradientSumsAvx2, gradientWindowsAvx2};
  const WinogradLevel* forward = winogradLevel();
  return !forward ? nullptr : forward->lanes == avx512.lanes ? &avx512 : &avx2;
}

}  // namespace zefuse::primitives
