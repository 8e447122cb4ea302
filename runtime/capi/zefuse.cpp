#include "runtime/capi/zefuse.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <vector>

#include "common/base/variables.h"
#include "common/plan/dtype.h"
#include "runtime/package/model.h"
#include "runtime/ze/device.h"

using zefuse::Code;
using zefuse::Result;
using zefuse::Status;

namespace plan = zefuse::plan;
namespace package = zefuse::package;

namespace {

constexpr std::pair<plan::DType, DLDataType> dtypes[] = {
    {plan::DType::f32, {kDLFloat, 32, 1}}, {plan::DType::f64, {kDLFloat, 64, 1}},
    {plan::DType::f16, {kDLFloat, 16, 1}}, {plan::DType::bf16, {kDLBfloat, 16, 1}},
    {plan::DType::i64, {kDLInt, 64, 1}},   {plan::DType::i32, {kDLInt, 32, 1}},
    {plan::DType::i16, {kDLInt, 16, 1}},   {plan::DType::i8, {kDLInt, 8, 1}},
    {plan::DType::u8, {kDLUInt, 8, 1}},    {plan::DType::b8, {kDLBool, 8, 1}}};

DLDataType dlType(plan::DType type) {
  for (const auto& [ours, theirs] : dtypes)
    if (ours == type)
      return theirs;
  return {};
}

std::string& message() {
  thread_local std::string text;
  return text;
}

zefuse_status fail(const Status& status) {
  message() = status.message();
  return static_cast<zefuse_status>(status.code());
}

// Runs `work`, which returns a Status; nothing but a status comes out.
template <typename Work> zefuse_status guarded(const Work& work) noexcept {
  try {
    const Status status = work();
    return status.ok() ? ZEFUSE_OK : fail(status);
  } catch (const std::bad_alloc&) {
    return fail({Code::out_of_memory, "no memory"});
  } catch (const std::exception& error) {
    return fail({Code::internal, error.what()});
  } catch (...) {
    return fail({Code::internal, "an exception of an unknown type"});
  }
}

static_assert(int(Code::ok) == ZEFUSE_OK && int(Code::invalid_argument) == ZEFUSE_INVALID_ARGUMENT &&
              int(Code::index_error) == ZEFUSE_INDEX_ERROR && int(Code::not_found) == ZEFUSE_NOT_FOUND &&
              int(Code::damaged) == ZEFUSE_DAMAGED && int(Code::unsupported) == ZEFUSE_UNSUPPORTED &&
              int(Code::out_of_memory) == ZEFUSE_OUT_OF_MEMORY && int(Code::deadline) == ZEFUSE_DEADLINE &&
              int(Code::device) == ZEFUSE_DEVICE && int(Code::internal) == ZEFUSE_INTERNAL &&
              int(Code::cancelled) == ZEFUSE_CANCELLED && int(Code::linear_algebra) == ZEFUSE_LINEAR_ALGEBRA);

Result<plan::DType> planType(const DLTensor& tensor) {
  for (const auto& [ours, theirs] : dtypes)
    if (theirs.code == tensor.dtype.code && theirs.bits == tensor.dtype.bits && tensor.dtype.lanes == 1)
      return ours;
  return Status{Code::invalid_argument, "element type (code " + std::to_string(tensor.dtype.code) + ", " +
                                            std::to_string(tensor.dtype.bits) + " bits, " +
                                            std::to_string(tensor.dtype.lanes) + " lanes) is none that a model takes"};
}

// A zefuse_tensor_info's arrays.
struct Description {
  const package::TensorInfo* info;
  std::vector<const char*> text;
};

std::vector<Description> describe(const std::vector<package::TensorInfo>& infos) {
  std::vector<Description> all;
  for (const package::TensorInfo& info : infos) {
    all.push_back({&info, {}});
    for (const std::string& text : info.size_text)
      all.back().text.push_back(text.c_str());
  }
  return all;
}

// An output: the tensor, its sizes and the memory go together.
struct Output {
  DLManagedTensor managed{};
  package::Tensor tensor;
};

DLManagedTensor* wrap(package::Tensor tensor, DLDevice device) {
  if (!tensor.storage)
    return nullptr;
  auto* output = new Output{{}, std::move(tensor)};
  DLTensor& dl = output->managed.dl_tensor;
  dl.data = output->tensor.storage.get();
  dl.byte_offset = uint64_t(static_cast<std::byte*>(output->tensor.data) - output->tensor.storage.get());
  dl.device = output->tensor.place == zefuse::Place::device ? device : DLDevice{kDLCPU, 0};
  dl.dtype = dlType(output->tensor.dtype);
  dl.ndim = int32_t(output->tensor.sizes.size());
  dl.shape = output->tensor.sizes.data();
  dl.strides = output->tensor.strides.data();
  output->managed.manager_ctx = output;
  output->managed.deleter = [](DLManagedTensor* self) { delete static_cast<Output*>(self->manager_ctx); };
  return &output->managed;
}

}  // namespace

