// A convolution and what is attached to it, as a graph of operations that cuDNN can make a plan of.
#pragma once

#include <string>
#include <vector>

#include "common/ze_extension/convolution.h"
#include "drivers/cuda/cudnn_descriptor.h"

namespace zefuse::cuda {

// What the library refused, and its status; false: nothing.
struct CudnnFailure {
  const char* what = nullptr;
  cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
  explicit operator bool() const { return status != CUDNN_STATUS_SUCCESS; }
};

#define ZEFUSE_CUDNN(what, expression)                                                                                 \
  if (const cudnnStatus_t status_ = (expression)) [[unlikely]]                                                         \
    return { what, status_ }

// "convolution of 1x64x8x8/4096,64,8,1 by ... to ...".
std::string describe(const ze_extension::ConvolutionDesc& desc);

// Of a tensor with two or three spatial dimensions.
struct ConvolutionLayout {
  std::vector<int64_t> sizes, strides;
};

// Descriptors that others name stay until the graph has been finalized.
class ConvolutionGraph {
public:
  // By which tensors are named when the plan is run.
  enum TensorId : int64_t { image = 1, weight, result, bias, residual, first_between };

  // `desc` outlives it.
  ConvolutionGraph(const CudnnApi& library, const ze_extension::ConvolutionDesc& desc);

  // The convolution; then residual, bias, activation, in the order that the library has code for.
  CudnnFailure describe(cudnnHandle_t handle);
  cudnnBackendDescriptor_t get() const { return graph_.get(); }

private:
  using Layout = ConvolutionLayout;

  CudnnDescriptor& hold() { return held_.emplace_back(library_); }
  cudnnStatus_t tensor(int64_t id, const Layout& layout, cudnnDataType_t type, int64_t alignment,
                       cudnnBackendDescriptor_t& made);
  // One that has no memory, of the result's layout.
  cudnnStatus_t tensorBetween(cudnnBackendDescriptor_t& made);
  CudnnFailure describeGeometry(cudnnBackendDescriptor_t& made);
  CudnnFailure describeConvolution();
  CudnnFailure describeAttached();
  // Applies it to `sum_`, which becomes what is made; `last`: the result.
  cudnnStatus_t pointwise(cudnnPointwiseMode_t mode, cudnnBackendDescriptor_t operand, bool last);

  const CudnnApi& library_;
  const ze_extension::ConvolutionDesc& desc_;
  Layout image_, weight_, result_;
  bool channels_last_ = false;
  int64_t next_between_ = first_between;
  cudnnBackendDescriptor_t y_ = nullptr, sum_ = nullptr;  // the result; what the last operation so far makes
  std::vector<CudnnDescriptor> held_, operations_;
  CudnnDescriptor graph_;
};

}  // namespace zefuse::cuda
