// Depthwise convolutions of f32 by the definition, for what oneDNN has no kernel for: volumes, above all. It has its
// depthwise kernels for images alone, and takes what it has for groups, or its reference, for the rest, which is 10 to
// 100 times as long. A vector holds as many channels, of a place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/primitives/core/sequence.h"

namespace zefuse::primitives {

// Volumes whose channels are contiguous; what has fewer dimensions is one place deep and high. Strides in elements.
struct DepthwiseVolume {
  int64_t sizes[3], strides[3];
  int64_t image;  // from one to the next
};

// A post-op that is computed with the results.
struct DepthwisePostOp {
  plan::PostOpKind kind{};
  int slot = -1;  // of the operand, whose strides follow; 0 where it is repeated
  int64_t image = 0, channel = 0, strides[3] = {};
};

struct DepthwiseShape {
  int64_t images, channels;
  DepthwiseVolume input, out;
  int64_t window[3], stride[3], padding[3], dilation[3];
  bool transposed;  // places of the input are apart by the stride, not those of the result
  std::vector<DepthwisePostOp> post_ops;
};

// Of [C, 1, window], which may lie mirrored; of its gradient too.
struct DepthwiseWeight {
  int64_t channel, strides[3];
  size_t origin = 0;    // bytes to the element of index 0
  bool narrow = false;  // bf16
};

struct DepthwisePlaces;  // depthwise_rows.h

bool depthwiseAvailable();  // whether this processor has the vectors, AVX2 or AVX-512

// Results: out, from slotA and the weight.
class DepthwiseStep final : public OwnStep {
public:
  // `has_bias`: slotBias is one f32 for each channel. `packed`: slotWeights holds what pack() made; else it is scratch
  // for that. Reserves the sequence's scratch.
  DepthwiseStep(Sequence& sequence, DepthwiseShape shape, const DepthwiseWeight& weight, bool has_bias, bool packed);
  ~DepthwiseStep() override;

  size_t packedBytes() const;
  void pack(const void* weight, void* packed) const override;
  // With the calling thread's team. Thread-safe, as is pack().
  void run(std::span<void* const> addresses, std::byte* scratch) const override;

private:
  DepthwiseShape shape_;
  DepthwiseWeight weight_;
  bool has_bias_, packed_;
  int threads_;
  std::vector<DepthwisePlaces> places_;
  size_t rows_bytes_, rows_at_;  // of one thread; in scratch
};

// The gradient of a weight, in slotOut, from slotA and the result's gradient in slotB, whose layout is `shape.out`.
class DepthwiseGradientStep final : public OwnStep {
public:
  // Reserves the sequence's scratch.
  DepthwiseGradientStep(Sequence& sequence, DepthwiseShape shape, const DepthwiseWeight& gradient);
  ~DepthwiseGradientStep() override;

  void pack(const void*, void*) const override {}  // there is no weight
  void run(std::span<void* const> addresses, std::byte* scratch) const override;

private:
  DepthwiseShape shape_;
  DepthwiseWeight gradient_;
  int threads_;
  std::vector<DepthwisePlaces> places_;
  size_t products_bytes_, products_at_;  // of one thread; in scratch
};

}  // namespace zefuse::primitives
