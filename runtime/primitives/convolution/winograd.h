// Convolutions of f32 with a window of 3x3 and a stride of one by Winograd's minimal filtering F(2x2, 3x3): 16 products
// for four results instead of 36. A. Lavin, S. Gray, "Fast Algorithms for Convolutional Neural Networks", CVPR 2016,
// section 4.1. Each tile of 4x4 inputs is transformed, the channels are multiplied at each of the 16 positions, and
// what comes of it is transformed to 2x2 results. A window of several slices, as 3x3x3, is a sum of such convolutions:
// products are summed over channels and slices before they are transformed, and each input's slice is transformed once
// for all results of a block that it takes part in.
//
// The sums of fewer products are nearer to double precision than a direct convolution's. Where a result is not finite,
// its tile is computed anew by the definition: a difference of infinities is not what an infinity times a weight is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/primitives/convolution/convolution.h"
#include "runtime/primitives/core/sequence.h"

namespace zefuse::primitives {

// Images whose channels are contiguous, in slices one behind the other; strides in elements.
struct ChannelsLast {
  int64_t height, width, channels;
  int64_t image, row, place;
  int64_t depth = 1, slice = 0;
};

// A post-op that is computed with the results.
struct WinogradPostOp {
  plan::PostOpKind kind{};
  int slot = -1;                                                  // of the operand
  int64_t image = 0, row = 0, place = 0, channel = 0, slice = 0;  // the operand's strides; 0 where it is repeated
};

// Of the window, along the slices.
struct WinogradDepth {
  int64_t window = 1, padding = 0, dilation = 1;
};

struct WinogradShape {
  int64_t images;
  ChannelsLast input, out;          // of groups, with the channels of one
  int64_t padding[2], dilation[2];  // of rows, of places in a row
  std::vector<WinogradPostOp> post_ops;
  WinogradDepth depth = {};
  bool flat = false;   // windows of one row, 1x3: tiles of 1x2 results, F(2, 3), with 4 products for 6
  int64_t groups = 1;  // side by side among the channels, each a convolution by itself
};

// The weight [O, C, 3, 3], or one row of it, or with slices in front of the rows, which may lie mirrored.
struct WinogradWeight {
  int64_t out_channel, channel, row, place;  // strides
  size_t origin = 0;                         // bytes to the element of index 0
  int64_t slice = 0, group = 0;
};

// Tiles of 2x2 results, with a dilation of each of the images that it makes.
struct WinogradTiles {
  int64_t high, wide, count;  // of one slice of an image, and of one of all images
};
WinogradTiles winogradTiles(const WinogradShape& shape);

// Whether this processor has the vectors, AVX2 or AVX-512, and ZEFUSE_WINOGRAD is not "off".
bool winogradAvailable();
// Whether it has, and the products saved are worth the transformations. `packed`: the weight is
// transformed once, not in each call. `threads`: that share the work.
bool winogradPays(const WinogradShape& shape, bool packed, int threads);

struct WinogradCall;  // winograd_tiles.h

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
  size_t groupBytes() const;
  void packGroup(const float* from, float* to) const;
  WinogradCall callOf(std::span<void* const> addresses, int64_t group) const;

  WinogradShape shape_;
  WinogradWeight weight_;
  bool has_bias_, packed_;
  int threads_;
  int64_t tiles_, block_, blocks_;  // of a slice: how many, how many in a block, and how many blocks
  int64_t slices_, slice_blocks_;   // of the result: how many in a block, and how many blocks
  bool transforms_first_;           // all blocks' inputs, before any is multiplied
  int64_t inputs_bytes_, sums_bytes_;
  size_t inputs_at_, sums_at_;  // in scratch
};

}  // namespace zefuse::primitives
