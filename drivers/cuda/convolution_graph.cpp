#include "drivers/cuda/convolution_graph.h"

#include <algorithm>
#include <tuple>

namespace zefuse::cuda {

using ze_extension::Activation;
using ze_extension::ConvolutionDesc;
using ze_extension::ConvolutionKind;
using ze_extension::ConvolutionTensor;
using ze_extension::ElementType;

namespace {

using Layout = ConvolutionLayout;

constexpr cudnnDataType_t sums_type = CUDNN_DATA_FLOAT;

cudnnDataType_t cudnnType(ElementType type) {
  switch (type) {
  case ElementType::bf16: return CUDNN_DATA_BFLOAT16;
  case ElementType::f16: return CUDNN_DATA_HALF;
  default: return CUDNN_DATA_FLOAT;
  }
}

// Dense strides, by the dimensions in `order`, the outermost first.
std::vector<int64_t> denseStrides(const std::vector<int64_t>& sizes, const std::vector<size_t>& order) {
  std::vector<int64_t> strides(sizes.size());
  int64_t step = 1;
  for (auto at = order.rbegin(); at != order.rend(); ++at) {
    strides[*at] = step;
    step *= sizes[*at];
  }
  return strides;
}

bool sameWhereItMatters(const Layout& layout, const std::vector<int64_t>& strides) {
  for (size_t i = 0; i < strides.size(); ++i)
    if (layout.sizes[i] > 1 && layout.strides[i] != strides[i])
      return false;
  return true;
}

std::vector<int64_t> channelsLast(const Layout& layout) {
  std::vector<size_t> order{0};
  for (size_t i = 2; i < layout.sizes.size(); ++i)
    order.push_back(i);
  order.push_back(1);
  return denseStrides(layout.sizes, order);
}

std::vector<int64_t> channelsFirst(const Layout& layout) {
  std::vector<size_t> order(layout.sizes.size());
  for (size_t i = 0; i < order.size(); ++i)
    order[i] = i;
  return denseStrides(layout.sizes, order);
}

// The library knows a layout by all strides, also those of dimensions of size 1, which may be anything: of those that
// fit the one that the convolution's other tensors have. Others have as steps of such dimensions what would follow.
void nameLayout(Layout& layout, bool channels_last) {
  for (bool last : {channels_last, !channels_last})
    if (std::vector<int64_t> strides = last ? channelsLast(layout) : channelsFirst(layout);
        sameWhereItMatters(layout, strides)) {
      layout.strides = std::move(strides);
      return;
    }
  int64_t whole = 1;
  for (size_t i = 0; i < layout.sizes.size(); ++i)
    if (layout.sizes[i] > 1)
      whole = std::max(whole, layout.sizes[i] * layout.strides[i]);
  for (size_t i = 0; i < layout.sizes.size(); ++i)
    if (layout.sizes[i] == 1)
      layout.strides[i] = whole;
}

// One spatial dimension becomes two, of which the library has more code.
Layout layoutOf(const ConvolutionTensor& tensor, uint32_t spatial) {
  Layout layout;
  for (uint32_t i = 0; i < spatial + 2; ++i) {
    if (i == 2 && spatial == 1) {
      layout.sizes.push_back(1);
      layout.strides.push_back(1);
    }
    layout.sizes.push_back(tensor.sizes[i]);
    layout.strides.push_back(tensor.strides[i]);
  }
  return layout;
}

std::vector<int64_t> perDimension(const int64_t* values, uint32_t spatial, int64_t inserted) {
  std::vector<int64_t> made(values, values + spatial);
  if (spatial == 1)
    made.insert(made.begin(), inserted);
  return made;
}

std::string text(const Layout& layout) {
  std::string said;
  for (size_t i = 0; i < layout.sizes.size(); ++i)
    said += (i ? "x" : "") + std::to_string(layout.sizes[i]);
  said += "/";
  for (size_t i = 0; i < layout.strides.size(); ++i)
    said += (i ? "," : "") + std::to_string(layout.strides[i]);
  return said;
}

const char* text(ConvolutionKind kind) {
  return kind == ConvolutionKind::forward ? "convolution" : kind == ConvolutionKind::by_data ? "by data" : "by weight";
}

// Of an operation: its type and its attributes.
struct Names {
  cudnnBackendDescriptorType_t operation;
  cudnnBackendAttributeName_t x, w, y, convolution, alpha, beta;
};
// By ConvolutionKind.
constexpr Names names[] = {
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA}};

}  // namespace

