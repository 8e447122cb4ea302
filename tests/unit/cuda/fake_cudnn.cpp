// A libcudnn for tests of the driver on a machine without a GPU: convolutions in f32 are computed when their stream
// comes to them (fake_cuda.cpp), and what was asked for is in that one's log. Of what its heuristics name, most may not
// be taken. It has none for f16, and none for a relu without a bias.
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "drivers/cuda/cudnn_api.h"

using namespace zefuse::cuda;

extern "C" void fake_cuda_submit(CUstream stream, const char* what, const std::function<void()>* run);

namespace zefuse::cuda {
struct cudnnContext {
  CUstream stream = nullptr;
};
}  // namespace zefuse::cuda

namespace {

struct Node {
  cudnnBackendDescriptorType_t type;
  bool final = false;
  std::map<int, std::vector<std::byte>> data;
  std::map<int, std::vector<std::shared_ptr<Node>>> nodes;

  template <typename T> std::vector<T> values(int name) const {
    const auto found = data.find(name);
    if (found == data.end())
      return {};
    std::vector<T> made(found->second.size() / sizeof(T));
    std::memcpy(made.data(), found->second.data(), made.size() * sizeof(T));
    return made;
  }
  template <typename T> T value(int name) const { return values<T>(name).at(0); }
  const Node& node(int name) const { return *nodes.at(name).at(0); }
};
using Handle = std::shared_ptr<Node>;
Node& nodeOf(cudnnBackendDescriptor_t descriptor) { return **static_cast<Handle*>(descriptor); }

size_t bytesOf(cudnnBackendAttributeType_t type) {
  switch (type) {
  case CUDNN_TYPE_BOOLEAN: return sizeof(bool);
  case CUDNN_TYPE_INT64:
  case CUDNN_TYPE_HANDLE:
  case CUDNN_TYPE_VOID_PTR: return 8;
  default: return 4;
  }
}

// What the heuristics name, in order: all but the last two are to be passed over, the last but one by f32.
enum Config { unrepeatable, compiled, less_than_f32, much_memory, on_tensor_cores, plain, num_configs };

struct Tensor {
  std::vector<int64_t> sizes, strides;
  int64_t id;

  explicit Tensor(const Node& node)
      : sizes(node.values<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS)),
        strides(node.values<int64_t>(CUDNN_ATTR_TENSOR_STRIDES)), id(node.value<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID)) {
  }
  std::string text() const {
    std::string said;
    for (size_t i = 0; i < sizes.size(); ++i)
      said += (i ? "x" : "") + std::to_string(sizes[i]);
    for (size_t i = 0; i < strides.size(); ++i)
      said += (i ? "," : "/") + std::to_string(strides[i]);
    return said;
  }
  int64_t at(const std::vector<int64_t>& index) const {
    int64_t element = 0;
    for (size_t i = 0; i < index.size(); ++i)
      element += index[i] * strides[i];
    return element;
  }
};

// Calls `each` with every index below the sizes.
void forEach(const std::vector<int64_t>& sizes, const std::function<void(const std::vector<int64_t>&)>& each) {
  std::vector<int64_t> index(sizes.size());
  for (bool more = true; more;) {
    each(index);
    more = false;
    for (size_t i = sizes.size(); i-- > 0 && !more;)
      if (++index[i] < sizes[i])
        more = true;
      else
        index[i] = 0;
  }
}

struct Call {
  cudnnBackendDescriptorType_t kind;
  Tensor x, w, y;
  std::vector<int64_t> strides, dilations, before, after;
  bool bias = false, residual = false, relu = false;
  cudnnDataType_t type;
  int64_t alignment;

  // Each product of an image's and a weight's element: the indices of the three.
  void products(const std::function<void(int64_t x, int64_t w, int64_t y)>& each) const {
    const int64_t of_group = w.sizes[1], groups = x.sizes[1] / of_group, out_of_group = w.sizes[0] / groups;
    forEach(y.sizes, [&](const std::vector<int64_t>& to) {
      std::vector<int64_t> taps(w.sizes.begin() + 1, w.sizes.end());
      forEach(taps, [&](const std::vector<int64_t>& tap) {
        std::vector<int64_t> from{to[0], to[1] / out_of_group * of_group + tap[0]}, weight{to[1]};
        weight.insert(weight.end(), tap.begin(), tap.end());
        for (size_t i = 0; i < strides.size(); ++i) {
          from.push_back(to[i + 2] * strides[i] + tap[i + 1] * dilations[i] - before[i]);
          if (from.back() < 0 || from.back() >= x.sizes[i + 2])
            return;
        }
        each(x.at(from), w.at(weight), y.at(to));
      });
    });
  }
};

