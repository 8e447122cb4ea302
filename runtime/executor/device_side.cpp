#include "runtime/executor/device_side.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace zefuse::executor {

namespace {

constexpr size_t most_events = 16;  // of a call after the first: each is a write by the device, which costs time
// A caller whose results are still alive at the next call, or a training step among others, brings few sets of
// addresses in turn: as many are remembered, and recorded.
constexpr size_t most_recordings = 16;
constexpr uint64_t trial_recordings = 32;  // that may be made without a replay for each

}  // namespace

Result<std::unique_ptr<DeviceSide>> DeviceSide::create(SharedDevice& shared, const plan::Program& program,
                                                       std::vector<std::byte*>& host) {
  std::unique_ptr<DeviceSide> self(new DeviceSide(shared, program, host));
  const plan::PlanT& plan = program.plan;
  const size_t buffers = plan.buffers.size(), steps = plan.steps.size();
  self->device_.resize(buffers);
  self->moved_.resize(buffers);
  self->valid_.resize(buffers);
  self->resident_.resize(plan.inputs.size());
  self->placed_.resize(buffers);
  self->host_step_.resize(buffers, -1);
  uint32_t launches = 0;
  std::vector<bool> touched(buffers);
  for (size_t i = 0; i < steps; ++i)
    if (program.on_device[i]) {
      ++launches;
      if (const auto* launch = plan.steps[i]->kind.AsLaunch(); launch && !launch->checks.empty())
        self->checked_.push_back(i);
      for (const plan::Program::Touch& touch : program.touches[i])
        touched[touch.buffer] = true;
    } else {
      for (const plan::Program::Touch& touch : program.touches[i])
        self->host_step_[touch.buffer] = int64_t(i);
    }
  for (uint32_t i = 0; i < buffers; ++i)
    if (plan.buffers[i]->storage == plan::Storage::input || plan.buffers[i]->storage == plan::Storage::output)
      self->caller_buffers_.push_back(i);
  for (uint32_t i = 0; i < buffers; ++i)
    if (touched[i] && plan.buffers[i]->storage == plan::Storage::input)
      self->device_inputs_.push_back(i);
  std::vector<bool> derives(buffers);
  for (size_t i = 0; i < steps; ++i)
    if (program.derived[i])
      for (const plan::Program::Touch& touch : program.touches[i])
        derives[touch.buffer] = true;
  for (uint32_t i : self->device_inputs_)
    if (derives[i])
      self->derived_buffers_.push_back(i);
  const ze::Context& context = shared.device->context();
  auto events = ze::EventPool::create(context, launches + 1);
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
  if (queue_ && queue_->busy && memory.bytes() > 0) {  // earlier calls may be at it
    ZEFUSE_RETURN_IF_ERROR(queue_->synchronize(deadline()));
    queue_->busy = false;
  }
  memory = {};
  if (queue_)
    queue_->layout = DeviceQueue::newLayout();
  auto fresh = shared_.device->allocate(kind, bytes, what, [&] { return shared_.resident.dropUnused(); });
  if (!fresh.ok())
    return fresh.status();
  memory = std::move(*fresh);
  return {};
}

Status DeviceSide::bind(const Binding& binding) {
  binding_ = &binding;
  layout_ = 0;
  proven_ = false;
  seen_.clear();
  recordings_.clear();
  recorded_calls_ = replayed_calls_ = 0;
  ZEFUSE_RETURN_IF_ERROR(takeLibraryCalls(binding));
  ZEFUSE_RETURN_IF_ERROR(takeKeptMemory());
  if (shared_.in_streams)  // which the first call brings
    return {};
  stream_.reset();
  const Status status = takeQueue();
  giveQueueBack();
  return status;
}

Status DeviceSide::takeLibraryCalls(const Binding& binding) {
  products_.clear();
  convolutions_.clear();
  scratch_bytes_ = binding.device.scratch_bytes;
  const size_t steps = binding.launches.size();
  auto take = [&](size_t step, auto& asked, const auto& wanted, auto& taken) -> Status {
    auto made = asked.get(device().context(), wanted);
    if (!made.ok())
      return made.status();
    if (!*made)
      return {};
    taken.resize(steps);
    scratch_bytes_ = std::max(scratch_bytes_, (*made)->workspaceBytes());
    taken[step] = std::move(*made);
    return {};
  };
  for (size_t step = 0; step < steps; ++step) {
    const BoundLaunch& launch = binding.launches[step];
    if (launch.product)
      ZEFUSE_RETURN_IF_ERROR(take(step, shared_.device->products(), *launch.product, products_));
    if (launch.convolution)
      ZEFUSE_RETURN_IF_ERROR(take(step, shared_.device->convolutions(), *launch.convolution, convolutions_));
  }
  return {};
}

DeviceSide::~DeviceSide() {
  if (in_flight_ && !device().isLost())
    (void)shared_.device->awaitStreams(shared_.deadline);  // what is freed here may be in use
}

