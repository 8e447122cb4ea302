#include "drivers/cuda/convolution.h"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>

namespace zefuse::cuda {

using ze_extension::Activation;
using ze_extension::ConvolutionDesc;
using ze_extension::ConvolutionKind;
using ze_extension::ConvolutionOperands;
using ze_extension::ConvolutionTensor;
using ze_extension::ElementType;

// Of a device, for as long as the process lives. The library lets one thread use it at a time.
struct CudnnHandle {
  std::mutex mutex;
  cudnnHandle_t handle = nullptr;
};

namespace {

enum TensorId : int64_t { of_image = 1, of_weight, of_result, of_bias, of_residual, between };

// A tensor with two or three spatial dimensions.
struct Layout {
  std::vector<int64_t> sizes, strides;
};

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

ze_result_t checkConvolution(const char* call, const ConvolutionDesc& desc) {
  if (desc.kind > ConvolutionKind::by_weight || desc.type > ElementType::f16 || desc.activation > Activation::relu)
    return refuse(ZE_RESULT_ERROR_INVALID_ENUMERATION, "%s: kind %u, element type %u, activation %u", call,
                  unsigned(desc.kind), unsigned(desc.type), unsigned(desc.activation));
  if (desc.spatial < 1 || desc.spatial > 3)
    return refuse(ZE_RESULT_ERROR_INVALID_SIZE, "%s: %u spatial dimensions", call, desc.spatial);
  for (const ConvolutionTensor* tensor : {&desc.image, &desc.weight, &desc.result}) {
    if (tensor->alignment == 0 || (tensor->alignment & (tensor->alignment - 1)))
      return refuse(ZE_RESULT_ERROR_INVALID_ENUMERATION, "%s: a tensor at multiples of %u bytes", call,
                    tensor->alignment);
    for (uint32_t i = 0; i < desc.spatial + 2; ++i)
      if (tensor->sizes[i] < 1 || tensor->sizes[i] > INT32_MAX || (tensor->sizes[i] > 1 && tensor->strides[i] < 1))
        return refuse(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE, "%s: a tensor of size %lld with steps of %lld", call,
                      static_cast<long long>(tensor->sizes[i]), static_cast<long long>(tensor->strides[i]));
  }
  if (desc.kind != ConvolutionKind::forward && (desc.bias || desc.residual || desc.activation != Activation::none))
    return refuse(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE, "%s: a gradient with a bias, a residual or an activation", call);
  return ZE_RESULT_SUCCESS;
}

}  // namespace

CudnnDescriptor::~CudnnDescriptor() {
  if (descriptor_)
    library_->cudnnBackendDestroyDescriptor(descriptor_);
}

cudnnStatus_t CudnnDescriptor::create(cudnnBackendDescriptorType_t type) {
  return library_->cudnnBackendCreateDescriptor(type, &descriptor_);
}

ze_result_t Convolution::fail(const char* call, const char* what, cudnnStatus_t status) const {
  char last[512] = "";
  library.cudnnGetLastErrorString(last, sizeof last);
  if (ze_result_t lost = device.lost() ? device.refuseLost(call) : ZE_RESULT_SUCCESS)
    return lost;
  const bool missing = status / 1000 == CUDNN_STATUS_NOT_INITIALIZED / 1000;  // a part of the library
  const bool unsupported =
      status / 1000 == CUDNN_STATUS_BAD_PARAM / 1000 || status / 1000 == CUDNN_STATUS_NOT_SUPPORTED / 1000;
  const bool memory = status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED;
  return refuse(unsupported ? ZE_RESULT_ERROR_UNSUPPORTED_FEATURE
                : missing   ? ZE_RESULT_ERROR_DEPENDENCY_UNAVAILABLE
                : memory    ? ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY
                            : ZE_RESULT_ERROR_UNKNOWN,
                "%s: %s: %s (%d): %s; %s of %s by %s to %s", call, what, library.cudnnGetErrorString(status),
                int(status), last, text(desc.kind), text(layoutOf(desc.image, desc.spatial)).c_str(),
                text(layoutOf(desc.weight, desc.spatial)).c_str(), text(layoutOf(desc.result, desc.spatial)).c_str());
}

#define ZEFUSE_CUDNN(call, what, expression)                                                                           \
  if (cudnnStatus_t status_ = (expression)) [[unlikely]]                                                               \
  return fail(call, what, status_)

// What is asked of the library. Descriptors that others name stay until the graph has been finalized.
struct Convolution::Graph {
  const CudnnApi& library;
  std::vector<CudnnDescriptor> held, operations;
  CudnnDescriptor graph{library};