struct zefuse_model {
  std::unique_ptr<package::Model> model;
  std::vector<Description> inputs, outputs;
  std::string device, why_not_first;
  DLDevice dl_device;
};

namespace {

Result<DLDevice> dlDevice(const zefuse::ze::Device* gpu) {
  if (!gpu)
    return DLDevice{kDLCPU, 0};
  const Result<int32_t> cuda = gpu->cudaOrdinal();
  if (!cuda.ok())
    return cuda.status();
  if (*cuda >= 0)
    return DLDevice{kDLCUDA, *cuda};
  return DLDevice{kDLOneAPI, int32_t(std::strtol(gpu->name.c_str() + gpu->name.find(':') + 1, nullptr, 10))};
}

std::string nameOf(DLDevice device) {
  const std::string kind = device.device_type == kDLCPU      ? "kDLCPU"
                           : device.device_type == kDLCUDA   ? "kDLCUDA"
                           : device.device_type == kDLOneAPI ? "kDLOneAPI"
                                                             : "type " + std::to_string(int(device.device_type));
  return kind + ":" + std::to_string(device.device_id);
}

// A tensor of the caller's, with the strides that it may have left out.
struct Given {
  zefuse::TensorRef ref;
  std::vector<int64_t> strides;
};

Status read(const zefuse_model& model, const DLTensor* tensor, const std::string& where, Given& given) {
  if (!tensor || tensor->ndim < 0 || (tensor->ndim && !tensor->shape))
    return {Code::invalid_argument, where + "no tensor, or one without sizes"};
  const bool on_gpu = model.dl_device.device_type != kDLCPU &&
                      tensor->device.device_type == model.dl_device.device_type &&
                      tensor->device.device_id == model.dl_device.device_id;
  if (tensor->device.device_type != kDLCPU && !on_gpu)
    return {Code::invalid_argument,
            where + "it lies on " + nameOf(tensor->device) + ", and the model takes tensors " +
                (model.dl_device.device_type == kDLCPU ? "in CPU memory: copy it there"
                                                       : "in CPU memory or on " + nameOf(model.dl_device))};
  auto dtype = planType(*tensor);
  if (!dtype.ok())
    return {Code::invalid_argument, where + dtype.status().message()};
  const auto rank = size_t(tensor->ndim);
  given.ref.dtype = *dtype;
  given.ref.place = on_gpu ? zefuse::Place::device : zefuse::Place::host;
  given.ref.data = tensor->data ? static_cast<std::byte*>(tensor->data) + tensor->byte_offset : nullptr;
  given.ref.sizes = {tensor->shape, rank};
  if (!tensor->strides) {
    given.strides.assign(rank, 1);
    for (size_t d = rank; d-- > 1;)
      given.strides[d - 1] = given.strides[d] * std::max<int64_t>(tensor->shape[d], 1);
  }
  given.ref.strides = {tensor->strides ? tensor->strides : given.strides.data(), rank};
  return {};
}

Status readCall(const zefuse_call_options* given, DLDevice device, package::CallOn& on) {
  zefuse_call_options options{};
  if (given)  // of an older caller's size: the rest stays at its default
    std::memcpy(&options, given, std::min(given->size, sizeof options));
  if (given && given->size < offsetof(zefuse_call_options, in_stream))
    return {Code::invalid_argument, "zefuse_call_options.size is not set: use sizeof(zefuse_call_options)"};
  if (!options.allocate != !options.free)
    return {Code::invalid_argument, "zefuse_call_options: allocate and free go together"};
  on.place.results = options.results_on_device ? zefuse::Place::device : zefuse::Place::host;
  if (options.in_stream)
    on.place.stream = options.stream;
  if (options.allocate)
    on.allocate = [options, device](size_t bytes) -> Result<std::shared_ptr<std::byte>> {
      void* memory = options.allocate(options.allocate_data, std::max<size_t>(bytes, 1), device, options.stream);
      if (!memory)
        return Status{Code::out_of_memory, "zefuse_call_options.allocate gave no memory for a result of " +
                                               std::to_string(bytes) + " bytes"};
      return std::shared_ptr<std::byte>(static_cast<std::byte*>(memory), [options, device](std::byte* freed) {
        options.free(options.allocate_data, freed, device);
      });
    };
  return {};
}

// "gpu:0,cpu" to a first choice and, where there is one, a second.
Status readDevices(const char* given, std::string& first, bool& or_cpu) {
  const std::string wanted = given ? given : "cpu";
  first = wanted;
  const size_t comma = first.find(',');
  or_cpu = comma != std::string::npos;
  const bool second_is_cpu = !or_cpu || first.substr(comma) == ",cpu";
  first = first.substr(0, comma);
  const std::string number = first.starts_with("gpu:")    ? first.substr(4)
                             : first.starts_with("cuda:") ? first.substr(5)
                                                          : "";
  const bool gpu = first == "gpu" || (!number.empty() && number.find_first_not_of("0123456789") == std::string::npos);
  if (!second_is_cpu || !(gpu || (first == "cpu" && !or_cpu)))
    return {Code::invalid_argument,
            "zefuse_load_options.device '" + wanted +
                "': expected \"cpu\", \"gpu:N\", \"cuda:N\", or \"gpu:N,cpu\" for the CPU where that GPU "
                "cannot be used"};
  return {};
}

Status readJit(const zefuse_load_options& options, package::ModelOptions& wanted) {
  zefuse_jit jit = options.jit;
  if (jit == ZEFUSE_JIT_DEFAULT) {
    const char* variable = std::getenv(zefuse::kJitVariable);
    const std::string text = variable && *variable ? variable : "never";
    if (text != "never" && text != "warn" && text != "allow")
      return {Code::invalid_argument,
              std::string(zefuse::kJitVariable) + "='" + text + "': expected never, warn or allow"};
    jit = text == "allow" ? ZEFUSE_JIT_ALLOW : text == "warn" ? ZEFUSE_JIT_WARN : ZEFUSE_JIT_NEVER;
  }
  switch (jit) {
  case ZEFUSE_JIT_NEVER: wanted.jit = zefuse::JitConsent::never; break;
  case ZEFUSE_JIT_WARN: wanted.jit = zefuse::JitConsent::warn; break;
  case ZEFUSE_JIT_ALLOW: wanted.jit = zefuse::JitConsent::allow; break;
  default: return {Code::invalid_argument, "zefuse_load_options.jit has no meaning"};
  }
  if (options.jit_timeout_s < 0)
    return {Code::invalid_argument, "zefuse_load_options.jit_timeout_s: expected seconds, or 0 for 120"};
  if (options.jit_timeout_s)
    wanted.jit_timeout_s = options.jit_timeout_s;
  wanted.jit_progress = [warn = jit == ZEFUSE_JIT_WARN, progress = options.jit_progress,
                         data = options.jit_progress_data](const std::string& device, const std::string& kernel,
                                                           size_t number, size_t count) {
    if (warn)
      std::fprintf(stderr,
                   "zefuse: no installed compiler covers %s: its driver compiles kernel %zu of %zu, %s, which may take "
                   "minutes\n",
                   device.c_str(), number, count, kernel.c_str());
    return !progress || progress(data, device.c_str(), kernel.c_str(), number, count) != 0;
  };
  return {};
}

zefuse_status load(const zefuse_load_options* given, zefuse_model** model, const auto& open) noexcept {
  return guarded([&]() -> Status {
    if (!model)
      return {Code::invalid_argument, "zefuse_model_load: no place for the model"};
    *model = nullptr;
    zefuse_load_options options{};
    if (given)  // of an older caller's size: the rest stays at its default
      std::memcpy(&options, given, std::min(given->size, sizeof options));
    if (given && given->size < offsetof(zefuse_load_options, cache_dir))
      return {Code::invalid_argument, "zefuse_load_options.size is not set: use sizeof(zefuse_load_options)"};
    package::WeightsCheck check;
    switch (options.weights_check) {
    case ZEFUSE_CHECK_AT_FIRST_CALL: check = package::WeightsCheck::at_first_use; break;
    case ZEFUSE_CHECK_AT_LOAD: check = package::WeightsCheck::at_open; break;
    case ZEFUSE_CHECK_NEVER: check = package::WeightsCheck::never; break;
    default: return {Code::invalid_argument, "zefuse_load_options.weights_check has no meaning"};
    }
    package::ModelOptions wanted;
    bool or_cpu = false;
    ZEFUSE_RETURN_IF_ERROR(readDevices(options.device, wanted.device, or_cpu));
    ZEFUSE_RETURN_IF_ERROR(readJit(options, wanted));
    wanted.cache_dir = options.cache_dir ? options.cache_dir : "";
    wanted.build_threads = options.build_threads;
    wanted.device_tensors = options.device_tensors != 0;
    if (options.cancelled)
      wanted.cancelled = [asked = options.cancelled, data = options.cancelled_data] { return asked(data) != 0; };
    auto opened = open(check, wanted.cancelled);
    if (!opened.ok())
      return opened.status();
    const std::shared_ptr<const package::Reader> reader = std::move(*opened);
    auto loaded = package::Model::load(reader, wanted);
    std::string why;
    if (const Code code = loaded.status().code();
        or_cpu && (code == Code::not_found || code == Code::deadline || code == Code::device)) {
      why = loaded.status().message();
      wanted.device = "cpu";
      loaded = package::Model::load(reader, wanted);
    }
    // What a caller was told that knows of no ZEFUSE_CANCELLED.
    const bool knows_cancelled = given && given->size > offsetof(zefuse_load_options, cancelled);
    if (loaded.status().code() == Code::cancelled && !knows_cancelled)
      return {Code::deadline, loaded.status().message()};
    if (!loaded.ok())
      return loaded.status();
    auto inputs = describe((*loaded)->inputs()), outputs = describe((*loaded)->outputs());
    const auto lies = dlDevice((*loaded)->gpu());
    if (!lies.ok())
      return lies.status();
    *model = new zefuse_model{std::move(*loaded), std::move(inputs), std::move(outputs), wanted.device, why, *lies};
    return {};
  });
}

zefuse_status info(const std::vector<Description>* all, size_t index, bool strides, zefuse_tensor_info* out) noexcept {
  return guarded([&]() -> Status {
    if (!all || !out || index >= all->size())
      return {Code::invalid_argument, "zefuse: no tensor with this number, or no place for the answer"};
    const Description& description = (*all)[index];
    const package::TensorInfo& info = *description.info;
    *out = {info.name.c_str(), dlType(info.dtype),      int32_t(info.sizes.size()),
            info.sizes.data(), description.text.data(), strides ? info.strides.data() : nullptr};
    return {};
  });
}

}  // namespace

