#include "drivers/cuda/convolution.h"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

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

ze_result_t Convolution::fail(const char* call, const CudnnFailure& failure) const {
  const auto& [what, status] = failure;
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
                "%s: %s: %s (%d): %s; %s", call, what, library.cudnnGetErrorString(status), int(status), last,
                describe(desc).c_str());
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
ze_result_t Convolution::choose(const char* call, cudnnBackendDescriptor_t graph) {
  std::string refused;
  for (cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    CudnnDescriptor heuristics(library);
    cudnnStatus_t status = heuristics.create(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    if (!status)
      status = heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, graph);
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
  return refuse(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE, "%s: no engine for the %s (%s)", call, describe(desc).c_str(),
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
        return fail(call, {"cudnnCreate", status});
      }
    handle_ = &own;
  }
  const std::lock_guard lock(handle_->mutex);
  ConvolutionGraph graph(library, desc);
  if (const CudnnFailure failure = graph.describe(handle_->handle))
    return fail(call, failure);
  return choose(call, graph.get());
}

CudnnFailure Convolution::queue(const ConvolutionOperands& operands, CUstream stream) {
  std::vector<int64_t> ids{ConvolutionGraph::image, ConvolutionGraph::weight, ConvolutionGraph::result};
  std::vector<const void*> addresses{operands.image, operands.weight, operands.result};
  if (desc.bias) {
    ids.push_back(ConvolutionGraph::bias);
    addresses.push_back(operands.bias);
  }
  if (desc.residual) {
    ids.push_back(ConvolutionGraph::residual);
    addresses.push_back(operands.residual);
  }
  CudnnDescriptor pack(library);
  ZEFUSE_CUDNN("a pack's descriptor", pack.create(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR));
  ZEFUSE_CUDNN("the pack's ids",
               pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, ids.data(), ids.size()));
  ZEFUSE_CUDNN("the pack's addresses", pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
                                                addresses.data(), addresses.size()));
  ZEFUSE_CUDNN("the pack's workspace",
               pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, operands.workspace));
  ZEFUSE_CUDNN("the pack", pack.finalize());
  const std::lock_guard lock(handle_->mutex);
  ZEFUSE_CUDNN("cudnnSetStream", library.cudnnSetStream(handle_->handle, stream));
  ZEFUSE_CUDNN("cudnnBackendExecute", library.cudnnBackendExecute(handle_->handle, plan_.get(), pack.get()));
  return {};
}

ze_result_t Convolution::run(const char* call, const ConvolutionOperands& operands, CUstream stream) {
  device.launched("a convolution of cuDNN");
  const CudnnFailure failure = queue(operands, stream);
  return failure ? fail(call, failure) : ZE_RESULT_SUCCESS;
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
