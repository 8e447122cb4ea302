#include "runtime/executor/resident_inputs.h"

#include <cstring>
#include <memory>
#include <optional>

namespace zefuse::executor {

Result<ze::Memory> ResidentInputs::upload(const void* data, size_t bytes, std::chrono::milliseconds deadline) {
  const bool host_visible = context_.device().integrated;
  auto memory = ze::Memory::allocate(context_, host_visible ? ze::Memory::Kind::host : ze::Memory::Kind::device, bytes);
  if (!memory.ok())
    return memory.status();
  if (host_visible) {
    std::memcpy(memory->data(), data, bytes);
    return std::move(*memory);
  }
  // From the caller's own memory: a copy through staging of something that is moved once would only cost more.
  // What a lost device may still use is never freed: on the heap from the start, so that leaving it there needs
  // nothing.
  struct Used {
    ze::Memory memory;
    ze::EventPool pool;
    std::optional<ze::Event> done;
    std::optional<ze::CommandList> list;
  };
  auto used = std::make_unique<Used>();
  used->memory = std::move(*memory);
  auto list = ze::CommandList::createImmediate(context_, ze::Execution::asynchronous);
  auto pool = ze::EventPool::create(context_, 1);
  if (!list.ok() || !pool.ok())
    return list.ok() ? pool.status() : list.status();
  used->list = std::move(*list);
  used->pool = std::move(*pool);
  auto done = ze::Event::create(used->pool, 0);
  if (!done.ok())
    return done.status();
  used->done = std::move(*done);
  Status copied = used->list->copy(used->memory.data(), data, bytes, &*used->done);
  if (copied.ok())
    copied = used->done->wait(uint64_t(std::chrono::nanoseconds(deadline).count()));
  if (copied.ok())
    return std::move(used->memory);
  (void)used.release();
  if (copied.code() == Code::deadline)
    copied = {Code::deadline, "its copy did not end on device '" + context_.device().name + "' within " +
                                  std::to_string(deadline.count()) +
                                  " ms (option device_timeout_s); the device may hang: see its system log"};
  lost_(copied);
  return copied;
}

Result<std::shared_ptr<const ResidentInput>> ResidentInputs::get(uint32_t input, const void* data, size_t bytes,
                                                                 const WeightStamp& stamp,
                                                                 std::chrono::milliseconds deadline,
                                                                 Counters::OfCall& counters) {
  // Held while copying: threads that meet here at a first call want the same copy.
  std::lock_guard lock(mutex_);
  if (inputs_.size() <= input)
    inputs_.resize(input + 1);
  KeptCopies<ResidentInput>& kept = inputs_[input];
  if (auto fresh = kept.use(stamp))
    return fresh;
  kept.makeRoom().reset();  // its memory may be what the new copy needs
  auto memory = upload(data, bytes, deadline);
  if (memory.status().code() == Code::out_of_memory && dropUnusedLocked())
    memory = upload(data, bytes, deadline);
  if (!memory.ok())
    return memory.status();
  auto resident = std::make_shared<ResidentInput>();
  resident->stamp = stamp;
  resident->bytes = bytes;
  resident->memory = std::move(*memory);
  ++counters.parameters_uploaded;
  ++counters.copies_to_device;
  counters.bytes_to_device += bytes;
  kept.add(resident);
  return std::shared_ptr<const ResidentInput>(resident);
}

bool ResidentInputs::dropUnused() {
  std::lock_guard lock(mutex_);
  return dropUnusedLocked();
}

bool ResidentInputs::dropUnusedLocked() {
  bool any = false;
  for (KeptCopies<ResidentInput>& kept : inputs_)
    any |= kept.dropUnused();
  return any;
}

uint64_t ResidentInputs::bytes() const {
  std::lock_guard lock(mutex_);
  uint64_t total = 0;
  for (const KeptCopies<ResidentInput>& kept : inputs_)
    for (const auto& use : kept.uses())
      total += use.copy ? use.copy->bytes : 0;
  return total;
}

void ResidentInputs::invalidate() {
  generation_.fetch_add(1, std::memory_order_acq_rel);
  std::lock_guard lock(mutex_);
  inputs_.clear();
}

}  // namespace zefuse::executor
