// The gradient of the weight of a convolution that winograd.h computes, by Winograd's filtering F(3x3, 2x2): tiles of
// 4x4 inputs and of 2x2 gradients of the result are transformed to 16 numbers each, these are multiplied and summed
// over all tiles, 16 products for 36, and what comes of it is transformed to 3x3 once. For a window of several slices,
// each slice of the inputs is multiplied by those slices of the gradients that it meets, transformed once for all.
//
// Each sum has one order, whatever the number of threads. Where a result is not finite, it is computed anew by the
// definition.
#pragma once

#include "runtime/primitives/convolution/winograd.h"

namespace zefuse::primitives {

// Whether this processor has the vectors and the products saved are worth the transformations. `shape.out` is the
// gradient of the result; no post-ops.
bool winogradGradientPays(const WinogradShape& shape);

// slotA is the input, slotB the gradient of the result, slotOut the weight's gradient [O, C, slices, 3, 3], dense.
class WinogradGradientStep final : public OwnStep {
public:
  // Reserves the sequence's scratch.
  WinogradGradientStep(Sequence& sequence, WinogradShape shape);

  void pack(const void*, void*) const override {}
  // With the calling thread's team. Thread-safe.
  void run(std::span<void* const> addresses, std::byte* scratch) const override;

private:
  WinogradShape shape_;
  int threads_;
  int64_t tiles_, at_once_;  // of a slice: how many, and how many blocks are transformed before any is multiplied
  int64_t slices_;           // of the gradient of the result, that are transformed before any is multiplied
  bool by_pair_;  // of panels, whose sums become windows as soon as they are complete: without memory for all sums
  size_t inputs_at_, gradients_at_, sums_at_;  // in scratch
};

}  // namespace zefuse::primitives
