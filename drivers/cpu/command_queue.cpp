#include "drivers/cpu/command_queue.h"

#include <algorithm>
#include <list>

#include "drivers/cpu/command_list.h"
#include "drivers/cpu/device.h"
#include "drivers/cpu/fence.h"
#include "drivers/cpu/worker.h"

namespace zefuse::cpu {

CommandQueue::CommandQueue(Context& owner, const Device& device, const ze_command_queue_desc_t& description)
    : context(&owner), device(device), desc(description) {
  if (desc.mode != ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS)
    worker = workerFor(owner, desc, Worker::Order::submitted);
}

CommandQueue::~CommandQueue() = default;

bool mayWait(uint32_t count, ze_command_list_handle_t* lists) {
  return std::any_of(lists, lists + count,
                     [](ze_command_list_handle_t list) { return fromHandle<CommandList>(list)->has_waits; });
}

ze_result_t makeQueue(Context& context, Device& device, const ze_command_queue_desc_t& desc, CommandQueue*& out) {
  out = new CommandQueue(context, device, desc);
  return ZE_RESULT_SUCCESS;
}

ze_result_t executeLists(CommandQueue& queue, uint32_t count, ze_command_list_handle_t* lists, Fence* fence) {
  const bool default_mode = queue.desc.mode == ZE_COMMAND_QUEUE_MODE_DEFAULT;
  if (!queue.worker || (default_mode && !mayWait(count, lists) && queue.worker->ready())) {
    std::lock_guard lock(queue.inline_order);
    const Site site = {Team::callers};
    Progress progress(site);
    for (uint32_t i = 0; i < count; ++i) {
      auto commands = fromHandle<CommandList>(lists[i])->recorded;
      progress.run(*commands);
    }
    Ref<Fence> alive(fence);  // a waiter may destroy it as soon as it sees the signal
    if (fence && progress.failure())
      fence->state.fail(progress.failure());
    else if (fence)
      fence->state.set();
    return progress.failure() ? progress.failure()->tell("zeCommandQueueExecuteCommandLists") : ZE_RESULT_SUCCESS;
  }
  std::list<Submission> submissions;
  for (uint32_t i = 0; i < count; ++i)
    submissions.push_back({fromHandle<CommandList>(lists[i])->recorded, Ref<Fence>()});
  submissions.back().fence = Ref<Fence>(fence);
  queue.worker->submit(std::move(submissions));
  return ZE_RESULT_SUCCESS;
}

ze_result_t commandQueueSynchronize(ze_command_queue_handle_t hCommandQueue, uint64_t timeout) {
  ZEFUSE_OBJECT(CommandQueue, queue, hCommandQueue);
  return queue->worker ? queue->worker->wait(__func__, timeout) : ZE_RESULT_SUCCESS;
}

}  // namespace zefuse::cpu
