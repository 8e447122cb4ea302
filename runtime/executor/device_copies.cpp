// DeviceSide's buffers: where the host's and the device's lie in a call, and what is copied between them.
#include <cstring>

#include "common/base/buffer_alignment.h"
#include "runtime/executor/derived_weights.h"
#include "runtime/executor/device_side.h"

namespace zefuse::executor {

Status DeviceSide::takePlaces(std::span<const CallInput> inputs, const CallPlace& given) {
  const plan::PlanT& plan = program_.plan;
  const Place results = given.results;
  stream_ = given.stream;
  any_placed_ = false;
  for (uint32_t buffer : caller_buffers_) {
    const bool input = plan.buffers[buffer]->storage == plan::Storage::input;
    const Place place = input ? inputs[plan.buffers[buffer]->index].tensor.place : results;
    placed_[buffer] = place == Place::device;
    any_placed_ |= place == Place::device;
    if (place == Place::device && host_step_[buffer] >= 0)
      return {Code::unsupported,
              plan::stepName(plan, size_t(host_step_[buffer])) + " runs on the host, and " +
                  (input ? "input '" + plan.inputs[plan.buffers[buffer]->index]->name + "'" : "a result") +
                  ", which it uses, lies on the device"};
  }
  placed_alone_ = results == Place::device || program_.output_buffers.empty();
  for (uint32_t buffer : device_inputs_)
    placed_alone_ &= placed_[buffer] || program_.isUnwrittenParameter(*plan.buffers[buffer]);
  return {};
}

Status DeviceSide::usePlaces() {
  moved_now_ = false;
  for (uint32_t buffer : caller_buffers_) {
    if (!placed_[buffer] && program_.callers_places && !device().zeroCopy()) {
      if (program_.isUnwrittenParameter(*program_.plan.buffers[buffer]))
        continue;  // makeResident places it
      ZEFUSE_RETURN_IF_ERROR(reserve(moved_[buffer], ze::Memory::Kind::device, binding_->buffer_bytes[buffer],
                                     "a tensor that lies on the host"));
      device_[buffer] = static_cast<std::byte*>(moved_[buffer].data());
    } else if (!placed_[buffer]) {
      if (!device().zeroCopy())  // there place() says it
        device_[buffer] = static_cast<std::byte*>(queue_->arena.data()) + binding_->device.offset[buffer];
    } else if (reinterpret_cast<uintptr_t>(host_[buffer]) % buffer_alignment == 0) {
      device_[buffer] = host_[buffer];
      if (valid_[buffer] == on_host)
        valid_[buffer] |= on_device;
    } else {
      moved_now_ = true;
      const auto kind = device().zeroCopy() ? ze::Memory::Kind::host : ze::Memory::Kind::device;
      ZEFUSE_RETURN_IF_ERROR(
          reserve(moved_[buffer], kind, binding_->buffer_bytes[buffer], "a tensor that begins between two boundaries"));
      device_[buffer] = static_cast<std::byte*>(moved_[buffer].data());
    }
  }
  return {};
}

/// Where the device sees the host's buffer of this call, without copies.
Status DeviceSide::place(uint32_t buffer) {
  if (reinterpret_cast<uintptr_t>(host_[buffer]) % buffer_alignment == 0) {
    device_[buffer] = host_[buffer];
    return {};
  }
  device_[buffer] = nullptr;
  if (program_.isUnwrittenParameter(*program_.plan.buffers[buffer]))  // makeResident places it
    return {};
  if (moved_[buffer].bytes() < binding_->buffer_bytes[buffer])
    ZEFUSE_RETURN_IF_ERROR(drain());  // what lay there may be in use
  ZEFUSE_RETURN_IF_ERROR(reserve(moved_[buffer], ze::Memory::Kind::host, binding_->buffer_bytes[buffer],
                                 "a tensor that begins between two boundaries"));
  device_[buffer] = static_cast<std::byte*>(moved_[buffer].data());
  return {};
}

Status DeviceSide::makeResident(uint32_t buffer) {
  const uint32_t number = program_.plan.buffers[buffer]->index;
  const TensorRef& tensor = inputs_[number].tensor;
  const BoundInput& shape = binding_->inputs[number];
  const size_t bytes = bytesOf(tensor, shape);
  const WeightStamp stamp = stampOf(tensor, shape, shared_.device->parameters().generation());
  std::shared_ptr<const ResidentParameter>& mine = resident_[number];
  if (!mine || mine->stamp != stamp || mine->bytes < bytes) {
    mine.reset();
    auto resident = shared_.resident.get(number, tensor.data, bytes, stamp, shared_.deadline, *counted_);
    if (!resident.ok())
      return {resident.status().code(), "parameter '" + program_.plan.inputs[number]->name + "' of " +
                                            std::to_string(bytes) + " bytes, besides " +
                                            std::to_string(shared_.device->parameters().bytes()) +
                                            " bytes of others: " + resident.status().message()};
    mine = std::move(*resident);
  }
  device_[buffer] = static_cast<std::byte*>(mine->memory.data());
  return {};
}

Status DeviceSide::toDevice(uint32_t buffer) {
  if (valid_[buffer] & on_device)
    return {};
  const plan::BufferT& from = *program_.plan.buffers[buffer];
  if (device().zeroCopy() && !placed_[buffer])
    ZEFUSE_RETURN_IF_ERROR(place(buffer));
  if (valid_[buffer] == nowhere || !transfers(buffer)) {
    // nothing in it yet
  } else if (program_.isUnwrittenParameter(from) && !placed_[buffer]) {
    ZEFUSE_RETURN_IF_ERROR(makeResident(buffer));
  } else {
    const size_t bytes = binding_->buffer_bytes[buffer];
    ++counted_->copies_to_device;
    counted_->bytes_to_device += bytes;
    valid_[buffer] |= on_device;
    if (placed_[buffer] || (program_.callers_places && !device().hostCopies())) {  // the call waits in both cases
      queued_ |= mode_ == Mode::immediate;
      copied_in_ = true;
      return list_->copy(device_[buffer], host_[buffer], bytes);
    }
    if (device().hostCopies())
      ZEFUSE_RETURN_IF_ERROR(drain());  // what lay there may be in use
    uploads_.push_back(buffer);
    fillStaging(buffer);
    if (!device().hostCopies()) {
      queued_ |= mode_ == Mode::immediate;
      copied_in_ = true;
      ZEFUSE_RETURN_IF_ERROR(list_->copy(device_[buffer], staging(buffer), bytes));
    }
  }
  valid_[buffer] |= on_device;
  return {};
}

/// Or the buffer itself, where the host reaches it.
void DeviceSide::fillStaging(uint32_t buffer) {
  std::memcpy(device().hostCopies() ? device_[buffer] : staging(buffer), host_[buffer], binding_->buffer_bytes[buffer]);
}

Status DeviceSide::queueToHost(uint32_t buffer, bool& queued) {
  if (valid_[buffer] == nowhere || (valid_[buffer] & on_host))
    return {};
  valid_[buffer] |= on_host;
  if (!transfers(buffer))
    return {};
  queued = true;
  const size_t bytes = binding_->buffer_bytes[buffer];
  if (placed_[buffer]) {
    ++counted_->copies_to_device;
    counted_->bytes_to_device += bytes;
    if (launched_since_)
      ZEFUSE_RETURN_IF_ERROR(barrier());
    queued_ |= mode_ == Mode::immediate;
    return list_->copy(host_[buffer], device_[buffer], bytes);
  }
  ++counted_->copies_to_host;
  counted_->bytes_to_host += bytes;
  const bool staged = device().hostCopies() || !program_.callers_places;  // else it has no room there; the call waits
  if (staged)
    downloads_.push_back(buffer);
  if (device().hostCopies())
    return {};
  if (launched_since_)
    ZEFUSE_RETURN_IF_ERROR(barrier());
  queued_ |= mode_ == Mode::immediate;
  return list_->copy(staged ? staging(buffer) : host_[buffer], device_[buffer], bytes);
}

Status DeviceSide::queueResults() {
  bool queued = false;
  for (uint32_t buffer : program_.output_buffers)
    ZEFUSE_RETURN_IF_ERROR(queueToHost(buffer, queued));
  for (uint32_t buffer : program_.written_inputs)
    ZEFUSE_RETURN_IF_ERROR(queueToHost(buffer, queued));
  return {};
}

void DeviceSide::takeFromStaging() {
  for (uint32_t buffer : downloads_)
    std::memcpy(host_[buffer], device().hostCopies() ? device_[buffer] : staging(buffer),
                binding_->buffer_bytes[buffer]);
  downloads_.clear();
}

}  // namespace zefuse::executor