/// A queue with room for this binding, and where that puts buffers.
Status DeviceSide::takeQueue() {
  auto queue = shared_.device->takeQueue(last_queue_, stream_);
  if (!queue.ok())
    return queue.status();
  queue_ = std::move(*queue);
  last_queue_ = queue_.get();
  const auto block = device().hostVisible() ? ze::Memory::Kind::host : ze::Memory::Kind::device;
  const DeviceLayout& layout = binding_->device;
  ZEFUSE_RETURN_IF_ERROR(reserve(queue_->scratch, block, scratch_bytes_, "scratch memory"));
  if (device().zeroCopy())
    return {};
  ZEFUSE_RETURN_IF_ERROR(reserve(queue_->arena, block, layout.bytes, "inputs, outputs and intermediate results"));
  if (!device().hostVisible())
    ZEFUSE_RETURN_IF_ERROR(
        reserve(queue_->staging, ze::Memory::Kind::host, layout.staging_bytes, "staging memory on the host"));
  if (layout_ == queue_->layout)
    return {};
  for (size_t i = 0; i < device_.size(); ++i)
    device_[i] = keeps_ && program_.kept[i] ? static_cast<std::byte*>(kept_.data()) + binding_->kept.offset[i]
                                            : static_cast<std::byte*>(queue_->arena.data()) + layout.offset[i];
  layout_ = queue_->layout;
  return {};
}

void DeviceSide::giveQueueBack() noexcept {
  mode_ = Mode::immediate;
  list_ = nullptr;
  recording_.reset();
  if (queue_)
    shared_.device->giveBack(std::move(queue_));
}

Status DeviceSide::begin(std::span<const CallInput> inputs, Counters::OfCall& counted, bool timed) {
  inputs_ = inputs;
  counted_ = &counted;
  ZEFUSE_RETURN_IF_ERROR(tellEarlier(false));
  ZEFUSE_RETURN_IF_ERROR(takeQueue());
  ZEFUSE_RETURN_IF_ERROR(queue_->enter());  // results have their memory, which others may have given up by now
  const plan::PlanT& plan = program_.plan;
  for (size_t i = 0; i < plan.buffers.size(); ++i)
    valid_[i] = plan.buffers[i]->storage == plan::Storage::input ? on_host : nowhere;
  ZEFUSE_RETURN_IF_ERROR(usePlaces());
  waits_ = !stream_ || shared_.synchronous || timed || program_.host_steps || !placed_alone_ || moved_now_;
  if (!in_flight_)
    for (size_t step : launched_)
      *statusWord(step) = 0;
  launched_.clear();
  uploads_.clear();
  downloads_.clear();
  copied_in_ = launched_since_ = false;
  mode_ = Mode::immediate;
  list_ = &queue_->immediate;
  launches_per_event_ = !waits_   ? ended_.size() + 1  // nobody looks
                        : proven_ ? std::max<size_t>(1, (ended_.size() + most_events - 1) / most_events)
                                  : 1;
  ZEFUSE_RETURN_IF_ERROR(lookAtDerived());
  // What is timed is waited for step by step, and where tensors are used where they are, addresses are the caller's.
  if (program_.host_steps || timed || device().zeroCopy() || (program_.callers_places && !placed_alone_))
    return {};
  for (uint32_t buffer : device_inputs_)
    if (program_.isUnwrittenParameter(*plan.buffers[buffer]) && !placed_[buffer] && transfers(buffer)) {
      ZEFUSE_RETURN_IF_ERROR(makeResident(buffer));
      valid_[buffer] |= on_device;
    }
  Addresses now{queue_->layout, {}, {}, waits_, keeps_now_};
  for (const auto& parameter : resident_)
    now.parameters.push_back(parameter ? parameter->id : 0);
  if (any_placed_)
    for (uint32_t buffer : caller_buffers_)
      now.placed.push_back(placed_[buffer] ? host_[buffer] : nullptr);
  if (Recording* known = recordingFor(now)) {
    replayed_ = known;
    mode_ = Mode::replay;
    return {};
  }
  if (worthRecording(now)) {
    auto list = ze::CommandList::createRecorded(device().context());
    if (!list.ok())
      return list.status();
    recording_ = std::make_unique<Recording>();
    recording_->list = std::move(*list);
    recording_->addresses = std::move(now);
    recording_->counted = counted;
    list_ = &recording_->list;
    mode_ = Mode::record;
  }
  // All at once: commands of before cannot be using what lies there.
  for (uint32_t buffer : device_inputs_)
    ZEFUSE_RETURN_IF_ERROR(toDevice(buffer));
  return {};
}

DeviceSide::Recording* DeviceSide::recordingFor(const Addresses& now) {
  const auto found = std::ranges::find_if(recordings_, [&](const auto& each) { return each->addresses == now; });
  if (found == recordings_.end())
    return nullptr;
  std::rotate(recordings_.begin(), found, found + 1);
  ++replayed_calls_;
  return recordings_.front().get();
}

