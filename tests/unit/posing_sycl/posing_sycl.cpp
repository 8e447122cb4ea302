// What libzefuse_sycl does, without SYCL: its queues are lists of the GPU that the CPU's driver poses as, in a context
// of their own. For ZEFUSE_SYCL in tests.
#include <cstdio>
#include <memory>
#include <mutex>
#include <vector>

#include "common/ze_extension/sycl_queue.h"
#include "runtime/ze/command_list.h"

namespace zefuse::ze_extension {

struct SyclQueue {
  const ze::Context* context;
  ze::CommandList list;
  std::mutex mutex;
};
struct SyclMark {
  ze::EventPool pool;
  ze::Event event;
};

namespace {

int told(const Status& status, char* error, size_t size) {
  if (status.ok())
    return 0;
  std::snprintf(error, size, "%s", status.message().c_str());
  return 1;
}

Result<std::unique_ptr<SyclMark>> makeMark(const SyclQueue& queue) {
  auto mark = std::make_unique<SyclMark>();
  auto pool = ze::EventPool::create(*queue.context, 1);
  if (!pool.ok())
    return pool.status();
  mark->pool = std::move(*pool);
  auto event = ze::Event::create(mark->pool, 0);
  if (!event.ok())
    return event.status();
  mark->event = std::move(*event);
  return mark;
}

Status submit(SyclQueue& queue, ze_event_handle_t awaited, SyclMark** mark) {
  auto made = makeMark(queue);
  if (!made.ok())
    return made.status();
  const std::lock_guard lock(queue.mutex);
  ZEFUSE_RETURN_IF_ERROR(queue.list.barrier(&(*made)->event, awaited));
  *mark = made->release();
  return {};
}

int adopt(void* address, SyclHandles* handles, char* error, size_t size) {
  auto* queue = static_cast<SyclQueue*>(address);
  *handles = {queue, queue->context->handle(), queue->context->device().handle};
  return 0;
}

int before(SyclQueue* queue, SyclMark** mark, ze_event_handle_t* event, char* error, size_t size) {
  const Status status = submit(*queue, nullptr, mark);
  if (status.ok())
    *event = (*mark)->event.handle();
  return told(status, error, size);
}

int after(SyclQueue* queue, ze_event_handle_t event, SyclMark** mark, char* error, size_t size) {
  return told(submit(*queue, event, mark), error, size);
}

int ended(SyclMark* mark) {
  const auto signalled = mark->event.signalled();
  return signalled.ok() && *signalled;
}

void release(SyclMark* mark) { delete mark; }

constexpr SyclFunctions functions{adopt, before, after, ended, release};

// Never destroyed, as queues are not.
Result<const ze::Context*> makeContext() {
  auto device = ze::Device::find("gpu:0");
  if (!device.ok())
    return device.status();
  auto made = ze::Context::create(*device);
  if (!made.ok())
    return made.status();
  return new ze::Context(std::move(*made));
}

}  // namespace
}  // namespace zefuse::ze_extension

using namespace zefuse::ze_extension;

#define ZEFUSE_SHOWN extern "C" __attribute__((visibility("default")))

ZEFUSE_SHOWN const SyclFunctions* zefuseSyclFunctions(uint32_t interface) {
  return interface == sycl_interface ? &functions : nullptr;
}

// A new queue for the rest of the process, in the context of the others or, in tests of that, in one of its own; null
// where the driver poses as no GPU.
ZEFUSE_SHOWN void* posing_sycl_queue(int of_its_own) {
  static const auto shared = makeContext();
  const auto context = of_its_own ? makeContext() : shared;
  if (!context.ok())
    return nullptr;
  auto list = zefuse::ze::CommandList::createImmediate(**context, zefuse::ze::Execution::asynchronous);
  if (!list.ok())
    return nullptr;
  static std::mutex mutex;
  static auto* queues = new std::vector<SyclQueue*>;  // for leak checkers: they are meant to stay
  const std::lock_guard lock(mutex);
  return queues->emplace_back(new SyclQueue{*context, std::move(*list), {}});
}
