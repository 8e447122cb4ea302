#include "runtime/executor/device_side.h"

#include <cstring>

#include "common/base/buffer_alignment.h"
#include "common/plan/dtype.h"

namespace zefuse::executor {

Status SharedDevice::lost() const {
  if (generation_ != forkGeneration()) [[unlikely]]
    return {Code::device, "the model was loaded on device '" + context.device().name +
                              "' before this process was forked, and a GPU's driver does not work in a fork; load the "
                              "model in a process of its own (multiprocessing: \"spawn\"), or use device 'cpu'"};
  std::lock_guard lock(mutex_);
  return lost_;
}

void SharedDevice::markLost(const Status& reason) noexcept {
  std::lock_guard lock(mutex_);
  if (!lost_.ok())
    return;
  try {
    lost_ = {reason.code(), "an earlier call lost device '" + context.device().name + "': " + reason.message() +
                                "; compile again, or use device 'cpu'"};
  } catch (const std::bad_alloc&) {
    lost_ = {reason.code(), "device lost"};  // short enough to need no memory
  }
  is_lost_.store(true, std::memory_order_release);
}

Result<std::unique_ptr<DeviceSide>> DeviceSide::create(SharedDevice& shared, const plan::Program& program,
                                                       std::vector<std::byte*>& host) {
  std::unique_ptr<DeviceSide> self(new DeviceSide(shared, program, host));
  const size_t buffers = program.plan.buffers.size(), steps = program.plan.steps.size();
  self->device_.resize(buffers);
  self->moved_.resize(buffers);
  self->valid_.resize(buffers);
  self->resident_.resize(program.plan.inputs.size());
  self->event_of_.assign(steps, -1);
  uint32_t launches = 0;
  for (size_t i = 0; i < steps; ++i)
    if (program.on_device[i])
      self->event_of_[i] = int32_t(launches++);
  auto list = ze::CommandList::createImmediate(shared.context, ze::Execution::asynchronous);
  if (!list.ok())
    return list.status();
  self->list_ = std::move(*list);
  auto events = ze::EventPool::create(shared.context, launches + 1);
  if (!events.ok())
    return events.status();
  self->events_ = std::move(*events);
  for (uint32_t i = 0; i <= launches; ++i) {
    auto event = ze::Event::create(self->events_, i);
    if (!event.ok())
      return event.status();
    if (i < launches)
      self->ended_.push_back(std::move(*event));
    else
      self->drained_ = std::move(*event);
  }
  // Zeroed: a check that never ran did not fail.
  ZEFUSE_RETURN_IF_ERROR(
      self->reserve(self->words_, ze::Memory::Kind::host, std::max<size_t>(steps, 1) * sizeof(uint32_t), "checks"));
  std::memset(self->words_.data(), 0, self->words_.bytes());
  self->launched_.reserve(launches);
  return self;
}

Status DeviceSide::reserve(ze::Memory& memory, ze::Memory::Kind kind, size_t bytes, const char* what) {
  if (bytes <= memory.bytes())
    return {};
  memory = {};
  auto fresh = ze::Memory::allocate(shared_.context, kind, bytes);
  if (fresh.status().code() == Code::out_of_memory && shared_.resident.dropUnused())
    fresh = ze::Memory::allocate(shared_.context, kind, bytes);
  if (!fresh.ok()) {
    const ze::Device& device = shared_.context.device();
    return {fresh.status().code(), "device '" + device.name + "' has no room for " + std::to_string(bytes) +
                                       " bytes of " + what + " (it has " + std::to_string(device.memory_bytes) +
                                       " bytes, of which this graph's parameters take " +
                                       std::to_string(shared_.resident.bytes()) + "): " + fresh.status().message()};
  }
  memory = std::move(*fresh);
  return {};
}

Status DeviceSide::bind(const Binding& binding) {
  binding_ = &binding;
  const auto block = shared_.hostVisible() ? ze::Memory::Kind::host : ze::Memory::Kind::device;
  ZEFUSE_RETURN_IF_ERROR(reserve(scratch_, block, binding.device.scratch_bytes, "scratch memory"));
  if (shared_.zeroCopy())
    return {};
  ZEFUSE_RETURN_IF_ERROR(reserve(arena_, block, binding.device.bytes, "inputs, outputs and intermediate results"));
  if (!shared_.hostVisible())
    ZEFUSE_RETURN_IF_ERROR(
        reserve(staging_, ze::Memory::Kind::host, binding.device.staging_bytes, "staging memory on the host"));
  for (size_t i = 0; i < device_.size(); ++i)
    device_[i] = static_cast<std::byte*>(arena_.data()) + binding.device.offset[i];
  return {};
}

void DeviceSide::begin(std::span<const CallInput> inputs, Counters::OfCall& counted) {
  inputs_ = inputs;
  counted_ = &counted;
  const plan::PlanT& plan = program_.plan;
  for (size_t i = 0; i < plan.buffers.size(); ++i)
    valid_[i] = plan.buffers[i]->storage == plan::Storage::input ? on_host : nowhere;
  for (size_t step : launched_)
    *statusWord(step) = 0;
  launched_.clear();
  downloads_.clear();
}

Status DeviceSide::makeResident(uint32_t buffer) {
  const uint32_t number = program_.plan.buffers[buffer]->index;
  const TensorRef& tensor = inputs_[number].tensor;
  const BoundInput& shape = binding_->inputs[number];
  const size_t bytes =
      size_t(*reach(shape.sizes, shape.strides)) * plan::elementSize(program_.plan.inputs[number]->dtype);
  const WeightStamp stamp{tensor.data, tensor.version, fingerprint(tensor.data, bytes), shared_.resident.generation()};
  std::shared_ptr<const ResidentInput>& mine = resident_[number];
  if (!mine || mine->stamp != stamp || mine->bytes < bytes) {
    mine.reset();
    auto resident = shared_.resident.get(number, tensor.data, bytes, stamp, shared_.deadline, *counted_);
    if (!resident.ok())
      return {resident.status().code(), "parameter '" + program_.plan.inputs[number]->name + "' of " +
                                            std::to_string(bytes) + " bytes, besides " +
                                            std::to_string(shared_.resident.bytes()) +
                                            " bytes of others: " + resident.status().message()};
    mine = std::move(*resident);
  }
  device_[buffer] = static_cast<std::byte*>(mine->memory.data());
  return {};
}

/// Where the device sees the host's buffer of this call, without copies.
Status DeviceSide::place(uint32_t buffer) {
  if (reinterpret_cast<uintptr_t>(host_[buffer]) % buffer_alignment == 0) {
    device_[buffer] = host_[buffer];
    return {};
  }
  device_[buffer] = nullptr;
  if (program_.staysOnDevice(*program_.plan.buffers[buffer]))  // makeResident places it
    return {};
  if (moved_[buffer].bytes() < binding_->buffer_bytes[buffer])
    ZEFUSE_RETURN_IF_ERROR(drain());  // what lay there may be in use
  ZEFUSE_RETURN_IF_ERROR(reserve(moved_[buffer], ze::Memory::Kind::host, binding_->buffer_bytes[buffer],
                                 "a tensor that begins between two boundaries"));
  device_[buffer] = static_cast<std::byte*>(moved_[buffer].data());
  return {};
}

Status DeviceSide::toDevice(uint32_t buffer) {
  if (valid_[buffer] & on_device)
    return {};
  const plan::BufferT& from = *program_.plan.buffers[buffer];
  if (shared_.zeroCopy())
    ZEFUSE_RETURN_IF_ERROR(place(buffer));
  if (valid_[buffer] == nowhere || !transfers(buffer)) {
    // nothing in it yet
  } else if (program_.staysOnDevice(from)) {
    ZEFUSE_RETURN_IF_ERROR(makeResident(buffer));
  } else {
    const size_t bytes = binding_->buffer_bytes[buffer];
    ++counted_->copies_to_device;
    counted_->bytes_to_device += bytes;
    if (shared_.hostCopies()) {
      ZEFUSE_RETURN_IF_ERROR(drain());  // what lay there may be in use
      std::memcpy(device_[buffer], host_[buffer], bytes);
    } else {
      std::memcpy(staging(buffer), host_[buffer], bytes);
      queued_ = true;
      ZEFUSE_RETURN_IF_ERROR(list_->copy(device_[buffer], staging(buffer), bytes));
      ZEFUSE_RETURN_IF_ERROR(list_->barrier());
    }
  }
  valid_[buffer] |= on_device;
  return {};
}

Status DeviceSide::queueToHost(uint32_t buffer, bool& queued) {
  if (valid_[buffer] == nowhere || (valid_[buffer] & on_host))
    return {};
  valid_[buffer] |= on_host;
  if (!transfers(buffer))
    return {};
  downloads_.push_back(buffer);
  queued = true;
  const size_t bytes = binding_->buffer_bytes[buffer];
  ++counted_->copies_to_host;
  counted_->bytes_to_host += bytes;
  if (shared_.hostCopies())
    return {};
  queued_ = true;
  return list_->copy(staging(buffer), device_[buffer], bytes);
}

void DeviceSide::takeFromStaging() {
  for (uint32_t buffer : downloads_)
    std::memcpy(host_[buffer], shared_.hostCopies() ? device_[buffer] : staging(buffer),
                binding_->buffer_bytes[buffer]);
  downloads_.clear();
}

Status DeviceSide::before(size_t step) {
  if (program_.on_device[step]) {
    for (const plan::Program::Touch& touch : program_.touches[step])
      ZEFUSE_RETURN_IF_ERROR(toDevice(touch.buffer));
    return {};
  }
  bool queued = false;
  for (const plan::Program::Touch& touch : program_.touches[step])
    ZEFUSE_RETURN_IF_ERROR(queueToHost(touch.buffer, queued));
  // With what the host's next steps read, so that one wait serves them all.
  for (size_t next = step + 1; (queued || queued_) && next < program_.touches.size() && !program_.on_device[next];
       ++next)
    for (const plan::Program::Touch& touch : program_.touches[next])
      ZEFUSE_RETURN_IF_ERROR(queueToHost(touch.buffer, queued));
  ZEFUSE_RETURN_IF_ERROR(drain());
  takeFromStaging();
  ++counted_->host_steps;
  return checkWords();
}

void DeviceSide::after(size_t step) {
  // What the host wrote has no address on the device yet (toDevice), even where that will be the host's own.
  const bool device = program_.on_device[step];
  for (const plan::Program::Touch& touch : program_.touches[step])
    if (touch.written)
      valid_[touch.buffer] = (device ? on_device : 0) | (!device || !transfers(touch.buffer) ? on_host : 0);
}

Status DeviceSide::launch(size_t step, const ze::Kernel& kernel, uint32_t groups) {
  queued_ = true;
  launched_.push_back(step);
  ze::Event& ended = ended_[size_t(event_of_[step])];
  ZEFUSE_RETURN_IF_ERROR(ended.reset());
  ZEFUSE_RETURN_IF_ERROR(failed(list_->launch(kernel, groups, &ended)));
  return failed(list_->barrier());
}

Status DeviceSide::finish() {
  bool queued = false;
  for (uint32_t buffer : program_.output_buffers)
    ZEFUSE_RETURN_IF_ERROR(queueToHost(buffer, queued));
  for (uint32_t buffer : program_.written_inputs)
    ZEFUSE_RETURN_IF_ERROR(queueToHost(buffer, queued));
  ZEFUSE_RETURN_IF_ERROR(drain());
  takeFromStaging();
  return checkWords();
}

Status DeviceSide::drain() {
  if (!queued_)
    return {};
  ZEFUSE_RETURN_IF_ERROR(drained_->reset());
  ZEFUSE_RETURN_IF_ERROR(failed(list_->barrier(&*drained_)));
  // The deadline is one of a step: as long as launches end, the wait goes on.
  for (std::string at = unfinished();;) {
    Status status = drained_->wait(uint64_t(std::chrono::nanoseconds(shared_.deadline).count()));
    if (status.ok())
      break;
    if (status.code() != Code::deadline)
      return failed(status);
    std::string now = unfinished();
    if (now == at)
      return {Code::deadline,
              now + " did not end on device '" + shared_.context.device().name + "' within " +
                  std::to_string(shared_.deadline.count()) +
                  " ms (option device_timeout_s); the device may hang, there or in a copy before: see its system log"};
    at = std::move(now);
  }
  queued_ = false;
  return {};
}

Status DeviceSide::checkWords() {
  const plan::PlanT& plan = program_.plan;
  for (size_t step : launched_) {
    const uint32_t failed = *const_cast<volatile uint32_t*>(statusWord(step));
    if (failed == 0)
      continue;
    const Status status = plan::checkFailed(*plan.steps[step]->kind.AsLaunch(), failed);
    return {status.code(), plan::stepName(plan, step) + ": " + status.message()};
  }
  return {};
}

std::string DeviceSide::unfinished() const {
  for (size_t step : launched_) {
    Result<bool> ended = ended_[size_t(event_of_[step])].signalled();
    if (!ended.ok() || !*ended)
      return plan::stepName(program_.plan, step);
  }
  return "a copy";
}

Status DeviceSide::failed(const Status& status) const {
  if (status.ok())
    return {};
  return {status.code(), status.message() + "; the device was at " + unfinished(), status.place()};
}

void DeviceSide::settle() noexcept {
  try {
    if (const Status status = drain(); !status.ok())
      shared_.markLost(status);
  } catch (const std::exception&) {
    shared_.markLost({Code::out_of_memory, "no memory"});  // whether it has ended nobody knows
  }
}

}  // namespace zefuse::executor