struct Names {
  int x, w, y, convolution;
};
Names namesOf(cudnnBackendDescriptorType_t kind) {
  switch (kind) {
  case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
    return {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC};
  case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
    return {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC};
  default:
    return {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC};
  }
}

Call callOf(const Node& graph) {
  const auto& operations = graph.nodes.at(CUDNN_ATTR_OPERATIONGRAPH_OPS);
  const Node& first = *operations[0];
  const Names names = namesOf(first.type);
  const Node &convolution = first.node(names.convolution), &image = first.node(names.x);
  Call call{first.type,
            Tensor(image),
            Tensor(first.node(names.w)),
            Tensor(first.node(names.y)),
            convolution.values<int64_t>(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES),
            convolution.values<int64_t>(CUDNN_ATTR_CONVOLUTION_DILATIONS),
            convolution.values<int64_t>(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS),
            convolution.values<int64_t>(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS),
            false,
            false,
            false,
            image.value<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE),
            image.value<int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT)};
  for (size_t i = 1; i < operations.size(); ++i) {
    const Node& operation = *operations[i];
    const auto mode = operation.node(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR)
                          .value<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE);
    if (mode == CUDNN_POINTWISE_RELU_FWD)
      call.relu = true;
    else if (operation.node(CUDNN_ATTR_OPERATION_POINTWISE_BDESC).value<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID) == 4)
      call.bias = true;
    else
      call.residual = true;
    call.y = Tensor(operation.node(CUDNN_ATTR_OPERATION_POINTWISE_YDESC));
  }
  return call;
}

