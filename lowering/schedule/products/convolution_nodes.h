// The product that a zefuse.convolution is, for any schedule: one side is the weight, the other the input's patches,
// whose elements are found where they lie. Each group of channels is a product of its own.
//
//   forward, transposed   channels of the result x its pixels (all images), over kernel taps and input channels
//   weights               channels of the gradient x (kernel taps and input channels), over all pixels of the gradient
//
// A pixel is an image and a place in it, a patch's element an input channel of the group and a tap of the kernel.
#pragma once

#include "lowering/schedule/core/index_math.h"
#include "lowering/schedule/products/product_nodes.h"

namespace zefuse {

class ConvolutionNodes {
public:
  // Emits the sizes where the builder stands: before the loops of the product, which the evaluator knows nothing of.
  explicit ConvolutionNodes(const ScheduleContext& context);

  // What is loaded first of a group's channels, of the result and of the input; before anything is loaded or bound.
  void bindGroup(mlir::Value first_channel, mlir::Value first_input) {
    first_channel_ = first_channel;
    first_input_ = first_input;
  }

  // Elements as registers have them: `lanes` neighbours along the input's channels, in the order of a patch. Zero in
  // the padding, of which `inside` tells whether it is.
  mlir::Value loadPatch(mlir::Value patch, mlir::Value pixel, int64_t lanes, mlir::Value* inside = nullptr);
  // Whether some patch may have elements in the padding, or between the strides of a transposed convolution.
  bool mayPad();
  // Neighbours along weightDimension(), or along another of the weight's.
  mlir::Value loadWeight(mlir::Value channel, mlir::Value patch, int64_t lanes) {
    return loadWeight(channel, patch, weightDimension(), lanes);
  }
  mlir::Value loadWeight(mlir::Value channel, mlir::Value patch, unsigned dimension, int64_t lanes);
  mlir::Value loadGradient(mlir::Value channel, mlir::Value pixel, int64_t lanes = 1);

  void bindPixel(mlir::Value pixel);
  void bindPatch(mlir::Value patch, int64_t lanes = 1);
  void bindChannel(mlir::Value channel, int64_t lanes = 1);

  // The weight's dimensions of the result's and of the input's channels.
  unsigned channelOfResult() const { return transposed_ ? 1 : 0; }
  unsigned channelOfPatch() const { return transposed_ ? 0 : 1; }
  // Neighbouring elements of a patch are neighbours in the weight where its layout has the patch's order.
  unsigned weightDimension() const;
  // The longest run up to this one that never crosses from one group's channels to the next's.
  int64_t inGroup(int64_t run) const;

  ConvolutionOp op;
  ProductNodes nodes;
  int64_t groups, slices;
  unsigned first_dim;  // of the result: behind that of the slices
  bool of_weights;
  bool channels_fastest;                              // in a patch: where they are neighbours in the input
  mlir::AffineExpr channels, depth, patches, pixels;  // counts; channels and depth (the input's): of a group
  ProductNodes::Neighbours channel_neighbours{0, 1};  // of the input

private:
  mlir::Value load(unsigned operand, llvm::ArrayRef<mlir::Value> indices, unsigned dimension, int64_t lanes);
  llvm::SmallVector<Extent> extentsOf(llvm::ArrayRef<mlir::AffineExpr> sizes) const;
  llvm::SmallVector<mlir::Value> apart(mlir::Value index, llvm::ArrayRef<Extent> sizes);
  llvm::SmallVector<mlir::Value> patchOf(mlir::Value patch);

  const ScheduleContext& c_;
  mlir::OpBuilder& b_;
  mlir::Location loc_;
  IndexMath i_;
  size_t spatial_;
  bool transposed_;
  llvm::SmallVector<mlir::AffineExpr> kernel_;  // taps
  llvm::SmallVector<Extent> images_, patch_;    // images and their pixels; a patch's channels and taps, in its order
  llvm::SmallVector<mlir::Value> input_sizes_;  // spatial
  mlir::Value first_channel_, first_input_;
};

}  // namespace zefuse