uint32_t zefuse_abi_version(void) { return ZEFUSE_ABI_VERSION; }

const char* zefuse_status_name(zefuse_status status) { return codeName(static_cast<Code>(status)); }

const char* zefuse_error_message(void) { return message().c_str(); }

zefuse_status zefuse_model_load_file(const char* path, const zefuse_load_options* options, zefuse_model** model) {
  return load(options, model, [&](auto... how) -> Result<std::unique_ptr<package::Reader>> {
    if (!path)
      return Status{Code::invalid_argument, "zefuse_model_load_file: no path"};
    return package::Reader::open(path, how...);
  });
}

zefuse_status zefuse_model_load_buffer(const void* data, size_t bytes, const zefuse_load_options* options,
                                       zefuse_model** model) {
  return load(options, model, [&](auto... how) {
    return package::Reader::fromBuffer({static_cast<const std::byte*>(data), data ? bytes : 0}, how...);
  });
}

void zefuse_model_release(zefuse_model* model) { delete model; }

const char* zefuse_model_device(const zefuse_model* model, const char** why) {
  if (why)
    *why = model && !model->why_not_first.empty() ? model->why_not_first.c_str() : nullptr;
  return model ? model->device.c_str() : "";
}

size_t zefuse_model_num_inputs(const zefuse_model* model) { return model ? model->inputs.size() : 0; }
size_t zefuse_model_num_outputs(const zefuse_model* model) { return model ? model->outputs.size() : 0; }