bool DeviceSide::worthRecording(const Addresses& now) {
  if (!device().replays() || recorded_calls_ > replayed_calls_ + trial_recordings)
    return false;
  if (proven_ && std::ranges::find(seen_, now) != seen_.end())
    return true;
  if (seen_.size() == most_recordings)
    seen_.erase(seen_.begin());
  seen_.push_back(now);
  return false;
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

Status DeviceSide::barrier() {
  copied_in_ = launched_since_ = false;
  return list_->barrier();
}

ze::Event* DeviceSide::endOf(size_t launch) {
  return (launch + 1) % launches_per_event_ == 0 ? &ended_[launch / launches_per_event_] : nullptr;
}

Status DeviceSide::launch(size_t step, const ze::Kernel& kernel, uint32_t groups) {
  return queueStep(step, [&](ze::Event* ended) { return list_->launch(kernel, groups, ended); });
}

Status DeviceSide::copy(size_t step, void* destination, const void* source, size_t bytes) {
  return queueStep(step, [&](ze::Event* ended) { return list_->copy(destination, source, bytes, ended); });
}

Status DeviceSide::multiply(size_t step, ze_extension::ProductOperands operands) {
  operands.workspace = scratch();
  return queueStep(step, [&](ze::Event* ended) { return list_->multiply(*products_[step], operands, ended); });
}

Status DeviceSide::convolve(size_t step, ze_extension::ConvolutionOperands operands) {
  operands.workspace = scratch();
  return queueStep(step, [&](ze::Event* ended) { return list_->convolve(*convolutions_[step], operands, ended); });
}

template <typename Append> Status DeviceSide::queueStep(size_t step, Append append) {
  // Where tensors are used where they are, nobody knows which are the same. Steps since the last launch that launched
  // nothing (without elements, or derived before) leave their wait to this one.
  const auto& waits = binding_->device.waits;
  const auto first = waits.begin() + ptrdiff_t(launched_.empty() || launched_.back() > step ? 0 : launched_.back() + 1);
  const bool due = std::any_of(first, waits.begin() + ptrdiff_t(step) + 1, [](uint8_t wait) { return wait != 0; });
  if (copied_in_ || (launched_since_ && (device().zeroCopy() || any_placed_ || due)))
    ZEFUSE_RETURN_IF_ERROR(failed(barrier()));
  queued_ |= mode_ == Mode::immediate;
  launched_since_ = true;
  ze::Event* ended = endOf(launched_.size());
  launched_.push_back(step);
  if (ended)
    ZEFUSE_RETURN_IF_ERROR(ended->reset());
  return failed(append(ended));
}

Status DeviceSide::execute(const ze::CommandList& list) {
  if (!waits_) {
    queued_ = true;
    return failed(queue_->execute(list));
  }
  for (size_t launch = 0; launch < launched_.size(); ++launch)
    if (ze::Event* ended = endOf(launch))
      ZEFUSE_RETURN_IF_ERROR(ended->reset());
  ZEFUSE_RETURN_IF_ERROR(drained_->reset());
  queued_ = true;
  ZEFUSE_RETURN_IF_ERROR(failed(queue_->execute(list)));
  return awaitDrained();
}

Status DeviceSide::finish() {
  switch (mode_) {
  case Mode::immediate:
    ZEFUSE_RETURN_IF_ERROR(queueResults());
    if (waits_)
      ZEFUSE_RETURN_IF_ERROR(drain());
    break;
  case Mode::record: {
    ZEFUSE_RETURN_IF_ERROR(queueResults());
    if (waits_)
      ZEFUSE_RETURN_IF_ERROR(list_->barrier(&*drained_));
    ZEFUSE_RETURN_IF_ERROR(list_->close());
    Recording& made = *recording_;
    made.launched = launched_;
    made.uploads = uploads_;
    made.downloads = downloads_;
    made.counted = counted_->commandsSince(made.counted);
    ZEFUSE_RETURN_IF_ERROR(execute(made.list));
    ++recorded_calls_;
    if (recordings_.size() == most_recordings)
      recordings_.pop_back();
    recordings_.insert(recordings_.begin(), std::move(recording_));
    break;
  }
  case Mode::replay:
    launched_ = replayed_->launched;
    downloads_ = replayed_->downloads;
    for (uint32_t buffer : replayed_->uploads)
      fillStaging(buffer);
    counted_->addCommands(replayed_->counted);
    ++counted_->replays;
    ZEFUSE_RETURN_IF_ERROR(execute(replayed_->list));
  }
  if (waits_) {
    takeFromStaging();
    ZEFUSE_RETURN_IF_ERROR(checkWords());
  } else {
    ZEFUSE_RETURN_IF_ERROR(queue_->leave());
    in_flight_ = true;
    queued_ = false;
  }
  queue_->busy = !waits_;
  proven_ = true;
  giveQueueBack();
  return {};
}

}  // namespace zefuse::executor
