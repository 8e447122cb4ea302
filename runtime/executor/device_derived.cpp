// DeviceSide's steps that derive something from parameters: what they made is kept from call to call, until a parameter
// is another one or has other values.
#include <algorithm>
#include <utility>

#include "runtime/executor/device_side.h"

namespace zefuse::executor {

Status DeviceSide::takeKeptMemory() {
  const size_t bytes = binding_->kept.bytes;  // the same for all bindings
  if (bytes == 0 || device().hostCopies())
    return {};
  if (!keeps_) {
    auto fresh = shared_.device->allocate(ze::Memory::Kind::device, bytes, "what is derived from parameters",
                                          [&] { return shared_.resident.dropUnused(); });
    if (!fresh.ok() && fresh.status().code() == Code::out_of_memory)
      return {};
    if (!fresh.ok())
      return fresh.status();
    kept_ = std::move(*fresh);
  }
  keeps_ = true;
  return {};
}

Status DeviceSide::lookAtDerived() {
  keeps_now_ = false;
  if (!keeps_)
    return {};
  // A capture of the application's would hold what the parameters are now.
  keeps_now_ = !stream_ || !ze::isCapturing(device().context(), *stream_);
  derived_now_.clear();
  for (uint32_t buffer : derived_buffers_) {
    const uint32_t number = program_.plan.buffers[buffer]->index;
    DerivedFrom& from = derived_now_.emplace_back();
    if (placed_[buffer]) {
      const TensorRef& tensor = inputs_[number].tensor;
      from = {tensor.data, tensor.storage, tensor.version, 0};
      keeps_now_ &= tensor.storage != 0 && device_[buffer] == host_[buffer];
    } else if (transfers(buffer)) {
      ZEFUSE_RETURN_IF_ERROR(makeResident(buffer));
      valid_[buffer] |= on_device;
      from.resident = resident_[number]->id;
    }
  }
  const uint64_t generation = shared_.device->parameters().generation();
  derived_fresh_ &=
      keeps_now_ && derived_generation_ == generation && derived_stream_ == stream_ && derived_from_ == derived_now_;
  // Calls in another stream may have yet to read what is written anew.
  if (!derived_fresh_ && in_flight_ && derived_stream_ != stream_)
    ZEFUSE_RETURN_IF_ERROR(shared_.device->awaitStreams(shared_.deadline));
  derived_generation_ = generation;
  return {};
}

Status DeviceSide::derive(const std::function<Status(size_t step)>& run) {
  const Mode mode = std::exchange(mode_, Mode::immediate);
  const bool copied_in = std::exchange(copied_in_, false);  // in the list of the others
  ze::CommandList* const list = std::exchange(list_, &queue_->immediate);
  for (size_t step = 0; step < program_.derived.size(); ++step) {
    if (!program_.derived[step])
      continue;
    ZEFUSE_RETURN_IF_ERROR(before(step));
    ZEFUSE_RETURN_IF_ERROR(run(step));
    after(step);
    ++counted_->weights_packed;
    ZEFUSE_RETURN_IF_ERROR(failed(barrier()));
  }
  // Lists follow each other in a stream of the caller's alone; and no call uses what failed a check.
  if (!stream_ || std::ranges::any_of(checked_, [&](size_t step) { return program_.derived[step]; }))
    ZEFUSE_RETURN_IF_ERROR(drain());
  const Status checked = checkWords();
  for (size_t step : launched_)
    *statusWord(step) = 0;  // told now
  launched_.clear();
  ZEFUSE_RETURN_IF_ERROR(checked);
  mode_ = mode;
  list_ = list;
  copied_in_ = copied_in;
  if (recording_)
    recording_->counted = *counted_;
  std::swap(derived_from_, derived_now_);
  derived_stream_ = stream_;
  derived_fresh_ = true;
  return {};
}

}  // namespace zefuse::executor
