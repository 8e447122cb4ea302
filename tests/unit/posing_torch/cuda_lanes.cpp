// Streams that the CPU's driver lets queues adopt (common/ze_extension/stream.h).
#include "tests/unit/posing_torch/lanes.h"

namespace zefuse::posing {
namespace {

struct Adopting final : Lane {
  Adopting(const ze::Context& context, void* handle)
      : list(ok(ze::CommandList::createImmediate(context, ze::Execution::asynchronous, handle))),
        queue(ok(ze::CommandQueue::create(context, handle))) {}
  void copy(void* to, const void* from, size_t bytes) override {
    const std::lock_guard lock(mutex);
    ok(list.copy(to, from, bytes));
    ok(list.barrier());
  }
  void wait() override { ok(queue.synchronize(UINT64_MAX)); }

  std::mutex mutex;
  ze::CommandList list;
  ze::CommandQueue queue;
};

}  // namespace

void* handleOf(c10::DeviceIndex device, c10::StreamId stream) {
  return reinterpret_cast<void*>(uintptr_t(16 + device * 256 + stream));
}

ze::Context makeContext() { return ok(ze::Context::create(ok(ze::Device::find("gpu:0")))); }

std::unique_ptr<Lane> makeLane(const ze::Context& context, void* handle) {
  return std::make_unique<Adopting>(context, handle);
}

}  // namespace zefuse::posing