std::string describe(const ConvolutionDesc& desc) {
  auto said = [&](const ConvolutionTensor& tensor) { return text(layoutOf(tensor, desc.spatial)); };
  return std::string(text(desc.kind)) + " of " + said(desc.image) + " by " + said(desc.weight) + " to " +
         said(desc.result);
}

ConvolutionGraph::ConvolutionGraph(const CudnnApi& library, const ConvolutionDesc& desc)
    : library_(library), desc_(desc), image_(layoutOf(desc.image, desc.spatial)),
      weight_(layoutOf(desc.weight, desc.spatial)), result_(layoutOf(desc.result, desc.spatial)), graph_(library) {
  held_.reserve(16);
  operations_.reserve(4);
  // Whichever of the images says which it is.
  for (const Layout* layout : {&image_, &result_})
    channels_last_ |=
        sameWhereItMatters(*layout, channelsLast(*layout)) && !sameWhereItMatters(*layout, channelsFirst(*layout));
  for (Layout* layout : {&image_, &weight_, &result_})
    nameLayout(*layout, channels_last_);
}

CudnnFailure ConvolutionGraph::describe(cudnnHandle_t handle) {
  if (const CudnnFailure failure = describeConvolution())
    return failure;
  if (const CudnnFailure failure = describeAttached())
    return failure;
  std::vector<cudnnBackendDescriptor_t> operations;
  for (const CudnnDescriptor& each : operations_)
    operations.push_back(each.get());
  ZEFUSE_CUDNN("a graph's descriptor", graph_.create(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR));
  ZEFUSE_CUDNN("the graph's handle", graph_.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, handle));
  ZEFUSE_CUDNN("the graph's operations", graph_.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                                    operations.data(), operations.size()));
  ZEFUSE_CUDNN("the graph", graph_.finalize());
  return {};
}

cudnnStatus_t ConvolutionGraph::tensor(int64_t id, const Layout& layout, cudnnDataType_t type, int64_t alignment,
                                       cudnnBackendDescriptor_t& made) {
  CudnnDescriptor& descriptor = hold();
  cudnnStatus_t status = descriptor.create(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  auto set = [&](cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t of, const auto* values, size_t count) {
    if (!status)
      status = descriptor.set(name, of, values, count);
  };
  set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, &type, 1);
  set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, layout.sizes.data(), layout.sizes.size());
  set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, layout.strides.data(), layout.strides.size());
  set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, &id, 1);
  set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, &alignment, 1);
  if (const bool is_virtual = id >= first_between)
    set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, &is_virtual, 1);
  made = descriptor.get();
  return status ? status : descriptor.finalize();
}

cudnnStatus_t ConvolutionGraph::tensorBetween(cudnnBackendDescriptor_t& made) {
  return tensor(next_between_++, result_, sums_type, 16, made);
}

CudnnFailure ConvolutionGraph::describeGeometry(cudnnBackendDescriptor_t& made) {
  CudnnDescriptor& convolution = hold();
  ZEFUSE_CUDNN("a convolution's descriptor", convolution.create(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR));
  const int64_t dimensions = int64_t(image_.sizes.size()) - 2;
  ZEFUSE_CUDNN("the type of sums", convolution.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, sums_type));
  ZEFUSE_CUDNN("the mode",
               convolution.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, CUDNN_CROSS_CORRELATION));
  ZEFUSE_CUDNN("the number of dimensions",
               convolution.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, dimensions));
  const std::tuple<cudnnBackendAttributeName_t, const int64_t*, int64_t, const char*> geometry[] = {
      {CUDNN_ATTR_CONVOLUTION_DILATIONS, desc_.dilations, 1, "dilations"},
      {CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, desc_.strides, 1, "strides"},
      {CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, desc_.padding_before, 0, "padding before"},
      {CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, desc_.padding_after, 0, "padding after"}};
  for (const auto& [attribute, given, inserted, what] : geometry) {
    const std::vector<int64_t> values = perDimension(given, desc_.spatial, inserted);
    ZEFUSE_CUDNN(what, convolution.set(attribute, CUDNN_TYPE_INT64, values.data(), values.size()));
  }
  ZEFUSE_CUDNN("the convolution's descriptor", convolution.finalize());
  made = convolution.get();
  return {};
}

