// Convolutions of f32 with a window of 3x3 and a stride of one by Winograd's minimal filtering F(2x2, 3x3): 16 products
// for four results instead of 36. A. Lavin, S. Gray, "Fast Algorithms for Convolutional Neural Networks", CVPR 2016,
// section 4.1. Each tile of 4x4 inputs is transformed, the channels are multiplied at each of the 16 positions, and
// what comes of it is transformed to 2x2 results.
//
// The sums of fewer products are nearer to double precision than a direct convolution's. Where a result is not finite,
// its tile is computed anew by the definition: a difference of infinities is not what an infinity times a weight is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/onednn/convolution.h"
#include "runtime/onednn/sequence.h"

namespace zefuse::onednn {

// Images whose channels are contiguous; strides in elements.
struct ChannelsLast {
  int64_t height, width, channels;
  int64_t image, row, place;
};

// A post-op that is computed with the results.
struct WinogradPostOp {
  plan::PostOpKind kind{};
  int slot = -1;                                       // of the operand
  int64_t image = 0, row = 0, place = 0, channel = 0;  // the operand's strides; 0 where it is repeated
};

struct WinogradShape {
  int64_t images;
  ChannelsLast input, out;
  int64_t padding[2], dilation[2];  // of rows, of places in a row
  std::vector<WinogradPostOp> post_ops;
};

// The weight [O, C, 3, 3], which may lie mirrored.
struct WinogradWeight {
  int64_t out_channel, channel, row, place;  // strides
  size_t origin = 0;                         // bytes to the element of index 0
};

// Tiles of 2x2 results, with a dilation of each of the images that it makes.
struct WinogradTiles {
  int64_t high, wide, count;  // of one image, and of all
};
WinogradTiles winogradTiles(const WinogradShape& shape);

// Whether this processor has the vectors, AVX2 or AVX-512, and ZEFUSE_WINOGRAD is not "off".
bool winogradAvailable();
// Whether it has, and the products saved are worth the transformations. `packed`: the weight is
// transformed once, not in each call. `threads`: that share the work.
bool winogradPays(const WinogradShape& shape, bool packed, int threads);

class WinogradStep final : public OwnStep {
public:
  // `has_bias`: slotBias is one f32 for each channel of the result. `packed`: slotWeights holds what pack() made; else
  // it is scratch for that. Reserves the sequence's scratch.
  WinogradStep(Sequence& sequence, WinogradShape shape, const WinogradWeight& weight, bool has_bias, bool packed);

  size_t packedBytes() const;
  // With the calling thread's team. Thread-safe, as is run().
  void pack(const void* weight, void* packed) const override;
  void run(std::span<void* const> addresses, std::byte* scratch) const override;

private:
  WinogradShape shape_;
  WinogradWeight weight_;
  bool has_bias_, packed_;
  int threads_;
  int64_t tiles_, block_, blocks_;  // how many, how many in a block, and how many blocks
  bool transforms_first_;           // all blocks' inputs, before any is multiplied
  int64_t inputs_bytes_, sums_bytes_;
  size_t inputs_at_, sums_at_;  // in scratch
};

}  // namespace zefuse::onednn
