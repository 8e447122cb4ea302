#include "python/csrc/compiled_graph.h"

#include <algorithm>
#include <bit>

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/DeviceGuard.h>
#include <torch/csrc/autograd/python_variable.h>

#include "common/plan/plan_generated.h"
#include "common/plan/plan_json.h"
#include "python/csrc/errors.h"
#include "python/csrc/gil.h"
#include "python/csrc/kept_memory.h"
#include "python/csrc/profiler_rows.h"
#include "python/csrc/tensors.h"
#include "runtime/aten/lazy_values.h"

namespace py = pybind11;

namespace zefuse::python {

CompiledGraph::CompiledGraph(std::unique_ptr<Executable> executable, std::vector<at::Tensor> constants, Origin origin)
    : executable_(std::move(executable)), constants_(std::move(constants)), origin_(std::move(origin)) {
  if (const auto* given = executable_->plan().inputs())
    for (flatbuffers::uoffset_t i = 0; i < given->size(); ++i)
      if (given->Get(i)->written())
        written_.push_back(i);
  const plan::Plan& plan = executable_->plan();
  if (origin_.place && plan.kept_weights() && plan.inputs())
    for (flatbuffers::uoffset_t i = 0; i < plan.inputs()->size(); ++i)
      if (plan.inputs()->Get(i)->kind() == plan::InputKind::parameter && !plan.inputs()->Get(i)->written())
        storages_.emplace_back(i, std::nullopt);
  if (origin_.place)
    giveBackTorchsCache(origin_.place->type());
}

CompiledGraph::~CompiledGraph() {
  kept_memory::release();  // it may have been for this one's results
  if (!origin_.place)
    return;
  const py::gil_scoped_release released;  // what is still queued is waited for
  executable_.reset();
}

// What no step reads may be anything: None, or the SymInt that stands for a nested tensor's lengths.
static void readNumber(PyObject* object, const plan::Plan& plan, size_t number, int64_t source, CallInput& into) {
  if (PyFloat_Check(object)) {
    into.is_real = true;
    into.integer = std::bit_cast<int64_t>(PyFloat_AS_DOUBLE(object));
    return;
  }
  if (!PyLong_Check(object)) {
    const auto* expected = plan.inputs();
    if (object == Py_None || number >= expected->size() ||
        expected->Get(static_cast<flatbuffers::uoffset_t>(number))->kind() == plan::InputKind::unused)
      return;
    if (!PyIndex_Check(object))
      raise(Status(Code::invalid_argument, "input " + std::to_string(source) + ": expected a tensor or a number, got " +
                                               Py_TYPE(object)->tp_name));
  }
  into.integer = py::cast<int64_t>(py::handle(object));
}

void CompiledGraph::read(PyObject* object, size_t number, int64_t source, Arguments& into) const {
  if (!THPVariable_Check(object)) {
    into.inputs[number].is_tensor = false;
    readNumber(object, executable_->plan(), number, source, into.inputs[number]);
    return;
  }
  into.tensors[number] = THPVariable_Unpack(object);
  readTensor(number, source, into);
}

void CompiledGraph::readTensor(size_t number, int64_t source, Arguments& into) const {
  const at::Tensor* tensor = &into.tensors[number];
  if (aten::isLazy(*tensor)) [[unlikely]]
    tensor = &into.computed.insert_or_assign(number, aten::materialize(*tensor)).first->second;
  auto ref = tensorRef(*tensor, origin_.place);
  if (!ref.ok())
    raise(Status(ref.status().code(), "input " + std::to_string(source) + ": " + ref.status().message()));
  into.inputs[number].is_tensor = true;
  into.inputs[number].tensor = *ref;
}

void CompiledGraph::readArgument(const py::list& arguments, size_t number, size_t input, Arguments& into) const {
  const int64_t place = takes_ ? takes_->place(number) : int64_t(number);
  if (place >= 0)
    return read(PyList_GET_ITEM(arguments.ptr(), static_cast<Py_ssize_t>(place)), input, int64_t(number), into);
  PyObject* object = PyList_GET_ITEM(arguments.ptr(), static_cast<Py_ssize_t>(takes_->argument));
  const SavedBlock& saved = *takes_->block;
  if (!THPVariable_Check(object) || THPVariable_Unpack(object).scalar_type() != at::kByte ||
      !THPVariable_Unpack(object).is_contiguous() || size_t(THPVariable_Unpack(object).numel()) != saved.bytes)
    raise(Status(Code::invalid_argument, "input " + std::to_string(takes_->argument) + ": expected " +
                                             std::to_string(saved.bytes) + " bytes of saved activations"));
  const at::Tensor& block = THPVariable_Unpack(object);
  const SavedBlock::Entry& entry = saved.entries[size_t(-1 - place)];
  if (as_tensor_[input]) {
    into.tensors[input] = saved.tensor(entry, block);
    return readTensor(input, int64_t(number), into);
  }
  into.inputs[input].is_tensor = true;
  into.inputs[input].tensor = saved.ref(entry, block, origin_.place);
}

std::shared_ptr<SavedBlock> CompiledGraph::saveInBlock(const std::vector<size_t>& outputs) {
  if (!origin_.place)
    return nullptr;
  const plan::Plan& plan = executable_->plan();
  saves_ = SavedBlock::of(plan, outputs);
  if (!saves_)
    return nullptr;
  in_block_.assign(plan.outputs()->size(), 0);
  for (const SavedBlock::Entry& entry : saves_->entries)
    in_block_[entry.number] = 1;
  return saves_;
}

void CompiledGraph::takeFromBlock(std::shared_ptr<SavedBlock> block, const std::vector<size_t>& arguments) {
  if (!block || arguments.size() != block->entries.size() || !std::ranges::is_sorted(arguments))
    raise(Status(Code::invalid_argument, "the numbers of arguments that come in a block: one of each, in order"));
  takes_.emplace(std::move(block), arguments);
  const plan::Plan& plan = executable_->plan();
  as_tensor_.assign(plan.inputs() ? plan.inputs()->size() : 0, 0);
  for (size_t number : written_)
    as_tensor_[number] = 1;
  if (plan.outputs())
    for (const plan::Output* output : *plan.outputs())
      if (output->kind() == plan::OutputKind::tensor)
        if (const auto* buffer = plan.buffers()->Get(plan.values()->Get(output->value())->buffer());
            buffer->storage() == plan::Storage::input)
          as_tensor_[buffer->index()] = 1;
}

py::tuple CompiledGraph::call(const py::list& arguments) {
  const size_t given = arguments.size() + (takes_ ? takes_->more() : 0);
  const bool as_they_come = origin_.sources.empty();
  Arguments read_ones(as_they_come ? given + constants_.size() : origin_.sources.size());
  for (size_t i = 0; i < read_ones.inputs.size(); ++i) {
    const int64_t source = as_they_come ? int64_t(i) : origin_.sources[i];
    if (source < 0) {
      read_ones.inputs[i].is_tensor = false;
    } else if (size_t(source) < given) {
      readArgument(arguments, size_t(source), i, read_ones);
    } else {
      if (size_t(source) - given >= constants_.size())
        raise(Status(Code::invalid_argument, "called with " + std::to_string(given) + " inputs, which are too few"));
      read_ones.tensors[i] = constants_[size_t(source) - given];
      readTensor(i, source, read_ones);
    }
  }
  py::tuple results = run(read_ones);
  PyList_SetSlice(arguments.ptr(), 0, PyList_GET_SIZE(arguments.ptr()), nullptr);
  return results;
}

void CompiledGraph::numberStorages(Arguments& arguments) {
  for (auto& [input, known] : storages_) {
    const at::Tensor& tensor = arguments.tensors[input];
    TensorRef& ref = arguments.inputs[input].tensor;
    if (ref.place != Place::device || !tensor.defined() || tensor.is_inference() || !tensor.has_storage() ||
        arguments.computed.contains(input))
      continue;
    c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
    if (!known || known->storage._unsafe_get_target() != storage)
      known.emplace(c10::weak_intrusive_ptr<c10::StorageImpl>(tensor.storage().getWeakStorageImpl()), ++last_storage_);
    ref.storage = known->number;
  }
}

void CompiledGraph::awaitNativeCode() {
  while (!withoutGil([&] { return executable_->isBuiltWithin(std::chrono::milliseconds(20)); }))
    if (PyErr_CheckSignals() != 0)
      throw py::error_already_set();
  built_ = true;
}

py::tuple CompiledGraph::run(Arguments& arguments) {
  if (!built_) [[unlikely]]
    awaitNativeCode();
  numberStorages(arguments);
  std::vector<at::Tensor>& tensors = arguments.tensors;
  OutputStorage storage(executable_->numOutputBuffers(), origin_.place, saves_.get());
  std::vector<at::Tensor> wrapped;
  auto outputs = [&] {
    py::gil_scoped_release released;
    const c10::OptionalDeviceGuard current(origin_.place);
    CallPlace place;
    if (origin_.place)
      place = {Place::device, currentStream(*origin_.place)};
    // What we return are fresh tensors and plain views; AOTAutograd has settled all that autograd must know.
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    auto allocate = [&](const OutputRequest& request) { return storage.allocate(request); };
    auto call = [&](StepObserver* observer) { return executable_->call(arguments.inputs, allocate, observer, place); };
    auto result = [&] {
      if (!ProfilerRows::wanted()) [[likely]]
        return call(nullptr);
      ProfilerRows rows(executable_->plan());
      return call(&rows);
    }();
    if (result.ok() && !arguments.computed.empty())
      for (size_t i : written_)
        if (auto written = arguments.computed.find(i); written != arguments.computed.end())
          tensors[i].copy_(written->second);
    if (result.ok())
      for (size_t i = 0; i < result->size(); ++i)
        wrapped.push_back(saves_ && in_block_[i] ? at::Tensor() : storage.wrap((*result)[i], tensors));
    return result;
  }();
  if (!outputs.ok())
    raise(outputs.status(), origin_.place.has_value());

  for (size_t i : written_)
    if (!tensors[i].is_inference())
      tensors[i].unsafeGetTensorImpl()->bump_version();

  py::tuple results(outputs->size() - (saves_ ? saves_->entries.size() - 1 : 0));
  size_t next = 0;
  for (size_t number = 0; number < outputs->size(); ++number) {
    if (saves_ && in_block_[number]) {
      if (number == saves_->entries.front().number)
        results[next++] = py::reinterpret_steal<py::object>(THPVariable_Wrap(storage.block()));
      continue;
    }
    const size_t i = next++;
    const CallOutput& output = (*outputs)[number];
    if (output.kind == CallOutput::Kind::integer)
      results[i] = py::int_(output.integer);
    else if (output.kind == CallOutput::Kind::none || !wrapped[number].defined())
      results[i] = py::none();
    else
      results[i] = py::reinterpret_steal<py::object>(THPVariable_Wrap(wrapped[number]));
  }
  return results;
}

void CompiledGraph::synchronize() {
  const Status status = withoutGil([&] { return executable_->synchronize(); });
  if (!status.ok())
    raise(status, origin_.place.has_value());
}

std::string CompiledGraph::planJson() const { return planToJson(executable_->planBytes()); }

py::bytes CompiledGraph::planBytes() const {
  auto bytes = executable_->planBytes();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

py::list CompiledGraph::constantTensors() const {
  py::list list;
  for (const at::Tensor& constant : constants_)
    list.append(py::reinterpret_steal<py::object>(THPVariable_Wrap(constant)));
  return list;
}

py::list CompiledGraph::outputStrides() const {
  const plan::Plan& plan = executable_->plan();
  py::list strides;
  if (const auto* outputs = plan.outputs())
    for (const plan::Output* output : *outputs) {
      strides.append(py::none());
      const auto* value = output->kind() == plan::OutputKind::tensor ? plan.values()->Get(output->value()) : nullptr;
      if (!value)
        continue;
      py::list numbers;
      if (const auto* exprs = value->strides())
        for (uint32_t index : *exprs)
          if (const auto* expr = plan.exprs()->Get(index); expr->op() == plan::ExprOp::constant)
            numbers.append(expr->value());
      if (numbers.size() == (value->strides() ? value->strides()->size() : 0))
        strides[strides.size() - 1] = py::tuple(numbers);
    }
  return strides;
}

}  // namespace zefuse::python