  CudnnDescriptor& hold() { return held.emplace_back(library); }
};

ze_result_t Convolution::describe(const char* call, Graph& graph) const {
  graph.held.reserve(16);
  graph.operations.reserve(4);
  Layout image = layoutOf(desc.image, desc.spatial), weight = layoutOf(desc.weight, desc.spatial),
         result = layoutOf(desc.result, desc.spatial);
  // Whichever of the images says which it is.
  bool last = false;
  for (const Layout* layout : {&image, &result})
    last |= sameWhereItMatters(*layout, channelsLast(*layout)) && !sameWhereItMatters(*layout, channelsFirst(*layout));
  for (Layout* layout : {&image, &weight, &result})
    nameLayout(*layout, last);

  auto tensor = [&](int64_t id, const Layout& layout, cudnnDataType_t type, int64_t alignment, bool is_virtual,
                    cudnnBackendDescriptor_t& made) -> cudnnStatus_t {
    CudnnDescriptor& descriptor = graph.hold();
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
    if (is_virtual)
      set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, &is_virtual, 1);
    made = descriptor.get();
    return status ? status : descriptor.finalize();
  };

  const cudnnDataType_t type = cudnnType(desc.type), sums = CUDNN_DATA_FLOAT;
  const bool fused = desc.bias || desc.residual || desc.activation != Activation::none;
  cudnnBackendDescriptor_t x, w, y, sum = nullptr;
  ZEFUSE_CUDNN(call, "the image's descriptor", tensor(of_image, image, type, desc.image.alignment, false, x));
  ZEFUSE_CUDNN(call, "the weight's descriptor", tensor(of_weight, weight, type, desc.weight.alignment, false, w));
  ZEFUSE_CUDNN(call, "the result's descriptor", tensor(of_result, result, type, desc.result.alignment, false, y));
  int64_t next = between;
  if (fused)
    ZEFUSE_CUDNN(call, "a descriptor of what is between", tensor(next++, result, sums, 16, true, sum));

