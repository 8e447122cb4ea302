#include "runtime/package/model.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "common/base/fork.h"
#include "common/plan/dtype.h"
#include "common/toolchain/targets.h"
#include "runtime/executor/device_memory.h"
#include "runtime/executor/strided_copy.h"
#include "runtime/ze/device.h"

namespace zefuse::package {
namespace {

using plan::elementSize;

constexpr size_t memory_alignment = 64;

std::shared_ptr<std::byte> allocate(size_t bytes) {
  const size_t rounded = (std::max<size_t>(bytes, 1) + memory_alignment - 1) / memory_alignment * memory_alignment;
  return {static_cast<std::byte*>(std::aligned_alloc(memory_alignment, rounded)), std::free};
}

std::vector<int64_t> rowMajor(std::span<const int64_t> sizes) {
  std::vector<int64_t> strides(sizes.size());
  int64_t stride = 1;
  for (size_t d = sizes.size(); d-- > 0;) {
    strides[d] = stride;
    // Where it overflows there is a 0 among the sizes, and no element to reach.
    if (__builtin_mul_overflow(stride, std::max<int64_t>(sizes[d], 1), &stride))
      stride = 0;
  }
  return strides;
}

// Elements from the first to the last that these strides reach, plus one. 0: the strides are none that memory could
// have.
uint64_t extentOf(std::span<const int64_t> sizes, std::span<const int64_t> strides) {
  uint64_t extent = 1;
  for (size_t d = 0; d < sizes.size(); ++d) {
    uint64_t reach = 0;
    if (strides[d] < 0 ||
        __builtin_mul_overflow(uint64_t(std::max<int64_t>(sizes[d], 1) - 1), uint64_t(strides[d]), &reach) ||
        __builtin_add_overflow(extent, reach, &extent) || extent > uint64_t(1) << 48)
      return 0;
  }
  return extent;
}

std::string shapeText(const TensorRef& tensor) {
  std::string text = std::string(plan::dtypeName(tensor.dtype)) + "[";
  for (size_t d = 0; d < tensor.sizes.size(); ++d)
    text += (d ? ", " : "") + std::to_string(tensor.sizes[d]);
  return text + "]";
}

// A weight as the plans read it.
struct BoundWeight {
  std::shared_ptr<std::byte> own;  // null: it lies in the package
  void* data = nullptr;
  plan::DType dtype{};
  std::vector<int64_t> sizes, strides;

  TensorRef ref() const { return {data, dtype, sizes, strides, 0, nullptr}; }
};

// One plan on the device.
struct Part {
  const PlanEntry* entry = nullptr;
  std::unique_ptr<Executable> executable;
  std::vector<TensorInfo> inputs, outputs;

  bool accepts(std::span<const TensorRef> given) const {
    for (size_t i = 0; i < inputs.size(); ++i) {
      const TensorInfo& info = inputs[i];
      if (info.integer || info.constant)
        continue;
      if (given[i].dtype != info.dtype || given[i].sizes.size() != info.sizes.size())
        return false;
      for (size_t d = 0; d < info.sizes.size(); ++d)
        if (info.sizes[d] >= 0 && info.sizes[d] != given[i].sizes[d])
          return false;
    }
    return true;
  }

