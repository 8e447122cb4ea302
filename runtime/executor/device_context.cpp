#include "runtime/executor/device_context.h"

#include <algorithm>
#include <map>
#include <thread>

namespace zefuse {

static std::atomic<bool (*)()> last_resort{nullptr};

void setLastResort(bool (*give_back)()) { last_resort = give_back; }

bool executor::lastResort() {
  bool (*const give_back)() = last_resort;
  return give_back && give_back();
}

}  // namespace zefuse

namespace zefuse::executor {

Result<std::unique_ptr<DeviceQueue>> DeviceQueue::create(const ze::Context& context, ze::Stream stream) {
  auto queue = std::make_unique<DeviceQueue>();
  queue->stream = stream;
  const bool of_sycl = context.device().sycl && stream;
  auto immediate =
      ze::CommandList::createImmediate(context, ze::Execution::asynchronous, of_sycl ? std::nullopt : stream);
  if (!immediate.ok())
    return immediate.status();
  queue->immediate = std::move(*immediate);
  if (of_sycl) {
    queue->order = std::make_unique<ze::SyclOrder>(context, *stream);
    return queue;
  }
  auto recorded = ze::CommandQueue::create(context, stream);
  if (!recorded.ok())
    return recorded.status();
  queue->recorded = std::move(*recorded);
  return queue;
}

uint64_t DeviceQueue::newLayout() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

DeviceContext::DeviceContext(ze::Context context)
    : context_(std::move(context)), replays_(!device().sycl || device().driver.appendsLists()),
      max_idle_(std::max(8u, 2 * std::thread::hardware_concurrency())),
      parameters_(context_, [this](const Status& reason) { markLost(reason); }) {
  idle_.reserve(max_idle_);  // giveBack() asks for no memory
}

Result<std::shared_ptr<DeviceContext>> DeviceContext::open(const std::string& name) {
  Result<ze::Device> device = ze::Device::find(name);
  if (!device.ok())
    return device.status();
  // Never destroyed: graphs may be, after static objects.
  static auto& mutex = *new ForkMutex;
  static auto& opened = *new std::map<std::pair<ze_device_handle_t, ze_context_handle_t>, std::weak_ptr<DeviceContext>>;
  const std::pair key(device->handle, device->context);
  auto usable = [&]() -> std::shared_ptr<DeviceContext> {
    auto context = opened[key].lock();
    return context && context->lost().ok() ? context : nullptr;
  };
  {
    std::lock_guard lock(mutex);
    if (auto context = usable())
      return context;
  }
  auto made = ze::Context::create(*device);  // a driver's call, with no lock
  if (!made.ok())
    return made.status();
  std::shared_ptr<DeviceContext> fresh(new DeviceContext(std::move(*made)));
  std::lock_guard lock(mutex);
  if (auto context = usable())  // another thread was quicker
    return context;
  opened[key] = fresh;
  return fresh;
}

Status DeviceContext::lost() const {
  if (generation_ != forkGeneration()) [[unlikely]]
    return {Code::device, "the model was loaded on device '" + device().name +
                              "' before this process was forked, and a GPU's driver does not work in a fork; load the "
                              "model in a process of its own (multiprocessing: \"spawn\"), or use device 'cpu'"};
  if (!isLost()) [[likely]]
    return {};
  std::lock_guard lock(mutex_);
  return lost_;
}

void DeviceContext::markLost(const Status& reason) noexcept {
  std::lock_guard lock(mutex_);
  if (!lost_.ok())
    return;
  kept_ = weak_from_this().lock();
  try {
    lost_ = {reason.code(), "an earlier call lost device '" + device().name + "': " + reason.message() +
                                "; compile again, or use device 'cpu'"};
  } catch (const std::bad_alloc&) {
    lost_ = {reason.code(), "device lost"};  // short enough to need no memory
  }
  is_lost_.store(true, std::memory_order_release);
}

Result<std::unique_ptr<DeviceQueue>> DeviceContext::takeQueue(const DeviceQueue* last, ze::Stream stream) {
  if (device().sycl && stream) {
    const Result<void*> kept = ze::syclQueueOf(context_, *stream);
    if (!kept.ok())
      return kept.status();
    stream = *kept;
  }
  {
    std::lock_guard lock(mutex_);
    auto found = idle_.end();
    for (auto at = idle_.begin(); at != idle_.end(); ++at)
      if ((*at)->stream == stream) {
        found = at;
        if (at->get() == last)
          break;
      }
    if (found != idle_.end()) {
      std::unique_ptr<DeviceQueue> queue = std::move(*found);
      idle_.erase(found);
      return queue;
    }
  }
  auto made = DeviceQueue::create(context_, stream);
  if (!made.ok() || !stream)
    return made;
  if (device().sycl) {
    std::lock_guard lock(mutex_);
    streams_.try_emplace(*stream, nullptr);
    return made;
  }
  auto waiter = ze::CommandQueue::create(context_, stream);
  if (!waiter.ok())
    return waiter.status();
  std::lock_guard lock(mutex_);
  streams_.try_emplace(*stream, std::make_unique<ze::CommandQueue>(std::move(*waiter)));
  return made;
}

Status DeviceContext::awaitStreams(std::chrono::milliseconds deadline) {
  const auto nanoseconds = uint64_t(std::chrono::nanoseconds(deadline).count());
  std::vector<std::pair<void*, ze::CommandQueue*>> streams;  // none is ever removed
  {
    std::lock_guard lock(mutex_);
    for (const auto& [stream, queue] : streams_)
      streams.emplace_back(stream, queue.get());
  }
  for (const auto& [stream, queue] : streams)
    ZEFUSE_RETURN_IF_ERROR(queue ? queue->synchronize(nanoseconds) : ze::awaitSyclQueue(context_, stream, nanoseconds));
  return {};
}

DeviceContext::~DeviceContext() {
  if (!isLost())
    for (const std::unique_ptr<DeviceQueue>& queue : idle_)
      if (queue->busy)
        (void)queue->synchronize(UINT64_MAX);  // nobody could handle its failure here
}

void DeviceContext::giveBack(std::unique_ptr<DeviceQueue> queue) noexcept {
  if (isLost()) {
    (void)queue.release();  // what a lost device may still use is never freed
    return;
  }
  std::lock_guard lock(mutex_);
  if (idle_.size() < max_idle_)
    idle_.push_back(std::move(queue));
}

Result<ze::Memory> DeviceContext::allocate(ze::Memory::Kind kind, size_t bytes, const char* what,
                                           const std::function<bool()>& drop) {
  auto fresh = ze::Memory::allocate(context_, kind, bytes);
  if (fresh.status().code() == Code::out_of_memory) {
    bool freed = releaseIdleMemory();
    freed |= drop && drop();
    if (freed)
      fresh = ze::Memory::allocate(context_, kind, bytes);
    if (fresh.status().code() == Code::out_of_memory && lastResort())
      fresh = ze::Memory::allocate(context_, kind, bytes);
  }
  if (!fresh.ok())
    return Status{fresh.status().code(), "device '" + device().name + "' has no room for " + std::to_string(bytes) +
                                             " bytes of " + what + " (it has " + std::to_string(device().memory_bytes) +
                                             " bytes, of which parameters take " + std::to_string(parameters_.bytes()) +
                                             "): " + fresh.status().message()};
  return fresh;
}

bool DeviceContext::releaseIdleMemory() {
  std::vector<ze::Memory> freed;  // after the lock
  std::lock_guard lock(mutex_);
  for (std::unique_ptr<DeviceQueue>& queue : idle_) {
    if (queue->busy && !queue->synchronize(UINT64_MAX).ok())
      continue;
    queue->busy = false;
    for (ze::Memory* memory : {&queue->arena, &queue->staging, &queue->scratch})
      if (memory->bytes() > 0)
        freed.push_back(std::exchange(*memory, {}));
  }
  return !freed.empty();
}

void askLibraries(DeviceContext& device, const Binding& binding) {
  for (const BoundLaunch& launch : binding.launches) {
    if (launch.product)
      (void)device.products().get(device.context(), *launch.product);
    if (launch.convolution)
      (void)device.convolutions().get(device.context(), *launch.convolution);
  }
}

}  // namespace zefuse::executor