  CudnnDescriptor& convolution = graph.hold();
  ZEFUSE_CUDNN(call, "a convolution's descriptor", convolution.create(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR));
  const int64_t dimensions = int64_t(image.sizes.size()) - 2;
  ZEFUSE_CUDNN(call, "the type of sums", convolution.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, sums));
  ZEFUSE_CUDNN(call, "the mode",
               convolution.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, CUDNN_CROSS_CORRELATION));
  ZEFUSE_CUDNN(call, "the number of dimensions",
               convolution.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, dimensions));
  const std::tuple<cudnnBackendAttributeName_t, const int64_t*, int64_t, const char*> geometry[] = {
      {CUDNN_ATTR_CONVOLUTION_DILATIONS, desc.dilations, 1, "dilations"},
      {CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, desc.strides, 1, "strides"},
      {CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, desc.padding_before, 0, "padding before"},
      {CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, desc.padding_after, 0, "padding after"}};
  for (const auto& [attribute, given, inserted, what] : geometry) {
    const std::vector<int64_t> values = perDimension(given, desc.spatial, inserted);
    ZEFUSE_CUDNN(call, what, convolution.set(attribute, CUDNN_TYPE_INT64, values.data(), values.size()));
  }
  ZEFUSE_CUDNN(call, "the convolution's descriptor", convolution.finalize());

  struct Names {
    cudnnBackendDescriptorType_t operation;
    cudnnBackendAttributeName_t x, w, y, convolution, alpha, beta;
  };
  static constexpr Names names[] = {
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
  const Names& of = names[size_t(desc.kind)];
  const float one = 1, zero = 0;
  CudnnDescriptor& operation = graph.operations.emplace_back(library);
  ZEFUSE_CUDNN(call, "an operation's descriptor", operation.create(of.operation));
  const cudnnBackendDescriptor_t named = convolution.get(), written = fused ? sum : y;
  ZEFUSE_CUDNN(call, "the operation's image", operation.set(of.x, CUDNN_TYPE_BACKEND_DESCRIPTOR, x));
  ZEFUSE_CUDNN(call, "the operation's weight", operation.set(of.w, CUDNN_TYPE_BACKEND_DESCRIPTOR, w));
  ZEFUSE_CUDNN(call, "the operation's result", operation.set(of.y, CUDNN_TYPE_BACKEND_DESCRIPTOR, written));
  ZEFUSE_CUDNN(call, "the operation's convolution",
               operation.set(of.convolution, CUDNN_TYPE_BACKEND_DESCRIPTOR, named));
  ZEFUSE_CUDNN(call, "the operation's alpha", operation.set(of.alpha, CUDNN_TYPE_FLOAT, one));
  ZEFUSE_CUDNN(call, "the operation's beta", operation.set(of.beta, CUDNN_TYPE_FLOAT, zero));
  ZEFUSE_CUDNN(call, "the operation", operation.finalize());

  // What follows, in the order that the library has code for: residual, bias, activation.
  auto pointwise = [&](cudnnPointwiseMode_t mode, cudnnBackendDescriptor_t operand, bool is_last) -> cudnnStatus_t {
    CudnnDescriptor& how = graph.hold();
    cudnnBackendDescriptor_t to = y;
    cudnnStatus_t status = is_last ? CUDNN_STATUS_SUCCESS : tensor(next++, result, sums, 16, true, to);
    auto then = [&](auto&& step) { status = status ? status : step(); };
    then([&] { return how.create(CUDNN_BACKEND_POINTWISE_DESCRIPTOR); });
    then([&] { return how.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, mode); });
    then([&] { return how.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, sums); });
    then([&] { return how.finalize(); });
    CudnnDescriptor& step = graph.operations.emplace_back(library);
    const cudnnBackendDescriptor_t mode_of = how.get();
    then([&] { return step.create(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR); });
    then(
        [&] { return step.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, CUDNN_TYPE_BACKEND_DESCRIPTOR, mode_of); });
    then([&] { return step.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, sum); });
    if (operand)
      then([&] { return step.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, operand); });
    then([&] { return step.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, to); });
    then([&] { return step.finalize(); });
    sum = to;
    return status;
  };
  const bool activated = desc.activation == Activation::relu;
  if (desc.residual) {
    cudnnBackendDescriptor_t residual;
    ZEFUSE_CUDNN(call, "the residual's descriptor",
                 tensor(of_residual, result, type, desc.result.alignment, false, residual));
    ZEFUSE_CUDNN(call, "the residual's sum", pointwise(CUDNN_POINTWISE_ADD, residual, !desc.bias && !activated));
  }
  if (desc.bias) {
    Layout one_each;
    one_each.sizes.assign(result.sizes.size(), 1);
    one_each.sizes[1] = result.sizes[1];
    one_each.strides.assign(result.sizes.size(), 1);
    nameLayout(one_each, last);
    cudnnBackendDescriptor_t bias;
    ZEFUSE_CUDNN(call, "the bias's descriptor", tensor(of_bias, one_each, type, 16, false, bias));
    ZEFUSE_CUDNN(call, "the bias's sum", pointwise(CUDNN_POINTWISE_ADD, bias, !activated));
  }
  if (activated)
    ZEFUSE_CUDNN(call, "the activation", pointwise(CUDNN_POINTWISE_RELU_FWD, nullptr, true));

  std::vector<cudnnBackendDescriptor_t> operations;
  for (const CudnnDescriptor& each : graph.operations)
    operations.push_back(each.get());
  ZEFUSE_CUDNN(call, "a graph's descriptor", graph.graph.create(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR));
  ZEFUSE_CUDNN(call, "the graph's handle",
               graph.graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, handle_->handle));
  ZEFUSE_CUDNN(call, "the graph's operations",
               graph.graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, operations.data(),
                               operations.size()));
  ZEFUSE_CUDNN(call, "the graph", graph.graph.finalize());
  return ZE_RESULT_SUCCESS;
}