  // What torch.export guarded. invalid_argument: what does not hold.
  Status checkGuards(std::span<const TensorRef> given) const {
    if (entry->guards.empty())
      return {};
    std::vector<Argument> arguments(inputs.size());
    for (size_t i = 0; i < inputs.size(); ++i)
      arguments[i] = inputs[i].constant || inputs[i].integer ? numberOf(given[i])
                                                             : Argument(Sizes{given[i].sizes, given[i].strides});
    return entry->guards.check(arguments);
  }

private:
  // The number in a tensor of one element. A constant that is left out is what it was.
  static Argument numberOf(const TensorRef& tensor) {
    if (!tensor.data)
      return Unknown{};
    if (std::ranges::any_of(tensor.sizes, [](int64_t size) { return size != 1; }))
      return {};
    auto read = [&]<typename T>(T value) {
      std::memcpy(&value, tensor.data, sizeof value);
      return value;
    };
    switch (tensor.dtype) {
    case plan::DType::i64: return read(int64_t());
    case plan::DType::i32: return int64_t(read(int32_t()));
    case plan::DType::f64: return read(double());
    case plan::DType::f32: return double(read(float()));
    case plan::DType::b8: return read(uint8_t()) != 0;
    default: return {};
    }
  }
};

}  // namespace

Result<std::vector<const PlanEntry*>> plansFor(const Reader& reader, const Manifest& manifest,
                                               const std::string& device) {
  if (manifest.plans.empty())
    return Status{Code::unsupported,
                  reader.name() + " holds graphs of torch.compile only: attach it with options={\"package\": ...}, or "
                                  "compile a program of torch.export to load it by itself"};
  std::string target = "cpu", what = "the CPU";
  bool any_gpu = false;
  if (device != "cpu") {
    Result<ze::Device> found = ze::Device::find(device);
    if (!found.ok())
      return found.status();
    char id[16];
    std::snprintf(id, sizeof id, "0x%04x", found->properties.deviceId);
    what = "device '" + device + "' (" + found->description + ", id " + id + ")";
    any_gpu = found->isPosing();  // our driver that poses as one runs every product's kernels
    target = found->product();
    if (target.empty())
      return Status{Code::not_found,
                    reader.name() + ": " + what +
                        " is none of the GPUs that this zefuse knows; `zefuse targets` lists them; load "
                        "on 'cpu', use a newer zefuse, or name in " +
                        ze::kGpuTargetVariable + " a product whose code runs on it"};
    what += ", which is " + target;
  }
  if (any_gpu && std::ranges::find(manifest.plans, target, &PlanEntry::target) == manifest.plans.end())
    for (const PlanEntry& entry : manifest.plans)
      if (entry.target != "cpu")
        target = entry.target;
  std::vector<const PlanEntry*> chosen;
  std::string held;
  for (const PlanEntry& entry : manifest.plans) {
    if (entry.target == target)
      chosen.push_back(&entry);
    else if (held.find("'" + entry.target + "'") == std::string::npos)
      held += (held.empty() ? "'" : ", '") + entry.target + "'";
  }
  if (chosen.empty())
    return Status{Code::not_found, reader.name() + " has no plan for " + what + "; it has some for " + held +
                                       ": compile it with --targets " + target + ", or load it on another device"};
  return chosen;
}

std::vector<std::string> nativeTargets(std::string_view target) {
  if (target != "cpu")
    return {std::string(target)};
  std::vector<std::string> names;
  for (size_t level = hostCpuLevel() + 1; level-- > 0;)
    names.emplace_back(cpuTargets()[level].name);
  names.emplace_back("cpu");  // format 1
  return names;
}

struct Model::Impl {
  std::shared_ptr<const Reader> reader;
  Manifest manifest;
  std::map<std::string, BoundWeight, std::less<>> weights;
  std::vector<Part> parts;
  bool stateful = false;
  LongForkMutex turn;  // held by calls of a stateful model
  std::atomic<bool> weights_checked{false};
  std::shared_ptr<executor::DeviceContext> gpu;  // null: the CPU