zefuse_status zefuse_model_input(const zefuse_model* model, size_t index, zefuse_tensor_info* out) {
  return info(model ? &model->inputs : nullptr, index, true, out);
}

zefuse_status zefuse_model_output(const zefuse_model* model, size_t index, zefuse_tensor_info* out) {
  return info(model ? &model->outputs : nullptr, index, false, out);
}

zefuse_status zefuse_model_call(zefuse_model* model, const DLTensor* const* inputs, size_t num_inputs,
                                DLManagedTensor** outputs, size_t num_outputs) {
  return zefuse_model_call_with(model, nullptr, inputs, num_inputs, outputs, num_outputs);
}

zefuse_status zefuse_model_call_with(zefuse_model* model, const zefuse_call_options* options,
                                     const DLTensor* const* inputs, size_t num_inputs, DLManagedTensor** outputs,
                                     size_t num_outputs) {
  if (outputs)
    std::fill(outputs, outputs + num_outputs, nullptr);
  return guarded([&]() -> Status {
    if (!model || (!inputs && num_inputs) || (!outputs && num_outputs))
      return {Code::invalid_argument, "zefuse_model_call: no model, inputs or outputs"};
    if (num_outputs != model->outputs.size())
      return {Code::invalid_argument, "zefuse_model_call: the model gives " + std::to_string(model->outputs.size()) +
                                          " outputs, there is room for " + std::to_string(num_outputs)};
    package::CallOn on;
    ZEFUSE_RETURN_IF_ERROR(readCall(options, model->dl_device, on));
    std::vector<Given> given(num_inputs);
    std::vector<zefuse::TensorRef> refs;
    for (size_t i = 0; i < num_inputs; ++i) {
      const bool left_out = !inputs[i] && i < model->inputs.size() && model->inputs[i].info->constant;
      if (!left_out)
        ZEFUSE_RETURN_IF_ERROR(read(*model, inputs[i], "input " + std::to_string(i) + ": ", given[i]));
      refs.push_back(given[i].ref);
    }
    auto results = model->model->call(refs, on);
    if (!results.ok())
      return results.status();
    try {
      for (size_t i = 0; i < num_outputs; ++i)
        outputs[i] = wrap(std::move((*results)[i]), model->dl_device);
    } catch (...) {
      for (size_t i = 0; i < num_outputs; ++i)
        if (DLManagedTensor* made = std::exchange(outputs[i], nullptr))
          made->deleter(made);
      throw;
    }
    return {};
  });
}

