// Writes a kernel that holds one zefuse.convolution over two spatial dimensions.
#pragma once

#include <string>

namespace zefuse::test {

// Sizes are those of the forward convolution, also for its derivatives.
struct ConvolutionText {
  int images = 1, inputs = 1, outputs = 1;
  int size[2] = {1, 1}, kernel[2] = {1, 1}, stride[2] = {1, 1}, padding[2] = {0, 0}, dilation[2] = {1, 1};
  int groups = 1;
  bool with_bias = false;  // then relu and an addend of the result's shape, too
  std::string kind = "forward";
  bool channels_last = false;  // all tensors
  std::string element = "f32";
  int slices = 1;  // more: the result has a dimension for them in front

  int resultSize(int dim) const {
    return (size[dim] + 2 * padding[dim] - dilation[dim] * (kernel[dim] - 1) - 1) / stride[dim] + 1;
  }
  std::string module() const;
};

}  // namespace zefuse::test