// Whether it may be and can be made into a plan; else why not. Excluded is what rounds operands that the caller did not
// allow to be rounded, sums in less than f32, or has other bits every time.
bool Convolution::take(CudnnDescriptor& config, std::string& why) {
  CudnnDescriptor engine(library);
  if (engine.create(CUDNN_BACKEND_ENGINE_DESCRIPTOR))
    return why = "no descriptor", false;
  int64_t count = 0;
  cudnnBackendDescriptor_t of_engine = engine.get();
  if (library.cudnnBackendGetAttribute(config.get(), CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                       &count, &of_engine))
    return why = "no engine", false;
  std::vector<int64_t> index(1);
  std::vector<cudnnBackendNumericalNote_t> notes(16);
  std::vector<cudnnBackendBehaviorNote_t> behavior(16);
  engine.get(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, index);
  engine.get(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, notes);
  engine.get(CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE, behavior);
  auto noted = [&](cudnnBackendNumericalNote_t note) { return std::ranges::find(notes, note) != notes.end(); };
  std::string name = "engine " + (index.empty() ? "?" : std::to_string(index[0]));
  if (noted(CUDNN_NUMERICAL_NOTE_TENSOR_CORE))
    name += ", tensor cores";
  if (noted(CUDNN_NUMERICAL_NOTE_WINOGRAD))
    name += ", Winograd";
  if (noted(CUDNN_NUMERICAL_NOTE_FFT))
    name += ", FFT";
  const bool compiles = std::ranges::find(behavior, CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION) != behavior.end();
  if (compiles)
    name += ", compiled at run time";
  why = name + ": ";
  if (compiles)
    return why += "takes a second or more to make", false;
  if (noted(CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION))
    return why += "sums in less than f32", false;
  if (noted(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC))
    return why += "other bits every time", false;
  const bool rounds = noted(CUDNN_NUMERICAL_NOTE_TENSOR_CORE) || noted(CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS);
  if (desc.type == ElementType::f32 && !desc.tf32 && rounds)
    return why += "rounds its operands", false;
  CudnnDescriptor plan(library);
  const cudnnBackendDescriptor_t chosen = config.get();
  cudnnStatus_t status = plan.create(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  if (!status)
    status = plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, handle_->handle);
  if (!status)
    status = plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, chosen);
  if (!status)
    status = plan.finalize();
  std::vector<int64_t> bytes(1);
  if (!status)
    status = plan.get(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, bytes);
  if (status || bytes.empty())
    return why += library.cudnnGetErrorString(status), false;
  if (size_t(bytes[0]) > desc.workspace_bytes)
    return why += "needs " + std::to_string(bytes[0]) + " bytes", false;
  plan_ = std::move(plan);
  workspace_bytes_ = size_t(bytes[0]);
  choice_ = std::move(name);
  return true;
}

// The first that the library's heuristics name and that may be; nothing is timed.
ze_result_t Convolution::choose(const char* call, const Graph& graph) {
  std::string refused;
  for (cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    CudnnDescriptor heuristics(library);
    const cudnnBackendDescriptor_t of_graph = graph.graph.get();
    cudnnStatus_t status = heuristics.create(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    if (!status)
      status = heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, of_graph);
    if (!status)
      status = heuristics.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, mode);
    if (!status)
      status = heuristics.finalize();
    int64_t offered = 0;
    if (!status)
      status = library.cudnnBackendGetAttribute(heuristics.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                                CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &offered, nullptr);
    std::vector<CudnnDescriptor> configs;
    configs.reserve(size_t(offered));
    std::vector<cudnnBackendDescriptor_t> handles;
    for (int64_t i = 0; i < offered && !status; ++i) {
      status = configs.emplace_back(library).create(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
      handles.push_back(configs.back().get());
    }
    if (!status)
      status = heuristics.get(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, handles);
    if (status) {
      refused += std::string(refused.empty() ? "" : "; ") + library.cudnnGetErrorString(status);
      continue;
    }
    for (size_t i = 0; i < handles.size(); ++i) {
      std::string why;
      if (take(configs[i], why))
        return ZE_RESULT_SUCCESS;
      if (refused.size() < 400 && refused.find(why) == std::string::npos)
        refused += (refused.empty() ? "" : "; ") + why;
    }
  }
  return refuse(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE, "%s: no engine for the %s of %s by %s to %s (%s)", call,
                text(desc.kind), text(layoutOf(desc.image, desc.spatial)).c_str(),
                text(layoutOf(desc.weight, desc.spatial)).c_str(), text(layoutOf(desc.result, desc.spatial)).c_str(),
                refused.c_str());
}

