#include "runtime/executor/resident_parameters.h"

#include <cstring>

namespace zefuse::executor {

Status ResidentParameters::prepareUpload() {
  if (upload_)
    return {};
  auto upload = std::make_unique<Upload>();
  auto list = ze::CommandList::createImmediate(context_, ze::Execution::asynchronous);
  if (!list.ok())
    return list.status();
  upload->list = std::move(*list);
  auto pool = ze::EventPool::create(context_, 1);
  if (!pool.ok())
    return pool.status();
  upload->pool = std::move(*pool);
  auto done = ze::Event::create(upload->pool, 0);
  if (!done.ok())
    return done.status();
  upload->done = std::move(*done);
  upload_ = std::move(upload);
  return {};
}

Result<ze::Memory> ResidentParameters::upload(const void* data, size_t bytes, std::chrono::milliseconds deadline) {
  const bool host_visible = context_.device().integrated;
  auto memory = ze::Memory::allocate(context_, host_visible ? ze::Memory::Kind::host : ze::Memory::Kind::device, bytes);
  if (!memory.ok())
    return memory.status();
  if (host_visible) {
    std::memcpy(memory->data(), data, bytes);
    return std::move(*memory);
  }
  // From the caller's own memory: a copy through staging of something that is moved once would only cost more.
  ZEFUSE_RETURN_IF_ERROR(prepareUpload());
  // What a lost device may still use is never freed: on the heap from the start, so that leaving it there needs
  // nothing.
  auto used = std::make_unique<ze::Memory>(std::move(*memory));
  ZEFUSE_RETURN_IF_ERROR(upload_->done->reset());
  Status copied = upload_->list.copy(used->data(), data, bytes, &*upload_->done);
  if (copied.ok())
    copied = upload_->done->wait(uint64_t(std::chrono::nanoseconds(deadline).count()));
  if (copied.ok())
    return std::move(*used);
  (void)used.release();
  (void)upload_.release();
  if (copied.code() == Code::deadline)
    copied = {Code::deadline, "its copy did not end on device '" + context_.device().name + "' within " +
                                  std::to_string(deadline.count()) +
                                  " ms (option device_timeout_s); the device may hang: see its system log"};
  lost_(copied);
  return copied;
}

Result<std::shared_ptr<const ResidentParameter>> ResidentParameters::get(const void* data, size_t bytes,
                                                                         const WeightStamp& stamp,
                                                                         std::chrono::milliseconds deadline,
                                                                         Counters::OfCall& counters) {
  std::lock_guard lock(mutex_);
  std::weak_ptr<const ResidentParameter>& known = copies_[data];
  if (auto copy = known.lock(); copy && copy->stamp == stamp && copy->bytes >= bytes)
    return copy;
  auto memory = upload(data, bytes, deadline);
  if (!memory.ok())
    return memory.status();
  auto copy = std::make_shared<ResidentParameter>();
  copy->stamp = stamp;
  static std::atomic<uint64_t> last_id{0};
  copy->id = ++last_id;
  copy->bytes = bytes;
  copy->memory = std::move(*memory);
  ++counters.parameters_uploaded;
  ++counters.copies_to_device;
  counters.bytes_to_device += bytes;
  known = copy;
  std::erase_if(copies_, [](const auto& entry) { return entry.second.expired(); });
  return std::shared_ptr<const ResidentParameter>(copy);
}

uint64_t ResidentParameters::bytes() const {
  std::lock_guard lock(mutex_);
  uint64_t total = 0;
  for (const auto& [data, known] : copies_)
    if (auto copy = known.lock())
      total += copy->bytes;
  return total;
}

void ResidentParameters::invalidate() {
  generation_.fetch_add(1, std::memory_order_acq_rel);
  std::lock_guard lock(mutex_);
  copies_.clear();
}

}  // namespace zefuse::executor