CudnnFailure ConvolutionGraph::describeConvolution() {
  const cudnnDataType_t type = cudnnType(desc_.type);
  cudnnBackendDescriptor_t x, w, convolution;
  ZEFUSE_CUDNN("the image's descriptor", tensor(image, image_, type, desc_.image.alignment, x));
  ZEFUSE_CUDNN("the weight's descriptor", tensor(weight, weight_, type, desc_.weight.alignment, w));
  ZEFUSE_CUDNN("the result's descriptor", tensor(result, result_, type, desc_.result.alignment, y_));
  sum_ = y_;
  if (desc_.bias || desc_.residual || desc_.activation != Activation::none)
    ZEFUSE_CUDNN("a descriptor of what is between", tensorBetween(sum_));
  if (const CudnnFailure failure = describeGeometry(convolution))
    return failure;

  const Names& of = names[size_t(desc_.kind)];
  const float one = 1, zero = 0;
  CudnnDescriptor& operation = operations_.emplace_back(library_);
  ZEFUSE_CUDNN("an operation's descriptor", operation.create(of.operation));
  ZEFUSE_CUDNN("the operation's image", operation.set(of.x, CUDNN_TYPE_BACKEND_DESCRIPTOR, x));
  ZEFUSE_CUDNN("the operation's weight", operation.set(of.w, CUDNN_TYPE_BACKEND_DESCRIPTOR, w));
  ZEFUSE_CUDNN("the operation's result", operation.set(of.y, CUDNN_TYPE_BACKEND_DESCRIPTOR, sum_));
  ZEFUSE_CUDNN("the operation's convolution",
               operation.set(of.convolution, CUDNN_TYPE_BACKEND_DESCRIPTOR, convolution));
  ZEFUSE_CUDNN("the operation's alpha", operation.set(of.alpha, CUDNN_TYPE_FLOAT, one));
  ZEFUSE_CUDNN("the operation's beta", operation.set(of.beta, CUDNN_TYPE_FLOAT, zero));
  ZEFUSE_CUDNN("the operation", operation.finalize());
  return {};
}

cudnnStatus_t ConvolutionGraph::pointwise(cudnnPointwiseMode_t mode, cudnnBackendDescriptor_t operand, bool last) {
  CudnnDescriptor& how = hold();
  cudnnBackendDescriptor_t to = y_;
  cudnnStatus_t status = last ? CUDNN_STATUS_SUCCESS : tensorBetween(to);
  auto then = [&](auto&& step) { status = status ? status : step(); };
  then([&] { return how.create(CUDNN_BACKEND_POINTWISE_DESCRIPTOR); });
  then([&] { return how.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, mode); });
  then([&] { return how.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, sums_type); });
  then([&] { return how.finalize(); });
  CudnnDescriptor& step = operations_.emplace_back(library_);
  const cudnnBackendDescriptor_t mode_of = how.get();
  then([&] { return step.create(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR); });
  then([&] { return step.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, CUDNN_TYPE_BACKEND_DESCRIPTOR, mode_of); });
  then([&] { return step.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, sum_); });
  if (operand)
    then([&] { return step.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, operand); });
  then([&] { return step.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, to); });
  then([&] { return step.finalize(); });
  sum_ = to;
  return status;
}

CudnnFailure ConvolutionGraph::describeAttached() {
  const cudnnDataType_t type = cudnnType(desc_.type);
  const bool activated = desc_.activation == Activation::relu;
  if (desc_.residual) {
    cudnnBackendDescriptor_t added;
    ZEFUSE_CUDNN("the residual's descriptor", tensor(residual, result_, type, desc_.result.alignment, added));
    ZEFUSE_CUDNN("the residual's sum", pointwise(CUDNN_POINTWISE_ADD, added, !desc_.bias && !activated));
  }
  if (desc_.bias) {
    Layout one_each;
    one_each.sizes.assign(result_.sizes.size(), 1);
    one_each.sizes[1] = result_.sizes[1];
    one_each.strides.assign(result_.sizes.size(), 1);
    nameLayout(one_each, channels_last_);
    cudnnBackendDescriptor_t added;
    ZEFUSE_CUDNN("the bias's descriptor", tensor(bias, one_each, type, 16, added));
    ZEFUSE_CUDNN("the bias's sum", pointwise(CUDNN_POINTWISE_ADD, added, !activated));
  }
  if (activated)
    ZEFUSE_CUDNN("the activation", pointwise(CUDNN_POINTWISE_RELU_FWD, nullptr, true));
  return {};
}

}  // namespace zefuse::cuda