// Of the result, as the library checks it when an operation is finalized.
bool sizesAgree(const Node& operation) {
  const Names names = namesOf(operation.type);
  const Tensor x(operation.node(names.x)), w(operation.node(names.w)), y(operation.node(names.y));
  const Node& convolution = operation.node(names.convolution);
  const auto strides = convolution.values<int64_t>(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES),
             dilations = convolution.values<int64_t>(CUDNN_ATTR_CONVOLUTION_DILATIONS),
             before = convolution.values<int64_t>(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS),
             after = convolution.values<int64_t>(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS);
  for (size_t i = 0; i < strides.size(); ++i)
    if ((x.sizes[i + 2] + before[i] + after[i] - dilations[i] * (w.sizes[i + 2] - 1) - 1) / strides[i] + 1 !=
        y.sizes[i + 2])
      return false;
  return true;
}

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT size_t cudnnGetVersion() {
  const char* named = std::getenv("FAKE_CUDNN_VERSION");
  return named ? size_t(std::atoi(named)) : 91002;
}
EXPORT size_t cudnnGetCudartVersion() { return 13000; }
EXPORT const char* cudnnGetErrorString(cudnnStatus_t) { return "CUDNN_STATUS_FAKE"; }
EXPORT void cudnnGetLastErrorString(char* message, size_t bytes) { std::strncpy(message, "as the fake says", bytes); }
EXPORT cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  if (std::getenv("FAKE_CUDNN_INCOMPLETE"))
    return cudnnStatus_t(1008);  // a sub-library is missing
  return *handle = new cudnnContext, CUDNN_STATUS_SUCCESS;
}
EXPORT cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, CUstream stream) {
  return handle->stream = stream, CUDNN_STATUS_SUCCESS;
}
EXPORT cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                                  cudnnBackendDescriptor_t* descriptor) {
  *descriptor = new Handle(std::make_shared<Node>());
  nodeOf(*descriptor).type = type;
  return CUDNN_STATUS_SUCCESS;
}
EXPORT cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  return delete static_cast<Handle*>(descriptor), CUDNN_STATUS_SUCCESS;
}
EXPORT cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                              cudnnBackendAttributeType_t type, int64_t count, const void* elements) {
  Node& node = nodeOf(descriptor);
  if (node.final)
    return CUDNN_STATUS_BAD_PARAM;
  if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
    auto& nodes = node.nodes[name];
    nodes.clear();
    for (int64_t i = 0; i < count; ++i) {
      const Handle& given = *static_cast<Handle*>(static_cast<const cudnnBackendDescriptor_t*>(elements)[i]);
      if (!given->final)
        return CUDNN_STATUS_BAD_PARAM;
      nodes.push_back(given);
    }
    return CUDNN_STATUS_SUCCESS;
  }
  const auto* bytes = static_cast<const std::byte*>(elements);
  node.data[name].assign(bytes, bytes + size_t(count) * bytesOf(type));
  return CUDNN_STATUS_SUCCESS;
}
EXPORT cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  Node& node = nodeOf(descriptor);
  node.final = true;
  switch (node.type) {
  case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
  case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
  case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
    return sizesAgree(node) ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
  case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR: {
    const Call call = callOf(node.node(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH));
    return call.type == CUDNN_DATA_HALF || (!call.bias && (call.relu || call.residual)) ? CUDNN_STATUS_NOT_SUPPORTED
                                                                                        : CUDNN_STATUS_SUCCESS;
  }
  default: return CUDNN_STATUS_SUCCESS;
  }
}
EXPORT cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                              cudnnBackendAttributeType_t, int64_t wanted, int64_t* count,
                                              void* elements) {
  Node& node = nodeOf(descriptor);
  auto config = [&](const Node& of) { return of.value<int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX); };
  auto answer = [&](auto... values) {
    *count = sizeof...(values);
    auto* to = static_cast<int32_t*>(elements);
    ((*to++ = int32_t(values)), ...);
    return CUDNN_STATUS_SUCCESS;
  };
  switch (name) {
  case CUDNN_ATTR_ENGINEHEUR_RESULTS:
    *count = num_configs;
    for (int64_t i = 0; i < std::min<int64_t>(wanted, num_configs); ++i) {
      Node& made = nodeOf(static_cast<cudnnBackendDescriptor_t*>(elements)[i]);
      made.data[CUDNN_ATTR_ENGINE_GLOBAL_INDEX].resize(8);
      std::memcpy(made.data[CUDNN_ATTR_ENGINE_GLOBAL_INDEX].data(), &i, 8);
      made.nodes = node.nodes;
      made.final = true;
    }
    return CUDNN_STATUS_SUCCESS;
  case CUDNN_ATTR_ENGINECFG_ENGINE:
    *count = 1;
    nodeOf(*static_cast<cudnnBackendDescriptor_t*>(elements)).data = node.data;
    return CUDNN_STATUS_SUCCESS;
  case CUDNN_ATTR_ENGINE_GLOBAL_INDEX:
    *count = 1;
    *static_cast<int64_t*>(elements) = config(node);
    return CUDNN_STATUS_SUCCESS;
  case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE:
    switch (config(node)) {
    case unrepeatable: return answer(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC);
    case less_than_f32: return answer(CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION);
    case on_tensor_cores: return answer(CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
    default: return answer();
    }
  case CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE:
    return config(node) == compiled ? answer(CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION) : answer();
  case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
    *count = 1;
    *static_cast<int64_t*>(elements) =
        config(node.node(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)) == much_memory ? int64_t(1) << 40 : 1024;
    return CUDNN_STATUS_SUCCESS;
  default: return CUDNN_STATUS_BAD_PARAM;
  }
}
EXPORT cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                         cudnnBackendDescriptor_t pack) {
  if (std::getenv("FAKE_CUDNN_FAILS"))
    return CUDNN_STATUS_EXECUTION_FAILED;
  const Node& config = nodeOf(plan).node(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
  const Call call = callOf(config.node(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH));
  const auto ids = nodeOf(pack).values<int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const auto addresses = nodeOf(pack).values<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  std::map<int64_t, float*> at;
  for (size_t i = 0; i < ids.size(); ++i)
    at[ids[i]] = static_cast<float*>(addresses[i]);
  const char* kind = call.kind == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR         ? "convolution"
                     : call.kind == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR ? "by data"
                                                                                                 : "by weight";
  std::string what = std::string(kind) + " of " + call.x.text() + " by " + call.w.text() + " to " + call.y.text() +
                     (call.bias ? " bias" : "") + (call.residual ? " residual" : "") + (call.relu ? " relu" : "") +
                     " type " + std::to_string(call.type) + " aligned " + std::to_string(call.alignment) + " engine " +
                     std::to_string(config.value<int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX));
  const std::function<void()> run = [call, at] {
    if (call.type != CUDNN_DATA_FLOAT)
      return;
    float *x = at.at(1), *w = at.at(2), *y = at.at(3);
    switch (call.kind) {
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
      forEach(call.y.sizes, [&](const auto& to) { y[call.y.at(to)] = 0; });
      call.products([&](int64_t i, int64_t j, int64_t k) { y[k] += x[i] * w[j]; });
      forEach(call.y.sizes, [&](const auto& to) {
        float& sum = y[call.y.at(to)];
        sum += call.bias ? at.at(4)[to[1]] : 0;
        sum += call.residual ? at.at(5)[call.y.at(to)] : 0;
        sum = call.relu ? std::max(sum, 0.0f) : sum;
      });
      break;
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
      forEach(call.x.sizes, [&](const auto& to) { x[call.x.at(to)] = 0; });
      call.products([&](int64_t i, int64_t j, int64_t k) { x[i] += y[k] * w[j]; });
      break;
    default:
      forEach(call.w.sizes, [&](const auto& to) { w[call.w.at(to)] = 0; });
      call.products([&](int64_t i, int64_t j, int64_t k) { w[j] += y[k] * x[i]; });
    }
  };
  fake_cuda_submit(handle->stream, what.c_str(), &run);
  return CUDNN_STATUS_SUCCESS;
}
