// The gradient of a convolution's weight as products of matrices: for each element of the window (a tap), the
// gradients of the results, [out channels, places], times the inputs that they meet there, [places, channels]. Both are
// packed in panels of channels once for all taps: an element further along the window begins some places later in the
// same panel, and what meets padding is left out. Of any window, stride and dilation, without groups, of f32.
//
// Each sum has one order, whatever the number of threads, and takes in products of the definition alone: infinities
// and NaN come out as they must.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/primitives/core/sequence.h"

namespace zefuse::primitives {

constexpr int gradient_axes = 4;  // images, then up to three dimensions: those that are not there have one place

// Channels are contiguous. Strides in elements.
struct GradientImages {
  int64_t channels;
  int64_t sizes[gradient_axes], strides[gradient_axes];
};

// Along one axis; the images' axis is as a window of one.
struct GradientWindow {
  int64_t size = 1, stride = 1, padding = 0, dilation = 1;
};

struct PanelGradientShape {
  GradientImages input, gradient;  // of the convolution, and of its result
  GradientWindow window[gradient_axes];
};

bool panelGradientAvailable();  // whether this processor has the vectors, AVX2 or AVX-512
// Whether it has, and the products are worth the packing.
bool panelGradientPays(const PanelGradientShape& shape);

// slotA is the input, slotB the gradient of the result, slotOut the weight's gradient [O, C, window], dense.
class PanelGradientStep final : public OwnStep {
public:
  // Reserves the sequence's scratch.
  PanelGradientStep(Sequence& sequence, const PanelGradientShape& shape);

  void pack(const void*, void*) const override {}  // there is no weight
  // With the calling thread's team. Thread-safe.
  void run(std::span<void* const> addresses, std::byte* scratch) const override;

private:
  struct Chunk;
  struct Task;

  Chunk chunkAt(const int64_t (&begin)[gradient_axes]) const;
  void packChunk(const Chunk& chunk, const float* input, const float* gradient, std::byte* scratch) const;
  void multiplyChunk(const Chunk& chunk, bool begins, std::byte* scratch, float* out) const;
  void sumTask(const Chunk& chunk, bool begins, const Task& task, const std::byte* scratch, float* sums) const;
  void finish(const Task& task, const float* sums, float* out) const;
  float* sumsOf(const Task& task, std::byte* scratch) const;

  PanelGradientShape shape_;
  int threads_;
  int64_t taps_, tap_sums_;  // and the sums of one tap of a pair of panels
  int64_t input_panels_, gradient_panels_;
  int64_t box_[gradient_axes];  // of results' places that are packed at once
  bool at_once_;                // all are packed before any is multiplied: sums are complete while they are near
  int64_t slices_;              // of each chunk's places, with sums of their own: more work to share out
  int64_t input_places_, gradient_places_;   // of a packed panel
  size_t input_at_, gradient_at_, sums_at_;  // in scratch
};

}  // namespace zefuse::primitives