zefuse_status zefuse_model_synchronize(zefuse_model* model) {
  return guarded([&]() -> Status {
    if (!model)
      return {Code::invalid_argument, "zefuse_model_synchronize: no model"};
    return model->model->synchronize();
  });
}

DLDevice zefuse_model_dl_device(const zefuse_model* model) { return model ? model->dl_device : DLDevice{kDLCPU, 0}; }

zefuse_status zefuse_model_copy_tensor(zefuse_model* model, const DLTensor* tensor, int32_t to_device,
                                       DLManagedTensor** copy) {
  if (copy)
    *copy = nullptr;
  return guarded([&]() -> Status {
    if (!model || !copy)
      return {Code::invalid_argument, "zefuse_model_copy_tensor: no model, or no place for the copy"};
    Given given;
    ZEFUSE_RETURN_IF_ERROR(read(*model, tensor, "zefuse_model_copy_tensor: ", given));
    auto made = model->model->copyTo(to_device ? zefuse::Place::device : zefuse::Place::host, given.ref);
    if (!made.ok())
      return made.status();
    *copy = wrap(std::move(*made), model->dl_device);
    return {};
  });
}

zefuse_status zefuse_model_file(const zefuse_model* model, const char* name, const void** data, size_t* bytes) {
  if (data)
    *data = nullptr;
  if (bytes)
    *bytes = 0;
  return guarded([&]() -> Status {
    if (!model || !name || !data || !bytes)
      return {Code::invalid_argument, "zefuse_model_file: no model, no name, or no place for the answer"};
    auto found = model->model->file(name);
    ZEFUSE_RETURN_IF_ERROR(found.status());
    *data = found->data();
    *bytes = found->size();
    return {};
  });
}

zefuse_status zefuse_model_check_weights(zefuse_model* model) {
  return guarded([&]() -> Status {
    if (!model)
      return {Code::invalid_argument, "zefuse_model_check_weights: no model"};
    return model->model->checkWeights();
  });
}