ze_result_t Convolution::prepare(const char* call) {
  if (ze_result_t result = checkConvolution(call, desc))
    return result;
  static std::mutex mutex;
  static std::map<const Device*, CudnnHandle>* made = new std::map<const Device*, CudnnHandle>;
  {
    const std::lock_guard lock(mutex);
    CudnnHandle& own = (*made)[&device];
    if (!own.handle)
      if (const cudnnStatus_t status = library.cudnnCreate(&own.handle)) {
        own.handle = nullptr;
        return fail(call, "cudnnCreate", status);
      }
    handle_ = &own;
  }
  const std::lock_guard lock(handle_->mutex);
  Graph graph{library};
  if (ze_result_t result = describe(call, graph))
    return result;
  return choose(call, graph);
}

ze_result_t Convolution::run(const char* call, const ConvolutionOperands& operands, CUstream stream) {
  device.launched("a convolution of cuDNN");
  std::vector<int64_t> ids{of_image, of_weight, of_result};
  std::vector<const void*> addresses{operands.image, operands.weight, operands.result};
  if (desc.bias) {
    ids.push_back(of_bias);
    addresses.push_back(operands.bias);
  }
  if (desc.residual) {
    ids.push_back(of_residual);
    addresses.push_back(operands.residual);
  }
  CudnnDescriptor pack(library);
  ZEFUSE_CUDNN(call, "a pack's descriptor", pack.create(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR));
  ZEFUSE_CUDNN(call, "the pack's ids",
               pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, ids.data(), ids.size()));
  ZEFUSE_CUDNN(
      call, "the pack's addresses",
      pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, addresses.data(), addresses.size()));
  ZEFUSE_CUDNN(call, "the pack's workspace",
               pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, operands.workspace));
  ZEFUSE_CUDNN(call, "the pack", pack.finalize());
  const std::lock_guard lock(handle_->mutex);
  ZEFUSE_CUDNN(call, "cudnnSetStream", library.cudnnSetStream(handle_->handle, stream));
  ZEFUSE_CUDNN(call, "cudnnBackendExecute", library.cudnnBackendExecute(handle_->handle, plan_.get(), pack.get()));
  return ZE_RESULT_SUCCESS;
}

ze_result_t convolutionCreate(ze_device_handle_t hDevice, const ConvolutionDesc* desc,
                              ze_extension::ConvolutionHandle** phConvolution, size_t* pWorkspaceBytes) {
  ZEFUSE_OBJECT(Device, device, hDevice);
  ZEFUSE_NOT_NULL(desc);
  ZEFUSE_NOT_NULL(phConvolution);
  ZEFUSE_NOT_NULL(pWorkspaceBytes);
  constexpr const char* call = ze_extension::convolution_create_name;
  *phConvolution = nullptr;
  *pWorkspaceBytes = 0;
  return guarded(call, [&]() -> ze_result_t {
    if (ze_result_t result = device->open(call))
      return result;
    std::string text;
    const CudnnApi* library = findCudnn(text);
    if (!library)
      return refuse(ZE_RESULT_ERROR_DEPENDENCY_UNAVAILABLE, "%s: %s", call, text.c_str());
    const Current current(*device);
    auto* convolution = new Convolution(*device, *library, *desc);
    if (ze_result_t result = convolution->prepare(call)) {
      convolution->release();
      return result;
    }
    *phConvolution = toHandle<ze_extension::ConvolutionHandle*>(convolution);
    *pWorkspaceBytes = convolution->workspaceBytes();
    return ZE_RESULT_SUCCESS;
  });
}

ze_result_t convolutionDestroy(ze_extension::ConvolutionHandle* hConvolution) {
  ZEFUSE_OBJECT(Convolution, convolution, hConvolution);
  convolution->destroy();
  return ZE_RESULT_SUCCESS;
}

const char* convolutionChoice(ze_extension::ConvolutionHandle* hConvolution) {
  return hConvolution ? fromHandle<Convolution>(hConvolution)->choice() : "";
}

bool convolutionLibrary(const char** pText) {
  struct Library {
    std::string text;
    bool usable;
  };
  static const Library* library = [] {  // never destroyed, as the driver
    auto* made = new Library;
    made->usable = findCudnn(made->text) != nullptr;
    return made;
  }();
  if (pText)
    *pText = library->text.c_str();
  return library->usable;
}

}  // namespace zefuse::cuda
