#include "runtime/primitives/convolution/panel_gradient_sums.h"
#include "runtime/primitives/simd/cpu_isa.h"

namespace zefuse::primitives {

namespace {

// 24 of 32 registers, 12 of 16, hold sums; panels of the gradient are some times as many rows.
constexpr int vectors_of_input = 2, vectors_of_gradient = 3;
template <int lanes> constexpr int rows_of = lanes == 16 ? 12 : 6;
// Of the input's panel these are 16 KiB.
template <int lanes> constexpr int64_t places_of = 8192 / (vectors_of_input * lanes);

template <int lanes>
[[gnu::always_inline]] inline void sumFor(std::span<const GradientRun> runs, const float* inputs, int64_t step,
                                          const float* gradients, int64_t channels, bool half, bool begins,
                                          float* sums) {
  panel_gradient::sumPanels<lanes, rows_of<lanes>, vectors_of_input, vectors_of_gradient>(runs, inputs, step, gradients,
                                                                                          channels, half, begins, sums);
}

[[ZEFUSE_AVX512]] void inputsAvx512(const float* from, int64_t stride, int64_t places, int64_t channels, float* to,
                                    int64_t panel) {
  panel_gradient::packPanels<16, vectors_of_input>(from, stride, places, channels, to, panel);
}
[[ZEFUSE_AVX512]] void gradientsAvx512(const float* from, int64_t stride, int64_t places, int64_t channels, float* to,
                                       int64_t panel) {
  panel_gradient::packPanels<16, vectors_of_gradient>(from, stride, places, channels, to, panel);
}
[[ZEFUSE_AVX512]] void sumAvx512(std::span<const GradientRun> runs, const float* inputs, int64_t step,
                                 const float* gradients, int64_t channels, bool half, bool begins, float* sums) {
  sumFor<16>(runs, inputs, step, gradients, channels, half, begins, sums);
}

[[ZEFUSE_AVX2]] void inputsAvx2(const float* from, int64_t stride, int64_t places, int64_t channels, float* to,
                                int64_t panel) {
  panel_gradient::packPanels<8, vectors_of_input>(from, stride, places, channels, to, panel);
}
[[ZEFUSE_AVX2]] void gradientsAvx2(const float* from, int64_t stride, int64_t places, int64_t channels, float* to,
                                   int64_t panel) {
  panel_gradient::packPanels<8, vectors_of_gradient>(from, stride, places, channels, to, panel);
}
[[ZEFUSE_AVX2]] void sumAvx2(std::span<const GradientRun> runs, const float* inputs, int64_t step,
                             const float* gradients, int64_t channels, bool half, bool begins, float* sums) {
  sumFor<8>(runs, inputs, step, gradients, channels, half, begins, sums);
}

}  // namespace

const PanelGradientLevel* panelGradientLevel() {
  static constexpr PanelGradientLevel avx512 = {
      16, vectors_of_input, vectors_of_gradient, places_of<16>, inputsAvx512, gradientsAvx512, sumAvx512};
  static constexpr PanelGradientLevel avx2 = {
      8, vectors_of_input, vectors_of_gradient, places_of<8>, inputsAvx2, gradientsAvx2, sumAvx2};
  return hasIsa(dnnl_cpu_isa_avx512_core) ? &avx512 : hasIsa(dnnl_cpu_isa_avx2) ? &avx2 : nullptr;
}

}  // namespace zefuse::primitives