  Status bindWeights(const CancelCheck& cancelled);
  // A row-major tensor at `place` with the elements of `given`.
  Result<Tensor> copyOf(const TensorRef& given, Place place, const CallOn& on) const;
  Result<std::shared_ptr<std::byte>> allocateAt(Place place, size_t bytes, const CallOn& on) const;
  // The part that a call with these inputs runs.
  Result<const Part*> partFor(std::span<const TensorRef> given) const;
  Result<std::vector<CallInput>> inputsOf(const Part& part, std::span<const TensorRef> given) const;
  Result<Tensor> takeResult(const CallOutput& output, std::span<const CallInput> inputs,
                            std::vector<std::shared_ptr<std::byte>>& buffers, const CallOn& on) const;
  // Into the weight or input that the call changes.
  Status writeBack(const OutputSlot& slot, const Tensor& changed, std::span<const TensorRef> given,
                   const CallOn& on) const;
};

Result<std::shared_ptr<std::byte>> Model::Impl::allocateAt(Place place, size_t bytes, const CallOn& on) const {
  if (place == Place::device && !on.allocate)
    return executor::allocateOnDevice(gpu, bytes);
  auto made = place == Place::device ? on.allocate(bytes) : allocate(bytes);
  if (made.ok() && !*made)
    return Status{Code::out_of_memory, "no memory for an output of " + std::to_string(bytes) + " bytes"};
  return made;
}

Result<Tensor> Model::Impl::copyOf(const TensorRef& given, Place place, const CallOn& on) const {
  Tensor tensor{.place = place, .dtype = given.dtype, .sizes = {given.sizes.begin(), given.sizes.end()}};
  tensor.strides = rowMajor(given.sizes);
  const bool empty = std::ranges::find(given.sizes, 0) != given.sizes.end();
  const uint64_t extent = empty ? 1 : extentOf(given.sizes, tensor.strides);  // of a broadcast view: any number
  if (!extent)
    return Status{Code::out_of_memory, "no memory for an output"};
  auto storage = allocateAt(place, size_t(extent) * elementSize(given.dtype), on);
  if (!storage.ok())
    return storage.status();
  tensor.storage = std::move(*storage);
  tensor.data = tensor.storage.get();
  ZEFUSE_RETURN_IF_ERROR(executor::copyTensor(gpu.get(), on.place.stream, {tensor.data, place, tensor.strides},
                                              {given.data, given.place, given.strides}, given.sizes,
                                              elementSize(given.dtype)));
  return tensor;
}

Status Model::Impl::bindWeights(const CancelCheck& cancelled) {
  auto read = readWeights(*reader);
  if (!read.ok())
    return read.status();
  std::set<std::string, std::less<>> changed;
  for (const Part& part : parts)
    for (const OutputSlot& slot : part.entry->outputs)
      if (slot.kind == OutputSlot::Kind::weight)
        changed.insert(slot.weight);
  stateful = !changed.empty();
  // Copies are made of what the package holds now, so its hash comes first.
  for (Weight& weight : *read) {
    BoundWeight bound{nullptr, const_cast<std::byte*>(weight.bytes.data()), weight.dtype, weight.sizes,
                      rowMajor(weight.sizes)};
    const auto strides = manifest.strides.find(weight.name);
    if (strides != manifest.strides.end() || changed.contains(weight.name)) {
      std::vector<int64_t> wanted = strides != manifest.strides.end() ? strides->second : bound.strides;
      const uint64_t extent = wanted.size() == weight.sizes.size() ? extentOf(weight.sizes, wanted) : 0;
      if (!extent)
        return {Code::damaged, reader->name() + ": weight '" + weight.name + "' has impossible strides; make it again"};
      ZEFUSE_RETURN_IF_ERROR(reader->checkWeights(cancelled));
      const size_t bytes = size_t(extent) * elementSize(weight.dtype);
      bound.own = allocate(bytes);
      if (!bound.own)
        return {Code::out_of_memory,
                "no memory for " + std::to_string(bytes) + " bytes of weight '" + weight.name + "'"};
      executor::stridedCopy(bound.own.get(), wanted, weight.bytes.data(), bound.strides, weight.sizes,
                            elementSize(weight.dtype));
      bound.data = bound.own.get();
      bound.strides = std::move(wanted);
    }
    weights.emplace(weight.name, std::move(bound));
  }
  for (const Part& part : parts) {
    for (const InputSlot& slot : part.entry->inputs)
      if (slot.is_weight && !weights.contains(slot.weight))
        return {Code::damaged, reader->name() + ": weight '" + slot.weight + "' is missing; make it again"};
    for (const OutputSlot& slot : part.entry->outputs)
      if (slot.kind == OutputSlot::Kind::weight && !weights.contains(slot.weight))
        return {Code::damaged, reader->name() + ": buffer '" + slot.weight + "' is missing; make it again"};
  }
  return {};
}

Model::Model(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Model::~Model() = default;

const std::vector<TensorInfo>& Model::inputs() const { return impl_->parts.front().inputs; }
const std::vector<TensorInfo>& Model::outputs() const { return impl_->parts.front().outputs; }
const Manifest& Model::manifest() const { return impl_->manifest; }

Result<std::span<const std::byte>> Model::file(std::string_view name) const {
  std::string known;
  for (const Reader::Section& section : impl_->reader->sections()) {
    if (!section.name.starts_with(file_section))
      continue;
    const std::string_view own = std::string_view(section.name).substr(file_section.size());
    if (own == name)
      return section.bytes;
    known += (known.empty() ? "'" : ", '") + std::string(own) + "'";
  }
  return Status{Code::not_found, impl_->reader->name() + " carries no file '" + std::string(name) + "'; it has " +
                                     (known.empty() ? "none" : known)};
}

Status Model::checkWeights() const {
  ZEFUSE_RETURN_IF_ERROR(impl_->reader->checkWeights());
  impl_->weights_checked = true;
  return {};
}

Result<std::unique_ptr<Model>> Model::load(std::shared_ptr<const Reader> reader, const ModelOptions& options) {
  auto impl = std::make_unique<Impl>();
  impl->reader = std::move(reader);
  const Reader& package = *impl->reader;
  Result<Manifest> manifest = Manifest::read(package);
  if (!manifest.ok())
    return manifest.status();
  impl->manifest = std::move(*manifest);
  auto chosen = plansFor(package, impl->manifest, options.device);
  if (!chosen.ok())
    return chosen.status();

  ExecutableOptions build;
  build.device = options.device;
  build.cache_dir = options.cache_dir;
  build.build_threads = options.build_threads;
  build.allow_aten = false;
  build.jit = options.jit;
  build.jit_timeout_s = options.jit_timeout_s;
  build.jit_progress = options.jit_progress;
  build.cancelled = options.cancelled;
  build.in_streams = options.device_tensors;
  build.native_binary = [&](std::string_view id, std::string_view target) -> std::span<const std::byte> {
    for (const std::string& name : nativeTargets(target))
      if (const auto bytes = package.native(id, name); !bytes.empty())
        return bytes;
    return {};
  };
  if (options.device != "cpu") {
    auto gpu = executor::DeviceContext::open(options.device);
    if (!gpu.ok())
      return gpu.status();
    impl->gpu = std::move(*gpu);
  }
  for (const PlanEntry* entry : *chosen) {
    if (options.cancelled())
      return Status{Code::cancelled, package.name() + ": loading was cancelled after " +
                                         std::to_string(impl->parts.size()) + " of " + std::to_string(chosen->size()) +
                                         " plans"};
    auto bytes = package.section(entry->section);
    if (!bytes.ok())
      return bytes.status();
    auto executable = Executable::create(*bytes, build);
    if (!executable.ok())
      return Status{executable.status().code(), package.name() + ": " + executable.status().message(),
                    executable.status().place()};
    Part part{entry, std::move(*executable), {}, {}};
    if (!describe(impl->manifest, *entry, part.executable->plan(), part.inputs, part.outputs) ||
        !writesOnlyWhatItChanges(*entry, part.executable->plan()))
      return Status{Code::damaged, package.name() + ": its manifest and plan '" + entry->section +
                                       "' do not belong together; make it again"};
    impl->parts.push_back(std::move(part));
  }
  ZEFUSE_RETURN_IF_ERROR(impl->bindWeights(options.cancelled));
  return std::unique_ptr<Model>(new Model(std::move(impl)));
}

Result<Tensor> Model::Impl::takeResult(const CallOutput& output, std::span<const CallInput> inputs,
                                       std::vector<std::shared_ptr<std::byte>>& buffers, const CallOn& on) const {
  Tensor tensor;
  switch (output.kind) {
  case CallOutput::Kind::none: return tensor;
  case CallOutput::Kind::integer:
    tensor.storage = allocate(sizeof output.integer);
    if (!tensor.storage)
      return Status{Code::out_of_memory, "no memory for an output"};
    std::memcpy(tensor.storage.get(), &output.integer, sizeof output.integer);
    tensor.data = tensor.storage.get();
    tensor.dtype = plan::DType::i64;
    return tensor;
  case CallOutput::Kind::output_buffer:
    tensor.storage = buffers.at(output.index);
    tensor.place = on.place.results;
    tensor.data = tensor.storage.get() + output.offset * int64_t(elementSize(output.dtype));
    tensor.dtype = output.dtype;
    tensor.sizes = output.sizes;
    tensor.strides = output.strides;
    return tensor;
  case CallOutput::Kind::input: {
    TensorRef source = inputs[output.index].tensor;
    source.data = static_cast<std::byte*>(source.data) + output.offset * int64_t(elementSize(output.dtype));
    source.dtype = output.dtype;
    source.sizes = output.sizes;
    source.strides = output.strides;
    return copyOf(source, on.place.results, on);
  }
  case CallOutput::Kind::external: break;
  }
  return Status{Code::internal, "an output of ATen's in a plan without ATen"};
}

Status Model::synchronize() {
  for (const Part& part : impl_->parts)
    ZEFUSE_RETURN_IF_ERROR(part.executable->synchronize());
  return {};
}

const ze::Device* Model::gpu() const { return impl_->gpu ? &impl_->gpu->device() : nullptr; }

Result<Tensor> Model::copyTo(Place place, const TensorRef& tensor) {
  if (!impl_->gpu && (place == Place::device || tensor.place == Place::device))
    return Status{Code::invalid_argument, "the model is on the CPU, and a tensor on a device is wanted or given"};
  return impl_->copyOf(tensor, place, {});
}

// Whether the model can take inputs that lie there, and put its results where the caller wants them.
Status Model::checkCall(std::span<const TensorRef> given, const CallOn& on) const {
  const bool gpu = impl_->gpu != nullptr;
  if (given.size() != inputs().size())
    return Status{Code::invalid_argument, "the model takes " + std::to_string(inputs().size()) + " inputs, got " +
                                              std::to_string(given.size())};
  if (!gpu && (on.place.results == Place::device || on.place.stream))
    return Status{Code::invalid_argument, "the model is on the CPU: its results cannot lie on a device, nor its work "
                                          "go into a stream"};
  for (size_t i = 0; i < given.size(); ++i)
    if (given[i].place == Place::device && (!gpu || inputs()[i].integer || inputs()[i].constant))
      return Status{Code::invalid_argument,
                    "input " + std::to_string(i) + " '" + inputs()[i].name + "' lies on a device, and " +
                        (gpu ? "it is a number, which is given in CPU memory" : "the model is on the CPU")};
  return {};
}

Result<const Part*> Model::Impl::partFor(std::span<const TensorRef> given) const {
  if (parts.size() == 1) {
    ZEFUSE_RETURN_IF_ERROR(parts.front().checkGuards(given));
    return &parts.front();
  }
  for (const Part& part : parts)
    if (part.accepts(given) && part.checkGuards(given).ok())
      return &part;
  std::string text = "no set of shapes in the package fits: got (";
  for (size_t i = 0; i < given.size(); ++i)
    text += (i ? ", " : "") + shapeText(given[i]);
  text += "), compiled for";
  for (const Part& part : parts) {
    text += &part == &parts.front() ? " (" : ", (";
    for (size_t i = 0; i < part.inputs.size(); ++i)
      text += (i ? ", " : "") + zefuse::package::text(part.inputs[i]);
    text += ")";
  }
  return Status{Code::invalid_argument, text};
}

Result<std::vector<CallInput>> Model::Impl::inputsOf(const Part& part, std::span<const TensorRef> given) const {
  std::vector<CallInput> inputs(part.entry->inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const InputSlot& slot = part.entry->inputs[i];
    inputs[i].tensor = slot.is_weight ? weights.find(slot.weight)->second.ref() : given[slot.user];
    if (slot.is_weight)
      continue;
    inputs[i].is_tensor = !slot.constant && !part.inputs[slot.user].integer;
    if (slot.constant || inputs[i].is_tensor)
      continue;
    const TensorRef& number = given[slot.user];
    if (number.dtype != plan::DType::i64 || !number.data ||
        std::ranges::any_of(number.sizes, [](int64_t size) { return size != 1; }))
      return Status{Code::invalid_argument, "input " + std::to_string(slot.user) + " '" + part.inputs[slot.user].name +
                                                "': expected a tensor of one i64"};
    std::memcpy(&inputs[i].integer, number.data, sizeof inputs[i].integer);
  }
  return inputs;
}

Status Model::Impl::writeBack(const OutputSlot& slot, const Tensor& changed, std::span<const TensorRef> given,
                              const CallOn& on) const {
  const TensorRef target =
      slot.kind == OutputSlot::Kind::weight ? weights.find(slot.weight)->second.ref() : given[slot.user];
  if (target.dtype != changed.dtype || !std::ranges::equal(target.sizes, changed.sizes))
    return Status{Code::internal, "a changed tensor has another dtype or shape than before"};
  if (std::ranges::find(target.sizes, 0) != target.sizes.end())
    return {};
  if (!target.data)
    return Status{Code::invalid_argument, "input " + std::to_string(slot.user) + " has no data to change"};
  return executor::copyTensor(gpu.get(), on.place.stream, {target.data, target.place, target.strides},
                              {changed.data, changed.place, changed.strides}, changed.sizes, elementSize(target.dtype));
}

Result<std::vector<Tensor>> Model::call(std::span<const TensorRef> given, const CallOn& on) {
  Impl& impl = *impl_;
  ZEFUSE_RETURN_IF_ERROR(checkCall(given, on));
  if (!impl.weights_checked.load(std::memory_order_acquire)) [[unlikely]]
    ZEFUSE_RETURN_IF_ERROR(checkWeights());
  auto part = impl.partFor(given);
  if (!part.ok())
    return part.status();
  std::unique_lock turn(impl.turn, std::defer_lock);
  if (impl.stateful) {
    turn.lock();
    if (impl.turn.abandoned()) [[unlikely]]
      return Status{Code::invalid_argument,
                    "this process was forked while another thread's call was changing the model's buffers, which may "
                    "be half changed here: load the model again, or fork between calls"};
  }
  auto call = impl.inputsOf(**part, given);
  if (!call.ok())
    return call.status();
  std::vector<std::shared_ptr<std::byte>> buffers((*part)->executable->numOutputBuffers());
  auto results = (*part)->executable->call(
      *call,
      [&](const OutputRequest& request) -> Result<void*> {
        auto memory = impl.allocateAt(request.place, request.bytes, on);
        if (!memory.ok())
          return memory.status();
        buffers.at(request.index) = std::move(*memory);
        return static_cast<void*>(buffers[request.index].get());
      },
      nullptr, on.place);
  if (!results.ok())
    return results.status();

  // All results first: one may be an input's memory that another is about to change.
  std::vector<Tensor> tensors, users(impl.manifest.output_names.size());
  for (const CallOutput& output : *results) {
    auto tensor = impl.takeResult(output, *call, buffers, on);
    if (!tensor.ok())
      return tensor.status();
    tensors.push_back(std::move(*tensor));
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    const OutputSlot& slot = (*part)->entry->outputs[i];
    if (slot.kind == OutputSlot::Kind::user)
      users[slot.user] = std::move(tensors[i]);
    else
      ZEFUSE_RETURN_IF_ERROR(impl.writeBack(slot, tensors[i], given, on));
  }
  return users;
}

}  // namespace zefuse::package
