// Streams that are queues of SYCL's (posing_xpu_queue), or of the library that stands for it (tests/unit/posing_sycl),
// which a process has loaded then, for all to see.
#include <dlfcn.h>

#include <array>
#include <mutex>

#include "runtime/ze/sycl.h"
#include "tests/unit/posing_torch/lanes.h"

namespace zefuse::posing {
namespace {

constexpr size_t streams_of_a_device = 8;
std::mutex mutex;
std::array<void*, 2 * streams_of_a_device> queues{};

struct Ordered final : Lane {
  Ordered(const ze::Context& where, void* handle)
      : context(where), queue(ok(ze::syclQueueOf(where, handle))),
        list(ok(ze::CommandList::createImmediate(where, ze::Execution::asynchronous))), order(where, queue) {}
  void copy(void* to, const void* from, size_t bytes) override {
    const std::lock_guard lock(one_at_a_time);
    ok(order.enter(list));
    ok(list.copy(to, from, bytes));
    ok(order.leave(list));
  }
  void wait() override { ok(ze::awaitSyclQueue(context, queue, UINT64_MAX)); }

  std::mutex one_at_a_time;
  const ze::Context& context;
  void* queue;
  ze::CommandList list;
  ze::SyclOrder order;
};

}  // namespace

void* handleOf(c10::DeviceIndex device, c10::StreamId stream) {
  const std::lock_guard lock(mutex);
  void*& queue = queues.at(size_t(device) * streams_of_a_device + size_t(stream));
  if (!queue)
    if (const auto make = reinterpret_cast<void* (*)(int)>(dlsym(RTLD_DEFAULT, "posing_sycl_queue")))
      queue = make(size_t(stream) + 1 == streams_of_a_device);  // the last stream: in another context
  TORCH_CHECK(queue, "the posing device ", int(device), " has no queue for stream ", stream);
  return queue;
}

ze::Context makeContext() {
  ok(ze::adoptSyclQueue("xpu:posing", handleOf(0, 0)));
  return ok(ze::Context::create(ok(ze::Device::find("xpu:posing"))));
}

std::unique_ptr<Lane> makeLane(const ze::Context& context, void* handle) {
  return std::make_unique<Ordered>(context, handle);
}

}  // namespace zefuse::posing

// The sycl::queue of a stream, before anything uses it.
extern "C" __attribute__((visibility("default"))) void posing_xpu_queue(int device, int stream, void* queue) {
  zefuse::posing::queues.at(size_t(device) * zefuse::posing::streams_of_a_device + size_t(stream)) = queue;
}
